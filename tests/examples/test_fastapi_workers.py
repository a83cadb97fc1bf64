"""The web example with four workers on PostgreSQL: any of them answers, and one may be killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no types
import pytest

from tests.support.postgres import new_database

pytestmark = [pytest.mark.slow, pytest.mark.faults]
ROOT = Path(__file__).parents[2]
SECONDS = 60.0
WORKERS = 4


class Server:
    """The example under uvicorn with workers. A request is a connection: the kernel chooses."""

    def __init__(self, store: str, folder: Path) -> None:
        self.log = folder / "server.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "uvicorn", "examples.fastapi_app:app"),
                    *("--port", "0", "--workers", str(WORKERS)),
                    *("--timeout-graceful-shutdown", "5"),
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "STORE": store},
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + SECONDS
        while self.log.read_text().count("Application startup complete") < WORKERS:
            assert time.monotonic() < end, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)
        found = re.search(r"running on http://127\.0\.0\.1:(\d+)", self.log.read_text())
        assert found is not None
        self.port = int(found[1])

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"content-type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text

    def ask_until_answered(self, method: str, path: str, body: object = None) -> Any:
        """As a client that got no answer asks again: what it asks has an id of its own."""
        end = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, answer = self.ask(method, path, body)
                assert status < 500, (status, answer, self.log.read_text()[-3000:])
                assert status < 400, (status, answer)
                return answer
            assert time.monotonic() < end, "nobody answers"
            time.sleep(0.05)

    def workers(self) -> list[int]:
        children = psutil.Process(self.process.pid).children()
        return [
            child.pid for child in children if "resource_tracker" not in " ".join(child.cmdline())
        ]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(SECONDS)
        finally:
            for child in psutil.Process().children(recursive=True):
                if child.pid == self.process.pid or "fastapi_app" in " ".join(child.cmdline()):
                    child.kill()


@pytest.fixture
def server(postgres_url: str, tmp_path: Path) -> Iterator[Server]:
    with new_database(postgres_url) as store:
        server = Server(store, tmp_path)
        try:
            yield server
        finally:
            server.stop()


def refunded(server: Server, agent: str) -> dict[str, Any]:
    """A refund from its message to its end, each request at whichever worker gets it."""
    message = {"text": "Refund order 17", "wait": True, "message_id": f"{agent}-1"}
    asked = server.ask_until_answered("POST", f"/agents/{agent}/messages", message)
    assert asked["outcome"] == "interrupted", asked
    (request,) = asked["requests"]
    found = server.ask_until_answered("GET", f"/agents/{agent}")
    assert [one["id"] for one in found["requests"]] == [request["id"]]
    path = f"/approvals/{agent}/{urllib.parse.quote(request['id'], safe='')}?wait=true"
    done: dict[str, Any] = server.ask_until_answered("POST", path, {"type": "approve"})
    if done["outcome"] == "interrupted":
        # Its worker was killed in the middle of the refund: a person looks whether it was made.
        (doubt,) = done["requests"]
        assert doubt["kind"] == "doubt", doubt
        path = f"/approvals/{agent}/{urllib.parse.quote(doubt['id'], safe='')}?wait=true"
        answer = {"type": "respond", "value": "refunded 49.90 for order 17"}
        done = server.ask_until_answered("POST", path, answer)
    return done


def assert_refunded_once(server: Server, agent: str) -> None:
    found = server.ask_until_answered("GET", f"/agents/{agent}")
    parts = [part for message in found["messages"] for part in message["parts"]]
    counts = Counter(part["part_kind"] for part in parts)
    assert (counts["user-prompt"], counts["tool-return"]) == (1, 1), counts
    assert found["decisions"][0]["type"] == "approve"


def test_any_worker_answers_for_any_agent(server: Server) -> None:
    agents = [f"agent-{n}" for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        for done in pool.map(lambda agent: refunded(server, agent), agents):
            assert done["outcome"] == "completed", done
            assert "refunded 49.90 for order 17" in done["text"]
    for agent in agents:
        assert_refunded_once(server, agent)
    assert server.ask("GET", "/approvals") == (200, [])


def test_a_worker_is_killed_in_the_middle_and_every_refund_is_made_once(server: Server) -> None:
    agents = [f"agent-{n}" for n in range(32)]
    half = threading.Semaphore(0)

    def one(agent: str) -> dict[str, Any]:
        done = refunded(server, agent)
        half.release()
        return done

    with ThreadPoolExecutor(8) as pool:
        going = [pool.submit(one, agent) for agent in agents]
        for _ in range(8):
            assert half.acquire(timeout=SECONDS)
        killed = random.Random(1).choice(server.workers())
        os.kill(killed, signal.SIGKILL)
        for each in going:
            assert each.result(timeout=SECONDS)["outcome"] == "completed"
    for agent in agents:
        assert_refunded_once(server, agent)
    assert server.ask("GET", "/approvals") == (200, [])

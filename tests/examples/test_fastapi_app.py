"""The web example behind its real server, spoken to over real HTTP.

The server is a process of its own: what its libraries deprecate is not ours to fail for.
"""

import json
import os
import re
import signal
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import DEVNULL, PIPE, ROOT, started

pytestmark = pytest.mark.slow
SECONDS = 60  # far more than anything here takes: a hang fails instead of hanging


class Server:
    """The example under uvicorn, on a free port, and a client of it."""

    def __init__(self, store: str = "memory:") -> None:
        self.process = started(
            *("-m", "uvicorn", "examples.fastapi_app:app", "--port", "0"),
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
                "STORE": store,
            },
            stderr=PIPE,
            stdout=DEVNULL,
        )
        assert self.process.stderr is not None
        self.log: list[str] = []
        self.url = ""
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                self.url = found[1]
                break
        assert self.url, "".join(self.log)
        # Read on, or a full pipe would hold the server up.
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,))
        self._reader.start()

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(by)
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self._reader.join(SECONDS)
            assert self.process.stderr is not None
            self.process.stderr.close()

    def open(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"content-type": "application/json", **(headers or {})}
        )
        return urllib.request.urlopen(request, timeout=SECONDS)

    def ask(
        self, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the JSON of the answer, whether it is an error or not."""
        try:
            with self.open(path, body, headers) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    @contextmanager
    def events(
        self, agent: str, after: str = "0", headers: dict[str, str] | None = None
    ) -> Iterator[Iterator[dict[str, Any]]]:
        with closing(self.open(f"/agents/{agent}/events?after={after}", headers=headers)) as answer:
            assert answer.headers.get_content_type() == "text/event-stream"
            yield _events(answer)

    def pending(self, agent: str) -> list[dict[str, Any]]:
        status, found = self.ask("/approvals")
        assert status == 200
        return [request for request in found if request["agent_id"] == agent]


def _events(lines: Any) -> Iterator[dict[str, Any]]:
    """Server-sent events as they come: fields, and an empty line at the end of each."""
    event: dict[str, Any] = {}
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line and event:
            yield event
            event = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = json.loads(value) if name == "data" else value


def until(events: Iterator[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    seen = []
    for event in events:
        seen.append(event)
        if event["event"] == kind:
            return seen
    raise AssertionError(f"the stream ended without {kind!r}: {seen}")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    assert server.stop() in (0, -signal.SIGTERM)
    log = "".join(server.log)
    assert "Application shutdown complete" in log
    assert "Traceback" not in log, log
    assert "never awaited" not in log, log


def interrupted(server: Server, agent: str) -> str:
    """Ask for a refund and return the id of the request that a person has to answer."""
    text = {"text": "Refund order 17, please.", "wait": True}
    status, outcome = server.ask(f"/agents/{agent}/messages", text)
    assert (status, outcome["outcome"]) == (200, "interrupted")
    (request,) = server.pending(agent)
    assert [request["id"]] == [asked["id"] for asked in outcome["requests"]]
    assert isinstance(request["id"], str)
    return urllib.parse.quote(request["id"], safe="")


def test_a_message_may_wait_for_the_outcome_of_its_run(server: Server) -> None:
    status, outcome = server.ask("/agents/bob/messages", {"text": "Hello!", "wait": True})
    assert (status, outcome["outcome"]) == (200, "completed")
    assert outcome["text"] == "Which order is it about?"
    status, agent = server.ask("/agents/bob")
    assert (status, agent["status"], len(agent["messages"])) == (200, "idle", 2)


def test_a_person_approves_over_http_and_the_refund_runs_as_it_was_shown(server: Server) -> None:
    """I3, I10: pending requests are listed across agents, and an answer goes by its id."""
    request = interrupted(server, "ann")
    shown = server.pending("ann")[0]
    assert shown["tool_name"] == "refund"
    assert shown["arguments"] == {"order_id": "17", "amount": 49.9}
    assert server.ask("/agents/ann")[1]["status"] == "interrupted"

    answer = f"/approvals/ann/{request}"
    status, outcome = server.ask(
        f"{answer}?wait=true", {"type": "approve", "by": "mallory"}, {"x-user": "eve"}
    )
    assert status == 200
    assert outcome["text"] == "This is what was done: refunded 49.90 for order 17"
    assert server.pending("ann") == []
    decisions = server.ask("/agents/ann")[1]["decisions"]
    assert decisions == [{"type": "approve", "by": "eve"}]


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (
            {"type": "edit", "arguments": {"order_id": "17", "amount": 5}},
            "refunded 5.00 for order 17",
        ),
        ({"type": "reject", "message": "Order 17 was never paid."}, "Order 17 was never paid."),
        ({"type": "respond", "value": "refunded by hand"}, "refunded by hand"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_each_kind_of_decision_comes_as_json(
    server: Server, decision: dict[str, Any], told: str
) -> None:
    """I3, I6."""
    agent = f"kind-{decision['type']}"
    request = interrupted(server, agent)
    status, outcome = server.ask(f"/approvals/{agent}/{request}?wait=true", decision)
    assert (status, outcome["outcome"]) == (200, "completed")
    assert told in outcome["text"]


def test_a_run_in_the_background_is_watched_live_and_decided_meanwhile(server: Server) -> None:
    """A6: one stream tells all of it, in the order of its numbers."""
    status, sent = server.ask("/agents/carol/messages", {"text": "Refund order 17"})
    assert status == 202
    assert sent["message_id"]
    with server.events("carol") as events:
        seen = until(events, "request_made")
        request = urllib.parse.quote(seen[-1]["data"]["id"], safe="")
        while seen[-1]["data"].get("status") != "interrupted":
            seen += until(events, "status_changed")
        status, _ = server.ask(f"/approvals/carol/{request}", {"type": "approve"})
        assert status in (200, 202)
        seen += until(events, "run_finished")
        assert seen[-1]["data"]["outcome"] == "completed"
    kinds = [event["event"] for event in seen]
    assert kinds.index("tool_started") < kinds.index("tool_ended")
    positions = [event["id"] for event in seen if "id" in event]
    assert positions == sorted(positions)


def test_text_comes_in_pieces_to_whoever_listens(server: Server) -> None:
    """A6: pieces have no number, so a browser that comes back does not ask for them."""
    server.ask("/agents/fay/messages", {"text": "Hello!", "wait": True})
    with server.events("fay") as events:
        until(events, "run_finished")
        server.ask("/agents/fay/messages", {"text": "Refund order 17", "wait": True})
        seen = until(events, "request_made")
    pieces = [event for event in seen if event["event"] == "text_delta"]
    assert len(pieces) > 1
    assert "".join(event["data"]["text"] for event in pieces) == "Let me see. "
    assert not any("id" in event for event in pieces)


@pytest.mark.parametrize("how", ["after", "last-event-id"])
def test_a_stream_goes_on_after_the_last_event_that_a_browser_saw(server: Server, how: str) -> None:
    """A6: no gap, no duplicate. EventSource sends the header when it comes back."""
    agent = f"again-{how}"
    server.ask(f"/agents/{agent}/messages", {"text": "Hello!", "wait": True})
    with server.events(agent) as events:
        whole = until(events, "run_finished")
    last, following = [event["id"] for event in whole if "id" in event][-2:]
    after, headers = (last, {}) if how == "after" else ("0", {"Last-Event-ID": last})
    with server.events(agent, after, headers) as events:
        assert next(events)["id"] == following


def test_the_rows_of_a_chat_screen_are_a_stream_too(server: Server) -> None:
    server.ask("/agents/ray/messages", {"text": "Hello!", "wait": True})
    with closing(server.open("/agents/ray/rows")) as answer:
        first = next(event for event in _events(answer) if "event" in event)
    assert first["event"] == "rows"
    said = [row["text"] for row in first["data"]["rows"]]
    assert said == ["Hello!", "Which order is it about?"]


def test_what_does_not_fit_is_a_4xx_that_says_why_and_a_right_answer_still_works(
    server: Server,
) -> None:
    """I5."""
    request = interrupted(server, "dave")
    answer = f"/approvals/dave/{request}"
    for decision, told in [
        ({"type": "perhaps"}, "perhaps"),
        ({}, "type"),
        ({"type": "edit"}, "edit"),
        ({"type": "edit", "arguments": {"order_id": "17", "amount": "much"}}, "amount"),
        ({"type": "approve", "why": "so"}, "'why'"),
    ]:
        status, error = server.ask(answer, decision)
        assert (status, error["error"]) == (422, "DecisionError"), decision
        assert told in error["detail"]
    status, error = server.ask("/approvals/dave/unknown", {"type": "approve"})
    assert (status, error["error"]) == (422, "DecisionError")
    assert "'unknown'" in error["detail"]

    status, outcome = server.ask(f"{answer}?wait=true", {"type": "approve"})
    assert (status, outcome["outcome"]) == (200, "completed")
    # The same answer again gives the same run, another one is too late.
    assert server.ask(f"{answer}?wait=true", {"type": "approve"}) == (200, outcome)
    status, error = server.ask(answer, {"type": "reject"})
    assert (status, error["error"]) == (409, "AlreadyDecided")
    assert "answered before" in error["detail"]


def test_unknown_agents_and_broken_messages_are_a_4xx(server: Server) -> None:
    for path in ("/agents/nobody", "/agents/nobody/events"):
        status, error = server.ask(path)
        assert status == 404
        assert "'nobody'" in error["detail"]
    assert server.ask("/approvals/nobody/1", {"type": "approve"})[0] == 404
    server.ask("/agents/erin/messages", {"text": "Hello!", "wait": True})
    assert server.ask("/agents/erin/messages", {})[0] == 422
    status, error = server.ask("/agents/erin/messages", {"text": "\ud800"})
    assert (status, error["detail"][0]["loc"]) == (422, ["body", "text"])
    status, error = server.ask("/agents/erin/events?after=-1")
    assert (status, error["detail"][0]["loc"]) == (422, ["query", "after"])
    status, error = server.ask("/agents/erin/messages", {"text": "  "})
    assert (status, error["error"]) == (400, "UsageError")
    assert "empty" in error["detail"]
    status, error = server.ask("/approvals/erin/1", {"type": "approve"})
    assert (status, error["error"]) == (422, "DecisionError")
    assert server.ask("/agents/erin")[1]["status"] == "idle"


def test_a_message_that_is_too_large_for_the_store_is_a_413(tmp_path: Path) -> None:
    server = Server(f"sqlite:///{tmp_path}/support.db")
    try:
        status, error = server.ask("/agents/frank/messages", {"text": "x" * (17 * 1024 * 1024)})
        assert (status, error["error"]) == (413, "RecordRefused")
        assert server.ask("/agents/frank/messages", {"text": "Hello!", "wait": True})[0] == 200
    finally:
        server.stop()


def test_many_agents_are_asked_at_once_and_each_is_told_apart(server: Server) -> None:
    threads = [
        threading.Thread(target=interrupted, args=(server, f"many-{n}"), daemon=True)
        for n in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    waiting = {request["agent_id"]: request["id"] for request in server.ask("/approvals")[1]}
    names = [f"many-{n}" for n in range(5)]
    assert set(names) <= set(waiting)
    assert len(set(waiting.values())) == len(waiting)
    for name in names:
        request = urllib.parse.quote(waiting[name], safe="")
        status, outcome = server.ask(f"/approvals/{name}/{request}?wait=true", {"type": "reject"})
        assert (status, outcome["outcome"]) == (200, "completed")


def test_the_server_stops_while_a_browser_still_watches() -> None:
    server = Server()
    try:
        server.ask("/agents/ann/messages", {"text": "Refund order 17", "wait": True})
        with server.events("ann") as events:
            until(events, "request_made")
            code = server.stop()
            assert code in (0, -signal.SIGTERM)
            for _ in events:
                pass  # the stream ends, too
    finally:
        server.process.kill()
    log = "".join(server.log)
    assert "Application shutdown complete" in log
    assert "Traceback" not in log, log


def test_a_server_that_was_killed_goes_on_from_its_store(tmp_path: Path) -> None:
    """I10, J10: requests stand after it, and events are read from the store."""
    store = f"sqlite:///{tmp_path}/support.db"
    first = Server(store)
    try:
        request = interrupted(first, "ann")
    finally:
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    second = Server(store)
    try:
        assert [asked["id"] for asked in second.pending("ann")] == [urllib.parse.unquote(request)]
        answer = f"/approvals/ann/{request}?wait=true"
        status, outcome = second.ask(answer, {"type": "approve"})
        assert (status, outcome["outcome"]) == (200, "completed")
        assert "refunded 49.90 for order 17" in outcome["text"]
        with second.events("ann") as events:
            kinds = [event["event"] for event in until(events, "run_finished")]
        assert kinds.count("request_made") == kinds.count("tool_ended") == 1
    finally:
        code = second.stop()
    assert code in (0, -signal.SIGTERM)
    assert "Traceback" not in "".join(second.log)


def test_its_first_page_shows_what_can_be_called(server: Server) -> None:
    with server.open("/") as answer:
        assert answer.url == f"{server.url}/docs"
        assert "Support desk" in answer.read().decode()

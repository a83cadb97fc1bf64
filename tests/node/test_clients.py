"""Clients that are not ours, under Node: what they understand, also of a server that was killed.

Rules: U11.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.support.web_server import held_port, wait_until_listening

pytestmark = [pytest.mark.node, pytest.mark.slow]

HERE = Path(__file__).parent
SECONDS = 60


class Server:
    """The server, in a process of its own."""

    def __init__(self, store: Path, port: int) -> None:
        self.store = store
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.node.server", str(self.store), str(self.port)]
        self._process = subprocess.Popen(command, cwd=HERE.parents[1])
        wait_until_listening(self._process, self.port)

    def kill(self) -> None:
        """As `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(SECONDS)

    @property
    def done(self) -> list[str]:
        """What was paid."""
        path = self.store.with_suffix(".done")
        return sorted(path.read_text(encoding="utf-8").split()) if path.exists() else []


class Node:
    """A client that runs under Node."""

    def __init__(self, script: str, url: str) -> None:
        found = shutil.which("node")
        assert found, "there is no node"
        assert (HERE / "node_modules").is_dir(), "`make test-node` installs the clients"
        self._process = subprocess.Popen(
            [found, script, url, "ann"], cwd=HERE, stdin=PIPE, stdout=PIPE, text=True
        )

    def says(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], SECONDS)
        assert readable, "the client says nothing"
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told

    def does(self, what: Mapping[str, Any]) -> dict[str, Any]:
        """Tell it what to answer; what it says then."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(what)}\n")
        self._process.stdin.flush()
        return self.says()

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with held_port() as port:
        made = Server(tmp_path / "desk.db", port)
        try:
            made.start()
            yield made
        finally:
            made.kill()


@pytest.fixture
def node(server: Server) -> Iterator[Callable[[str, str], Node]]:
    made: list[Node] = []

    def start(script: str, path: str) -> Node:
        made.append(Node(script, f"http://127.0.0.1:{server.port}{path}"))
        return made[-1]

    yield start
    for each in made:
        each.end()


def resolved(interrupt: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


def test_a_client_of_ag_ui_answers_after_the_server_was_killed(
    server: Server, node: Callable[[str, str], Node]
) -> None:
    client = node("ag_ui.mjs", "/ag-ui/")
    told = client.says()
    assert told["error"] is None
    assert told["text"] == "Let me see. "
    first, second = told["asked"]
    assert first["metadata"]["understudy"]["digest"]
    assert first["responseSchema"]["properties"]["editedArgs"]
    assert first["subagentRunId"] != second["subagentRunId"]
    assert "SUBAGENT_FINISHED" in told["types"]
    assert server.done == []

    server.kill()
    server.start()
    edited = {"approved": True, "editedArgs": {"order_id": "9"}}
    told = client.does(
        {"resume": [resolved(first, edited), {"interruptId": second["id"], "status": "cancelled"}]}
    )
    assert told["error"] is None
    assert told["asked"] == []
    assert told["text"] == "All done."
    assert told["types"].count("TOOL_CALL_RESULT") == 4
    assert "TOOL_CALL_START" not in told["types"]
    assert told["types"][-1] == "RUN_FINISHED"
    assert server.done == ["9"]

    told = client.does({})  # who has nothing new to say gets the conversation
    assert told["types"] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert told["roles"] == ["user", "assistant", "tool", "tool", "assistant"]
    assert server.done == ["9"]


def test_a_client_of_vercel_answers_after_the_server_was_killed(
    server: Server, node: Callable[[str, str], Node]
) -> None:
    client = node("vercel.mjs", "/chat/")
    told = client.says()
    assert told["error"] is None
    asked = [part for part in told["parts"] if part.get("state") == "approval-requested"]
    assert len(asked) == 2
    assert server.done == []

    first, second = (part["toolCallId"] for part in asked)
    told = client.does({first: True})
    assert told["error"].startswith("PartialResume")
    assert server.done == []

    server.kill()
    server.start()
    told = client.does({first: True, second: False})
    assert told["error"] is None
    states = {part["toolCallId"]: part["state"] for part in told["parts"] if "toolCallId" in part}
    assert states[first] == "output-available"
    assert states[second] == "output-denied"
    text = "".join(part["text"] for part in told["parts"] if part["type"] == "text")
    assert text == "Let me see. All done."
    assert server.done == ["1"]

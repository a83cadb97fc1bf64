"""Servers and a client of MCP that are not ours, under Node (M4)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted, results
from tests.support.plans import outcome_of
from tests.support.served_desk import APP, desk, who
from tests.support.web_server import held_port, served, wait_until_listening
from understudy import Agent, Runtime, approve, call, respond
from understudy.mcp import mcp_tools
from understudy.mcp.agents_server import agents_app

pytestmark = [pytest.mark.node, pytest.mark.slow]

HERE = Path(__file__).parent
SERVERS = HERE / "node_modules" / "@modelcontextprotocol"
EVERYTHING = str(SERVERS / "server-everything" / "dist" / "index.js")
FILES = str(SERVERS / "server-filesystem" / "dist" / "index.js")
SECONDS = 60


def node() -> str:
    found = shutil.which("node")
    assert found, "there is no node"
    assert SERVERS.is_dir(), "`make test-node` installs the servers"
    return found


# ----------------------------------------------------------------------- servers that are not ours


@pytest.fixture
def everything_url() -> Iterator[str]:
    with held_port() as port:
        process = subprocess.Popen(
            [node(), EVERYTHING, "streamableHttp"],
            env={**os.environ, "PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_listening(process, port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            process.wait(SECONDS)


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest) -> Any:
    if request.param == "http":
        return request.getfixturevalue("everything_url")
    return [node(), EVERYTHING, "stdio"]


async def test_tools_of_a_server_that_has_everything(everything: Any) -> None:
    tools = await mcp_tools(everything, id="everything", trust=True)
    gates = {tool.name: tool.gate is not None for tool in tools}
    assert gates["echo"] is gates["get-sum"] is False
    assert "trigger-sampling-request" not in gates  # it gets no model
    turns = by_turn(
        [call("echo", {"message": "hello"}), call("get-sum", {"a": "two", "b": 2})],
        [call("get-sum", {"a": 1, "b": 2}), call("get-tiny-image")],
        call("get-structured-content", {"location": "New York"}),
    )
    outcome = await Agent("desk", turns, tools=[*tools]).execute("go")
    parts: list[Any] = results(completed(outcome).state)
    echo, wrong, added, image, structured = parts
    assert echo.content == "Echo: hello"
    assert wrong.outcome == "failed"
    assert "a: 'two' is not of type 'number'" in str(wrong.content)
    assert added.content == "The sum of 1 and 2 is 3."
    assert any(getattr(part, "media_type", None) == "image/png" for part in image.content)
    assert set(structured.content) == {"temperature", "conditions", "humidity"}


async def test_what_a_server_that_has_everything_asks_is_asked_of_a_person(everything: Any) -> None:
    name = "trigger-elicitation-request"
    policy = {name: {"ask": False, "idempotent": True}}
    tools = await mcp_tools(everything, id="everything", include=[name], policy=policy)
    agent = Agent("desk", by_turn(call(name)), tools=[*tools])
    outcome = interrupted(await agent.execute("go"))
    (request,) = outcome.requests
    assert request.schema is not None
    assert {"name", "birthdate"} <= set(request.schema["properties"])
    answer = {"name": "Ann", "check": True}
    ended = completed(await agent.resume(outcome.state, {request.id: respond(answer)}))
    (part,) = results(ended.state)
    assert "Ann" in json.dumps(part.content)


def files(folder: Path, *, killed: bool = False) -> list[str]:
    preloaded = ["--import", str(HERE / "killed.mjs")] if killed else []
    return [node(), *preloaded, FILES, str(folder)]


@pytest.mark.parametrize("decision", ["run it again", "it was done"])
async def test_a_write_that_is_killed_in_its_middle_is_settled_by_a_person(
    tmp_path: Path, decision: str
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    file = folder / "once.txt"
    write = call("write_file", {"path": str(file), "content": "hello"})
    policy = {"write_file": {"ask": False, "idempotent": False}}
    tools = await mcp_tools(files(folder, killed=True), id="files", policy=policy)
    store = f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime([Agent("desk", by_turn(write), tools=[*tools])], store=store) as runtime:
        outcome = interrupted(await runtime.spawn("desk", id="a").run("go"))
        (request,) = outcome.requests
        assert request.kind == "doubt"
        assert file.read_text(encoding="utf-8") == "hello"

    file.write_text("changed since", encoding="utf-8")
    again = await mcp_tools(files(folder), id="files", policy=policy)
    async with Runtime([Agent("desk", by_turn(write), tools=[*again])], store=store) as runtime:
        await runtime.recover()
        given = approve() if decision == "run it again" else respond("It was written.")
        ended = completed(await runtime.get("a").resume({request.id: given}))
    (part,) = results(ended.state)
    assert part.outcome == "success"
    is_again = decision == "run it again"
    assert ("Successfully wrote" in str(part.content)) is is_again
    assert file.read_text(encoding="utf-8") == ("hello" if is_again else "changed since")


# ----------------------------------------------------------------------- a client that is not ours


def client(server: dict[str, Any], *calls: dict[str, Any]) -> dict[str, Any]:
    """The messages that the client got."""
    ran = subprocess.run(
        [node(), str(HERE / "mcp.mjs"), json.dumps(server), json.dumps(calls)],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def data_of(answer: dict[str, Any]) -> Any:
    return json.loads(answer["content"][0]["text"])


def test_a_client_uses_the_agents_over_standard_streams(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(APP, encoding="utf-8")
    server = {
        "command": sys.executable,
        "args": ["-m", "understudy", "mcp", "served:runtime"],
        "env": {**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        "cwd": str(tmp_path),
    }
    message = {"agent_id": "a", "text": "go", "agent": "desk"}
    sent = {"name": "send_message", "arguments": message}
    first = client(server, sent)
    assert first["tools"] == ["list_agents", "list_pending", "read_history", "send_message"]
    second = client(  # another process of ours has the same agents
        server,
        {"name": "list_agents", "arguments": {}},
        {"name": "decide", "arguments": {}},
    )
    listed, refused = second["answers"]
    assert [row["id"] for row in data_of(listed)["agents"]] == ["a"]
    assert refused["isError"] is True


async def test_a_client_decides_over_http_as_who_is_logged_in() -> None:
    with Runtime([desk()]) as runtime:
        interrupted(runtime.spawn("desk", id="a").run("go").get(timeout=SECONDS))
        app = agents_app(lambda: runtime, auth=who, decisions=True)
        with served(app) as url:

            def as_user(name: str, *calls: dict[str, Any]) -> list[dict[str, Any]]:
                headers = {"authorization": f"Bearer {name}"}
                answers: list[dict[str, Any]] = client(
                    {"url": f"{url}/mcp", "headers": headers}, *calls
                )["answers"]
                return answers

            (pending,) = as_user("bob", {"name": "list_pending", "arguments": {}})
            (request,) = data_of(pending)["requests"]
            arguments = {
                "agent_id": "a",
                "request_id": request["id"],
                "digest": request["digest"],
                "decision": "approve",
            }
            decide = {"name": "decide", "arguments": arguments}
            (refused,) = as_user("bob", decide)
            assert "bob may not decide" in refused["content"][0]["text"]
            (decided,) = as_user("ann", decide)
            assert data_of(decided)["by"] == "ann"
        (audit,) = completed(await outcome_of(runtime.get("a"))).state.decisions
    assert (audit.decision.type, audit.decision.by) == ("approve", "ann")

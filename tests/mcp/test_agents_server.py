"""The agents of a runtime as an MCP server, used by clients that are not ours (M7)."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastmcp.client import Client as FastClient
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import Client
from typer.testing import CliRunner

from tests.support.agents import by_turn, completed, interrupted
from tests.support.plans import outcome_of
from tests.support.programs import PIPE, started
from tests.support.served_desk import APP, desk, pay, who
from tests.support.web_server import served
from understudy import Agent, Runtime, UsageError, call, grant
from understudy.cli.app import app as command
from understudy.login import User
from understudy.mcp.agents_server import agents_app, agents_server
from understudy.middleware import SubAgent

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime([desk()]) as running:
        yield running


def data_of(result: Any) -> Any:
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


async def test_a_program_lists_reads_and_writes(runtime: Runtime) -> None:
    user = User("a program", frozenset({"read", "act"}))
    async with Client(agents_server(lambda: runtime, user=user)) as client:
        sent = {"agent_id": "a", "text": "go", "agent": "desk", "message_id": "m1"}
        for _ in range(2):
            assert data_of(await client.call_tool("send_message", sent)) == {"message_id": "m1"}
        interrupted(await outcome_of(runtime.get("a")))
        listed = data_of(await client.call_tool("list_agents", {}))
        assert [(row["id"], row["status"]) for row in listed["agents"]] == [("a", "interrupted")]
        (request,) = data_of(await client.call_tool("list_pending", {}))["requests"]
        assert (request["agent_id"], request["arguments"]) == ("a", {"amount": 3})
        page = data_of(await client.call_tool("read_history", {"agent_id": "a", "limit": 2}))
        rest = data_of(
            await client.call_tool("read_history", {"agent_id": "a", "after": page["next"]})
        )
        seen = [entry["what"] for entry in page["entries"] + rest["entries"]]
        assert "request" in seen
        assert len(seen) == len(page["entries"]) + len(rest["entries"])


async def test_what_an_agent_inside_asks_is_of_the_agent_that_is_answered() -> None:
    clerk = Agent("clerk", by_turn(call("pay", {"amount": 3}), "Paid."), tools=[pay])
    task = call("task", {"task_name": "clerk", "instructions": "go"})
    front = Agent("front", by_turn(task, "Done."), middleware=[SubAgent([clerk])])
    user = User("a program", frozenset({"read"}))
    async with Runtime([front]) as runtime:
        interrupted(await runtime.spawn("front", id="a").run("go"))
        async with Client(agents_server(lambda: runtime, user=user)) as client:
            (request,) = data_of(await client.call_tool("list_pending", {}))["requests"]
        assert (request["agent_id"], request["agent_path"]) == ("a", ["front", "clerk"])


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("list_agents", {"limit": 201}, "from 1 to 200"),
        ("list_agents", {"status": "asleep"}, "asleep"),
        ("read_history", {"agent_id": "nobody"}, "UnknownAgent"),
        ("send_message", {"agent_id": "nobody", "text": "go"}, "UnknownAgent"),
        ("send_message", {"agent_id": "a", "text": "go", "agent": "none"}, "UsageError"),
        ("send_message", {"agent_id": "a", "text": ""}, "UsageError"),
    ],
)
async def test_what_cannot_be_done_is_told(
    runtime: Runtime, name: str, arguments: dict[str, Any], told: str
) -> None:
    runtime.spawn("desk", id="a")
    user = User("a program", frozenset({"read", "act"}))
    async with Client(agents_server(lambda: runtime, user=user)) as client:
        result = await client.call_tool(name, arguments)
    assert result.is_error
    assert told in result.content[0].text  # type: ignore[union-attr]


async def test_without_the_right_nothing_is_read_or_written(runtime: Runtime) -> None:
    async with Client(agents_server(lambda: runtime, user=User("x", frozenset()))) as client:
        for name, arguments in (
            ("list_agents", {}),
            ("list_pending", {}),
            ("read_history", {"agent_id": "a"}),
            ("send_message", {"agent_id": "a", "text": "go", "agent": "desk"}),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert "x may not" in result.content[0].text  # type: ignore[union-attr]
    assert await runtime.agents() == []


async def test_nobody_decides_but_by_the_flag_and_a_login(runtime: Runtime) -> None:
    """M7."""
    everything = User("a program", frozenset({"read", "act", "decide", "admin"}))
    async with Client(agents_server(lambda: runtime, user=everything)) as client:
        names = [each.name for each in (await client.list_tools()).tools]
    assert names == ["list_agents", "list_pending", "read_history", "send_message"]
    async with Client(agents_server(lambda: runtime, user=everything, read_only=True)) as client:
        assert [t.name for t in (await client.list_tools()).tools] == names[:3]
    for options in ({"user": everything}, {"read_only": True}):
        with pytest.raises(UsageError, match="logged in"):
            agents_server(lambda: runtime, decisions=True, **options)
    for flag in ("read_only", "decisions"):
        with pytest.raises(UsageError, match=f"{flag}=.* must be True or False, got 'no'"):
            agents_server(lambda: runtime, **{flag: "no"})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="give a function"):
        agents_app(lambda: runtime, auth=None)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- over HTTP


@dataclass
class Site:
    url: str
    runtime: Runtime

    def client(self, name: str) -> FastClient[Any]:
        headers = {"authorization": f"Bearer {name}"}
        return FastClient(StreamableHttpTransport(f"{self.url}/mcp", headers=headers))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Runtime([desk()]) as runtime:
        app = agents_app(lambda: runtime, auth=who, decisions=True)
        with served(app) as url:
            yield Site(url, runtime)


async def asked(site: Site, id: str) -> Any:
    interrupted(await site.runtime.spawn("desk", id=id).run("go"))
    async with site.client("bob") as client:
        result = await client.call_tool("list_pending", {})
    rows = json.loads(result.content[0].text)["requests"]
    return next(row for row in rows if row["agent_id"] == id)


@pytest.mark.slow
async def test_a_person_who_is_logged_in_decides_in_their_name(site: Site) -> None:
    """M7."""
    request = await asked(site, "a")
    given = {
        "agent_id": "a",
        "request_id": request["id"],
        "digest": request["digest"],
        "decision": "approve",
    }
    async with site.client("bob") as client:
        refused = await client.call_tool("decide", given, raise_on_error=False)
        assert "bob may not decide" in refused.content[0].text
    async with site.client("ann") as client:
        stale = await client.call_tool("decide", {**given, "digest": "0"}, raise_on_error=False)
        assert "RequestChanged" in stale.content[0].text
        answer = {**given, "decision": "respond"}
        short = await client.call_tool("decide", answer, raise_on_error=False)
        assert "'respond' needs a `value`" in short.content[0].text
        (still,) = await site.runtime.pending()
        assert still.request.id == request["id"]
        terms: dict[str, Any] = {"seconds": 60, "hours": 1}
        odd = await client.call_tool("decide", {**given, "grant": terms}, raise_on_error=False)
        assert "hours" in odd.content[0].text
        terms = {"seconds": 60, "match": []}
        done = await client.call_tool("decide", {**given, "grant": terms})
        assert json.loads(done.content[0].text)["by"] == "ann"
    outcome = completed(await outcome_of(site.runtime.get("a")))
    (audit,) = outcome.state.decisions
    assert (audit.decision.type, audit.decision.by) == ("approve", "ann")
    assert audit.decision.grant == grant(until=60, match=[])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer eve"}, 401),
        ({"authorization": "Bearer ann", "origin": "https://evil.example"}, 403),
        ({"authorization": "Bearer ann", "host": "evil.example"}, 421),
    ],
)
async def test_who_is_not_let_in_gets_nothing(
    site: Site, headers: dict[str, str], status: int
) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{site.url}/mcp", json=body, headers={**accept, **headers})
    assert answer.status_code == status
    assert "list_agents" not in answer.text


# ---------------------------------------------------------------------- on the command line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--decisions"], "nobody logs in over stdin"),
        (["--auth", "x:y"], "nobody logs in over stdin"),
        (["--http", "--decisions"], "--decisions needs --auth"),
        (["--http", "--decisions", "--auth", "x:y", "--read-only"], "exclude each other"),
    ],
)
def test_decisions_that_no_person_would_take_are_refused(arguments: list[str], told: str) -> None:
    """M7."""
    result = CliRunner().invoke(command, ["mcp", "no.such:thing", *arguments])
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.slow
async def test_a_program_uses_the_agents_over_standard_streams(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(APP)
    arguments = ["-m", "understudy", "mcp", "served:runtime"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for turn in range(2):  # the agents outlive the process
        transport = StdioTransport(
            sys.executable, arguments, env=env, cwd=str(tmp_path), keep_alive=False
        )
        async with FastClient(transport) as client:
            assert "decide" not in {each.name for each in await client.list_tools()}
            if turn == 0:
                sent = {"agent_id": "a", "text": "go", "agent": "desk"}
                await client.call_tool("send_message", sent)
            result = await client.call_tool("list_agents", {})
            rows = json.loads(result.content[0].text)["agents"]
            assert [row["id"] for row in rows] == ["a"]


@pytest.mark.slow
def test_a_process_that_is_told_to_end_ends(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(APP)
    command = ("-m", "understudy", "mcp", "served:runtime")
    with started(*command, cwd=tmp_path, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        process.stdin.write(json.dumps(ping) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


@pytest.mark.slow
def test_over_http_the_token_that_is_printed_lets_one_in(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(APP)
    arguments = ("mcp", "served:runtime", "--http", "--port", "0", "--json")
    with started("-m", "understudy", *arguments, cwd=tmp_path, stdout=PIPE) as process:
        assert process.stdout is not None
        text = ""
        while True:
            text += process.stdout.readline()
            try:
                told = json.loads(text)
                break
            except ValueError:
                assert process.poll() is None

        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {"accept": "application/json, text/event-stream"}
        assert httpx.post(told["url"], json=body, headers=headers).status_code == 401
        headers["authorization"] = f"Bearer {told['token']}"
        assert httpx.post(told["url"], json=body, headers=headers).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0

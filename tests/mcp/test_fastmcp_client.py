"""An `MCPToolset` of Pydantic AI and a client of FastMCP as the server: what holds of any holds.

Rules: M5, M6.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fastmcp.client import Client
from fastmcp.client.transports import ClientTransport, StdioTransport
from fastmcp.client.transports.base import TransportOptions
from fastmcp.client.transports.config import MCPConfigTransport
from mcp import ClientSession
from pydantic_ai.mcp import MCPToolset

from tests.support import raw_mcp_server
from tests.support.agents import by_turn, completed, contents, desk, interrupted, reloaded
from tests.support.processes import is_alive
from tests.support.raw_mcp_server import (
    SURE,
    Asking,
    Closed,
    Failing,
    RawServer,
    a_tool,
    lines,
    text,
)
from understudy import Agent, Runtime, approve, call, respond
from understudy.mcp import mcp_tools


class Raw(ClientTransport):
    """To a server of this process."""

    def __init__(self, server: RawServer) -> None:
        self.server = server

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **options: Any
    ) -> AsyncGenerator[ClientSession, None]:
        session_class = (transport_options or TransportOptions()).session_class
        async with (
            self.server.transport() as (read, write),
            session_class(read, write, **options) as session,
        ):
            yield session


def client(server: RawServer, **options: Any) -> Client[Any]:
    return Client(Raw(server), **options)


def toolset(server: RawServer) -> MCPToolset[Any]:
    return MCPToolset(Client(Raw(server)))


@pytest.mark.parametrize("made", [client, toolset])
async def test_what_its_server_asks_is_asked_of_a_person(made: Any) -> None:
    server = Asking("Sure?")
    policy = {"pay": {"ask": False, "idempotent": True}}
    agent = desk(call("pay"), tools=[*await mcp_tools(made(server), id="shop", policy=policy)])
    outcome = interrupted(await agent.execute("go"))
    (request,) = outcome.requests
    assert (request.payload["question"], request.schema) == ("Sure?", SURE)
    answer = {request.id: respond({"sure": True})}
    ended = completed(await agent.resume(reloaded(outcome.state), answer))
    assert contents(ended.state) == [("success", "paid")]


async def test_a_client_with_a_handler_of_its_own_answers_by_it() -> None:
    async def yes(message: str, *_: Any) -> Any:
        return {"sure": True}

    server = Asking("Sure?")
    made = client(server, elicitation_handler=yes)
    tools = await mcp_tools(made, id="shop", policy={"pay": {"ask": False}})
    state = completed(await desk(call("pay"), tools=[*tools]).execute("go")).state
    assert contents(state) == [("success", "paid")]


@pytest.mark.parametrize("made", [client, toolset])
async def test_a_list_that_has_changed_is_noticed(made: Any) -> None:
    async def change(server: RawServer) -> Any:
        server.pages = [[a_tool("pay", description="Another one.")]]
        await server.send({"method": "notifications/tools/list_changed"})
        return text("paid")

    server = Failing(change)
    tools = await mcp_tools(made(server), id="shop", policy={"pay": {"ask": False}})
    agent = desk(call("pay"), call("pay"), tools=[*tools])
    first, second = contents(completed(await agent.execute("go")).state)
    assert first == ("success", "paid")
    assert "has changed its tool 'pay'" in second[1]
    assert len(server.calls) == 1


@pytest.mark.parametrize("made", [client, toolset])
async def test_a_lost_connection_is_opened_anew_and_leaves_one_doubt(made: Any) -> None:
    """M5."""
    server = Failing(Closed)
    policy = {"pay": {"ask": False, "on_unknown": "tell"}}
    tools = await mcp_tools(made(server), id="shop", policy=policy)
    async with Runtime([desk(call("pay"), tools=[*tools])]) as runtime:
        one = completed(await runtime.spawn("desk", id="a").run("go"))
        two = completed(await runtime.spawn("desk", id="b").run("go"))
    assert [contents(each.state)[0][0] for each in (one, two)] == ["interrupted", "success"]
    assert (server.opened, server.closed) == (3, 3)


def of_a_command(*arguments: str) -> Client[Any]:
    return Client(StdioTransport(sys.executable, list(arguments)))


def of_a_config(*arguments: str) -> Client[Any]:
    server = {"command": sys.executable, "args": list(arguments)}
    return Client({"mcpServers": {"raw": server}})


@pytest.mark.parametrize("made", [of_a_command, of_a_config])
async def test_its_process_ends_with_the_runtime_and_not_before(made: Any, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    its = made("-S", "-E", raw_mcp_server.__file__, str(log), "dies_once")
    tools = await mcp_tools(its, id="raw", policy={"dies_once": {"ask": False}})
    async with Runtime([Agent("a", by_turn(call("dies_once")), tools=[*tools])]) as runtime:
        ref = runtime.spawn("a")
        outcome = interrupted(await ref.run("go"))
        assert outcome.requests[0].kind == "doubt"
        completed(await ref.resume({outcome.requests[0].id: approve()}))
        (_, key), (pid, same_key) = lines(log)
        assert key == same_key
        assert is_alive(pid)
    assert not is_alive(pid)


class TwoServers(MCPConfigTransport):
    """A config of two servers, both of them one of this process."""

    modes: ClassVar[list[Any]] = []

    @property
    def legacy_only(self) -> bool:  # type: ignore[override]
        """As one of its servers makes it, once it is connected."""
        return bool(self.modes)

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **options: Any
    ) -> AsyncGenerator[ClientSession, None]:
        assert transport_options is not None
        self.modes.append(transport_options.backend_mode)
        raw = Raw(RawServer(a_tool("one_pay")))
        async with raw.connect_session(transport_options=transport_options, **options) as session:
            yield session


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_servers_of_a_config_are_asked_in_the_mode_of_its_client(mode: Any) -> None:
    server = {"url": "http://127.0.0.1:1/mcp"}
    config = {"mcpServers": {"one": server, "two": server}}
    TwoServers.modes.clear()
    tools = await mcp_tools(Client(TwoServers(config), mode=mode), id="both")
    assert [tool.name for tool in tools] == ["one_pay"]
    assert TwoServers.modes == [mode]

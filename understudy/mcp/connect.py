"""`connect`: opens a connection to an MCP server of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp import Client, ClientSession, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from understudy._base.error_texts import message_of
from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.mcp.connection import CONNECT_SECONDS, Connection
from understudy.mcp.http_client import MAX_ANSWER, HttpClient
from understudy.mcp.listed_tool import NotReached
from understudy.mcp.process import process_transport
from understudy.mcp.reading import WatchedTransport
from understudy.mcp.tasks import TASKS

if TYPE_CHECKING:
    from mcp.client import Transport


@asynccontextmanager
async def connect(given: Any, server: str, headers: dict[str, str]) -> AsyncIterator[Connection]:
    """Open a connection, for `McpServer.open`.

    Args:
        given: the server, as in `mcp_tools`.
        server: the name of the server in errors.
        headers: the headers, for a URL.

    """
    connection = Connection(server)
    failed: BaseException | None = None
    try:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    connection.session = await _session(given, headers, connection, stack)
                    await connection.read_list()
            except (Exception, BaseExceptionGroup) as error:
                failed = error  # it is raised outside, because a task group would wrap it
            else:
                yield connection
    except (Exception, BaseExceptionGroup) as error:
        if failed is None:
            failed = error
    finally:
        connection.is_lost = True
    if failed is None or isinstance(failed, UsageError):
        if failed is not None:
            raise failed
        return
    if isinstance(failed, TimeoutError):
        raise NotReached(f"{server} did not answer within {CONNECT_SECONDS:g} seconds")
    raise NotReached(f"{server} cannot be reached: {_why(failed)}") from failed


async def _session(
    given: Any, headers: dict[str, str], connection: Connection, stack: AsyncExitStack
) -> ClientSession:
    client = getattr(given, "client", given)  # of an MCPToolset
    if hasattr(client, "new") and hasattr(client, "transport"):  # of FastMCP
        from understudy.mcp.fastmcp_client import watched

        clone = watched(client.new(), connection)
        return (await stack.enter_async_context(clone)).session  # type: ignore[no-any-return]
    if isinstance(given, (Server, MCPServer)):
        target: Any = given
    else:
        transport = await _transport(given, headers, connection, stack)
        target = WatchedTransport(transport, connection.on_end)
    client = Client(
        target,
        elicitation_callback=connection.on_elicitation,
        message_handler=connection.on_message,
        log_level="info",
        cache=None,
        extensions=[advertise(TASKS)],
    )
    return (await stack.enter_async_context(client)).session


async def _transport(
    given: Any, headers: dict[str, str], connection: Connection, stack: AsyncExitStack
) -> Transport:
    if isinstance(given, str):
        http = HttpClient(connection.on_refusal, CONNECT_SECONDS, headers=headers)
        await stack.enter_async_context(http)
        return streamable_http_client(given, http_client=http, max_sse_event_size=MAX_ANSWER)
    if isinstance(given, StdioServerParameters):
        return process_transport(given)
    if callable(given):
        return given()  # type: ignore[no-any-return]
    if isinstance(given, (list, tuple)):
        return process_transport(StdioServerParameters(command=given[0], args=list(given[1:])))
    raise UsageError(
        f"{connection.server}: give a URL, a command as a list, a server or a toolset, got "
        f"{shown(given)}"
    )


def _why(error: BaseException) -> str:
    """The text of the errors in a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_why(each) for each in error.exceptions))
    return message_of(error) or type(error).__name__

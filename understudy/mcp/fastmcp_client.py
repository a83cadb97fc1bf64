"""A FastMCP client that reports its server's questions, changes and end to a connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastmcp.client.transports import ClientTransport, StdioTransport
from fastmcp.client.transports.base import TransportOptions
from fastmcp.client.transports.config import MCPConfigTransport

if TYPE_CHECKING:
    from mcp import ClientSession

    from understudy.mcp.connection import Connection


def watched(client: Any, connection: Connection) -> Any:
    """The client, whose next session reports the server's messages to the connection.

    Args:
        client: a FastMCP client that is not connected or shared.
        connection: the connection of this session.

    """
    client.transport = _Watched(_own(client.transport), client.mode, connection)
    return client


def _own(transport: ClientTransport) -> ClientTransport:
    """The transport with separate processes, which end with it.

    Otherwise a process is shared with the application's client, and lives on when the connection
    has ended (test_its_process_ends_with_the_runtime_and_not_before).
    """
    if isinstance(transport, StdioTransport):
        return StdioTransport(
            transport.command,
            transport.args,
            env=transport.env,
            cwd=transport.cwd,
            keep_alive=False,
            log_file=transport.log_file,
        )
    if isinstance(transport, MCPConfigTransport):
        return type(transport)(transport.config, name_as_prefix=transport.name_as_prefix)
    return transport


class _Watched(ClientTransport):
    """A transport that adds the callbacks of a connection to its client's callbacks."""

    def __init__(self, transport: ClientTransport, mode: Any, connection: Connection) -> None:
        self._transport = transport
        self._mode = mode
        self._connection = connection

    @property
    def legacy_only(self) -> bool:  # type: ignore[override]  # as theirs: known when connected
        return self._transport.legacy_only

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **options: Any
    ) -> AsyncGenerator[ClientSession, None]:
        own = options.get("message_handler")

        async def on_message(message: Any) -> None:
            await self._connection.on_message(message)
            if own is not None:
                await own(message)

        options["message_handler"] = on_message
        if options.get("elicitation_callback") is None:  # otherwise the application answers
            options["elicitation_callback"] = self._connection.on_elicitation
        given = transport_options or TransportOptions()
        for_session = replace(given, session_class=_telling(given.session_class, self._connection))
        is_config = isinstance(self._transport, MCPConfigTransport)
        if is_config:  # a client does this only for that class of transport, which this one is not
            for_session = replace(for_session, backend_mode=self._mode)
        try:
            async with self._transport.connect_session(
                transport_options=for_session, **options
            ) as session:
                yield session
        finally:
            if is_config:  # its processes are kept alive otherwise
                await self._transport.close()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        await self._transport.close()  # type: ignore[no-untyped-call]

    def get_session_id(self) -> str | None:
        return self._transport.get_session_id()


def _telling(session_class: type[ClientSession], connection: Connection) -> type[ClientSession]:
    """The session class that reports when the server has closed the connection."""
    from understudy.mcp.reading import Reading

    class Telling(session_class):  # type: ignore[valid-type,misc]  # known at run time
        def __init__(self, read_stream: Any = None, *streams: Any, **options: Any) -> None:
            if read_stream is not None:
                read_stream = Reading(read_stream, connection.on_end)
            super().__init__(read_stream, *streams, **options)

    return Telling

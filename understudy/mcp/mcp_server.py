"""`McpServer`: an MCP server as a source of tools, which opens a `Connection`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from understudy._base.json_values import checked_text, shown
from understudy.errors import UsageError

if TYPE_CHECKING:
    from understudy.mcp.connection import Connection


class McpServer:
    """An MCP server as a source of tools. All its users share the connection.

    Args:
        server: as in `mcp_tools`.
        id: the name of the server.
        headers: the headers, for a URL.

    Raises:
        UsageError: if `server` is of no known kind.

    """

    def __init__(self, server: Any, *, id: str, headers: Mapping[str, str] | None = None) -> None:
        self.id: str = checked_text(id, what="mcp_tools: `id`")
        self.server = server
        self.headers: dict[str, str] = dict(headers or {})
        is_url = isinstance(server, str)
        is_command = isinstance(server, Sequence) and not isinstance(server, (str, bytes))
        if is_url and not server.startswith(("http://", "https://")):
            raise UsageError(
                f"{self}: {server!r} is no URL of http or https; a command is a list, such as "
                '["npx", "-y", "some-server"]'
            )
        if is_command and (not server or not all(isinstance(word, str) for word in server)):
            raise UsageError(f"{self}: a command must be a list of texts, got {shown(server)}")
        if server is None or isinstance(server, (bytes, int, float, Mapping)):
            raise UsageError(
                f"{self}: give a URL, a command as a list, a server or a toolset, got "
                f"{shown(server)}"
            )
        if headers and not is_url:
            raise UsageError(f"{self}: `headers` are for a URL: this one is no URL")

    def open(self) -> AbstractAsyncContextManager[Connection]:
        """Connect, and list the tools.

        Raises:
            ConnectionError: if the server cannot be reached, or does not speak MCP.
            UsageError: if its list is too long, or has two tools of one name.

        """
        from understudy.mcp.connect import connect

        return connect(self.server, repr(self), self.headers)

    def __repr__(self) -> str:
        return f"MCP server {self.id!r}"

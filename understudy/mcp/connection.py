"""`Connection`: an open connection to an MCP server, its list of tools, and calls over it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp import Client, ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from pydantic import TypeAdapter, ValidationError

from understudy._base.causes import first_lines, message_of
from understudy._base.json_values import digest, shown
from understudy.errors import UsageError
from understudy.mcp.http_client import MAX_ANSWER, HttpClient
from understudy.mcp.listed_tool import MAX_LISTED, MAX_PAGES, ListedTool, listed_tools
from understudy.tools import OutcomeUnknown, ToolFailed

if TYPE_CHECKING:
    from mcp.client import Transport

    from understudy.mcp.mcp_server import McpServer

CONNECT_SECONDS = 30.0
"""How long it may take to connect and to list the tools."""
CALL_KEY = "understudy/call_key"
"""Under which `_meta` of a call has its key, by which a server can know it again."""
REFUSED = frozenset((types.INVALID_PARAMS, types.METHOD_NOT_FOUND))
"""Errors of a server that has not begun with the call."""
UNCLEAR = frozenset(
    (
        types.CONNECTION_CLOSED,
        types.REQUEST_TIMEOUT,
        types.INTERNAL_ERROR,
        types.PARSE_ERROR,
        types.INVALID_REQUEST,  # the SDK's own, for an answer that is none
    )
)
"""Errors after which nobody knows what the call has done."""
Answer = types.CallToolResult | types.InputRequiredResult
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


class NotSent(ConnectionError):
    """The connection was lost before the call was sent."""


class LiveCall:
    """A call that is under way, and what the server asks in its middle.

    Args:
        answers: to questions that it asked before, by the digests of these.

    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[types.ElicitRequestParams] = []


class Connection:
    """A session with an MCP server."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.session: ClientSession
        self.listed: dict[str, ListedTool] = {}
        self.is_lost: bool = False
        """Known to be: what is called over it now was not sent."""
        self._list_is_stale = False
        self._live: list[LiveCall] = []
        self._refusals: dict[str, int] = {}
        """By call key: how the server answered at the level of HTTP; 0: it was not reached."""

    # ------------------------------------------------------------------------ tools

    async def read_list(self) -> None:
        """Read the list of tools, all pages of it.

        Raises:
            UsageError: if it is too long, or has two different tools of one name.

        """
        for _ in range(3):  # it may change while it is read
            self._list_is_stale = False
            self.listed = listed_tools(await self._pages(), server=repr(self.server))
            if not self._list_is_stale:
                return

    async def _pages(self) -> list[types.Tool]:
        tools: list[types.Tool] = []
        cursors: list[str] = []
        while len(tools) <= 2 * MAX_LISTED and len(cursors) <= MAX_PAGES:  # pages may overlap
            params = types.PaginatedRequestParams(cursor=cursors[-1]) if cursors else None
            page = await self.session.list_tools(params=params)
            tools += page.tools
            if page.next_cursor is None:
                return tools
            if page.next_cursor in cursors:
                break
            cursors.append(page.next_cursor)
        raise UsageError(f"{self.server} lists more than {MAX_LISTED:,} tools, or has no last page")

    async def check_unchanged(self, tool: ListedTool) -> None:
        """Check that the server still lists the tool as it was.

        Raises:
            ToolFailed: if it does not.

        """
        if self._list_is_stale:
            await self.read_list()
        now = self.listed.get(tool.name)
        if now is None:
            raise ToolFailed(
                f"{self.server} has no tool {tool.name!r} any more. It was not called."
            )
        if now.digest != tool.digest:
            raise ToolFailed(
                f"{self.server} has changed its tool {tool.name!r} since it was listed. It was not "
                "called: the application has to list the tools of this server again."
            )

    # ------------------------------------------------------------------------ calls

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        call_key: str,
        live: LiveCall,
        responses: types.InputResponses | None = None,
        state: str | None = None,
    ) -> Answer:
        """Call a tool of the server, once.

        Args:
            name: of the tool.
            arguments: its arguments.
            call_key: goes along in `_meta`.
            live: what the server asks in its middle is left there.
            responses: to what it asked before.
            state: what it said then, to be sent back.

        Raises:
            NotSent: if the server was not reached, so that the call has done nothing.
            ToolFailed: if the server refuses the call.
            OutcomeUnknown: if the connection was lost, or what came is no answer.

        """
        if self.is_lost:
            raise NotSent(f"the connection to {self.server} was lost")
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=name,
                arguments=arguments,
                input_responses=responses,
                request_state=state,
                _meta={CALL_KEY: call_key},  # type: ignore[arg-type]  # any keys are allowed
            )
        )
        with self._under_way(live), self._explained(call_key):
            return await self.session.send_request(request, _ANSWER)

    @contextmanager
    def _under_way(self, live: LiveCall) -> Iterator[None]:
        self._live.append(live)
        try:
            yield
        finally:
            self._live.remove(live)

    @contextmanager
    def _explained(self, call_key: str) -> Iterator[None]:
        try:
            yield
        except MCPError as error:
            status = self._refusals.pop(call_key, None)
            if status == 0 or status == 404:  # the server, or its session, is gone
                self.is_lost = True
                raise NotSent(f"{self.server} was not reached") from error
            what = f"{self.server}: {first_lines(error.error.message)}"
            if status is not None and status < 500:
                raise ToolFailed(f"{self.server} refused the call: HTTP {status}") from error
            if error.error.code == types.CONNECTION_CLOSED:
                self.is_lost = True
            if error.error.code in REFUSED or error.error.code not in UNCLEAR:
                raise ToolFailed(what) from error
            raise OutcomeUnknown(what) from error
        except ValidationError as error:
            raise OutcomeUnknown(f"{self.server} sent what is no result of a tool") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as error:
            self.is_lost = True
            raise OutcomeUnknown(f"the connection to {self.server} was lost") from error

    # ------------------------------------------------------------- what the server says

    async def on_message(self, message: object) -> None:
        """What the server tells, unasked."""
        if isinstance(message, types.ToolListChangedNotification):
            self._list_is_stale = True

    async def on_elicitation(
        self, context: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """A question in the middle of a call: answered if a person has, else cancelled for now.

        With several calls under way nobody knows which of them asks.
        """
        if len(self._live) != 1:
            return types.ElicitResult(action="cancel")
        (live,) = self._live
        key = question_key(params)
        if key in live.answers:
            return accepted(params, live.answers[key])
        live.asked.append(params)
        return types.ElicitResult(action="cancel")

    def on_end(self) -> None:
        """The server has closed the connection."""
        self.is_lost = True

    def on_refusal(self, body: bytes, status: int) -> None:
        """A POST was answered by an error of HTTP, or did not reach the server (0)."""
        try:
            call_key = json.loads(body)["params"]["_meta"][CALL_KEY]
        except (ValueError, KeyError, TypeError):
            return
        self._refusals[str(call_key)] = status


def question_key(params: types.ElicitRequestParams) -> str:
    """What makes a question the same when it is asked again."""
    if isinstance(params, types.ElicitRequestURLParams):
        return digest(["url", params.message, params.url])
    return digest(["form", params.message, params.requested_schema])


def accepted(params: types.ElicitRequestParams, answer: Any) -> types.ElicitResult:
    """The answer of a person, for the server."""
    content = answer if isinstance(params, types.ElicitRequestFormParams) else None
    return types.ElicitResult(action="accept", content=content)


# ------------------------------------------------------------------------------- opening


@asynccontextmanager
async def connect(server: McpServer) -> AsyncIterator[Connection]:
    """As `McpServer.open`."""
    connection = Connection(server)
    failed: BaseException | None = None
    try:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    connection.session = await _session(connection, stack)
                    await connection.read_list()
            except (Exception, BaseExceptionGroup) as error:
                failed = error  # raised outside: a task group here would put it into a group
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
        raise ConnectionError(f"{server} did not answer within {CONNECT_SECONDS:g} seconds")
    raise ConnectionError(f"{server} cannot be reached: {_why(failed)}") from failed


async def _session(connection: Connection, stack: AsyncExitStack) -> ClientSession:
    given = connection.server.server
    client = getattr(given, "client", given)  # of an MCPToolset
    if hasattr(client, "new") and hasattr(client, "transport"):  # of FastMCP
        from understudy.mcp.fastmcp_client import watched

        clone = watched(client.new(), connection)
        return (await stack.enter_async_context(clone)).session  # type: ignore[no-any-return]
    if isinstance(given, (Server, MCPServer)):
        target: Any = given
    else:
        target = _Watched(await _transport(connection, stack), connection.on_end)
    client = Client(
        target,
        elicitation_callback=connection.on_elicitation,
        message_handler=connection.on_message,
        cache=None,
    )
    return (await stack.enter_async_context(client)).session


async def _transport(connection: Connection, stack: AsyncExitStack) -> Transport:
    server = connection.server
    given = server.server
    if isinstance(given, str):
        http = HttpClient(connection.on_refusal, CONNECT_SECONDS, headers=server.headers)
        await stack.enter_async_context(http)
        return streamable_http_client(given, http_client=http, max_sse_event_size=MAX_ANSWER)
    if isinstance(given, StdioServerParameters):
        return stdio_client(given)
    if callable(given):
        return given()  # type: ignore[no-any-return]
    if isinstance(given, (list, tuple)):
        return stdio_client(StdioServerParameters(command=given[0], args=list(given[1:])))
    raise UsageError(
        f"{server}: give a URL, a command as a list, a server or a toolset, got {shown(given)}"
    )


class _Watched:
    """A transport that tells when the server has closed it."""

    def __init__(self, transport: Any, on_end: Callable[[], None]) -> None:
        self._transport = transport
        self._on_end = on_end

    async def __aenter__(self) -> tuple[Any, Any]:
        read, write = await self._transport.__aenter__()
        return Reading(read, self._on_end), write

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, traceback)  # type: ignore[no-any-return]


class Reading:
    """The stream of what a server sends."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream = stream
        self._on_end = on_end

    @property
    def last_context(self) -> Any:
        """Of who has sent what came last."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._on_end()
            raise

    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Reading:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, traceback)  # type: ignore[no-any-return]


def _why(error: BaseException) -> str:
    """What went wrong, of the errors in a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_why(each) for each in error.exceptions))
    return message_of(error) or type(error).__name__

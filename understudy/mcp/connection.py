"""`Connection`: an open connection to an MCP server, its list of tools, and calls over it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from understudy._base.error_texts import first_lines
from understudy._base.json_values import digest, jsonable
from understudy.errors import UsageError
from understudy.mcp.listed_tool import MAX_LISTED, MAX_PAGES, ListedTool, NotReached, listed_tools
from understudy.mcp.tasks import (
    CreatedTask,
    GetTask,
    Task,
    TaskParams,
    UpdateTask,
    UpdateTaskParams,
)
from understudy.tools import OutcomeUnknown, ToolContext, ToolFailed

CALL_KEY = "understudy/call_key"
"""The name in `_meta` of the key of a call, by which a server can know the call again."""
REFUSED = frozenset((types.INVALID_PARAMS, types.METHOD_NOT_FOUND))
"""The codes of errors before the server has begun the call."""
UNCLEAR = frozenset(
    (
        types.CONNECTION_CLOSED,
        types.REQUEST_TIMEOUT,
        types.INTERNAL_ERROR,
        types.PARSE_ERROR,
        types.INVALID_REQUEST,  # the SDK's own, for an answer that is none
    )
)
"""The codes of errors after which nobody knows what the call has done."""
Answer = types.CallToolResult | types.InputRequiredResult | CreatedTask
CONNECT_SECONDS = 30.0
"""The maximum seconds to connect and list the tools."""
MAX_MESSAGE = 2_000
"""The maximum characters of a message that a server sends in the middle of a call."""
logger: logging.Logger = logging.getLogger(__name__)
R = TypeVar("R", bound=types.Result)
_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


class NotSent(NotReached):
    """The error of a connection that was lost before the call was sent."""


class LiveCall:
    """A call that is under way, with the questions and messages of the server during it.

    Args:
        ctx: the context of the call, whose subscribers get the server's messages.
        answers: the answers to earlier questions, by the digests of the questions.
        progress_extends: whether the time limit begins anew with each progress.

    """

    def __init__(
        self, ctx: ToolContext, answers: dict[str, Any], *, progress_extends: bool
    ) -> None:
        self.answers = answers
        self.asked: list[types.ElicitRequestParams] = []
        self._ctx = ctx
        self._progress_extends = progress_extends

    def begin(self) -> None:
        """Note that the call is sent now: its time limit counts from here."""
        self._ctx.restart_timeout()

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a progress report of the server."""
        if self._progress_extends:
            self._ctx.restart_timeout()
        of = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        text = message if message is None else _shortened(message)
        self._ctx.emit(
            {
                "progress": progress,
                "total": total,
                "message": text,
                "display": f"{of}: {text}" if text else of,
            }
        )

    def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Take a log message of the server during the call."""
        data = _shortened(params.data)
        message = data if isinstance(data, str) else to_json(data).decode()
        self._ctx.emit(
            {
                "log": params.level,
                "logger": params.logger,
                "message": data,
                "display": f"{params.level}: {message}",
            }
        )


def _shortened(message: object) -> Any:
    """A server's message as JSON of a bounded size."""
    data = jsonable(message)
    text = data if isinstance(data, str) else to_json(data).decode()
    return data if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."


class Connection:
    """A session with an MCP server.

    Args:
        server: the name of the server in errors.

    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.session: ClientSession
        self.listed: dict[str, ListedTool] = {}
        self.is_lost: bool = False
        """Whether the connection is known to be lost: then a call is not sent."""
        self._list_is_stale = False
        self._live: list[LiveCall] = []
        self._refusals: dict[str, int] = {}
        """The HTTP status of refused calls, by call key; 0 if the server was not reached."""

    # ------------------------------------------------------------------------ tools

    async def read_list(self) -> None:
        """Read the list of tools, all pages of it.

        Raises:
            UsageError: if it is too long, or has two different tools of one name.

        """
        for _ in range(3):  # the list may change while it is read
            self._list_is_stale = False
            self.listed = listed_tools(await self._pages(), server=self.server)
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
            ToolFailed: if it lists another tool, or none.

        """
        if self._list_is_stale:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self.read_list()
            except TimeoutError:
                self.is_lost = True
                raise NotReached(
                    f"{self.server} did not list its tools within {CONNECT_SECONDS:g} seconds"
                ) from None
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
            call_key: the key of the call, sent in `_meta`.
            live: the live call, which gets the questions of the server.
            responses: the responses to its earlier questions.
            state: the state that came with the questions, to be sent back.

        Raises:
            NotSent: if the server was not reached, so that the call has done nothing.
            ToolFailed: if the server refuses the call.
            OutcomeUnknown: if the connection was lost, or the answer is invalid.

        """
        if self.is_lost:
            raise NotSent(f"the connection to {self.server} was lost")
        live.begin()
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
            return await self.session.send_request(
                request, _ANSWER, progress_callback=live.on_progress
            )

    async def task(self, task_id: str) -> Task:
        """The state of a call that has become a task.

        Raises:
            NotSent: if the server was not reached.
            OutcomeUnknown: if the server does not know the task any more, or the answer is invalid.

        """
        return await self._about_task(GetTask(params=TaskParams(task_id=task_id)), Task)

    async def answer_task(self, task_id: str, responses: types.InputResponses) -> None:
        """Answer the questions of the server about a task. The server ignores repeated answers.

        Raises:
            NotSent, OutcomeUnknown: as `task` does.

        """
        params = UpdateTaskParams(task_id=task_id, input_responses=responses)
        await self._about_task(UpdateTask(params=params), types.EmptyResult)

    async def _about_task(self, request: types.Request[Any, Any], result: type[R]) -> R:
        if self.is_lost:
            raise NotSent(f"the connection to {self.server} was lost")
        try:
            with self._explained(""):
                return await self.session.send_request(request, result)
        except (ToolFailed, OutcomeUnknown) as error:
            if self.is_lost:
                raise NotSent(f"{self.server} was not reached") from error
            raise OutcomeUnknown(f"{self.server} says no more of the call: {error}") from error

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
            status = self._refusals.get(call_key)
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
        finally:  # also after a cancellation: the next attempt has the same key
            self._refusals.pop(call_key, None)

    # ------------------------------------------------------------- what the server says

    async def on_message(self, message: object) -> None:
        """Take an unasked message of the server."""
        if isinstance(message, types.ToolListChangedNotification):
            self._list_is_stale = True
        elif isinstance(message, types.LoggingMessageNotification):
            # With several calls under way, nobody knows which call it is about.
            if len(self._live) == 1:
                self._live[0].on_log(message.params)
            else:
                logger.info("%s: %s: %s", self.server, message.params.level, message.params.data)

    async def on_elicitation(
        self, context: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Take a question during a call: it is answered if a person has answered, else cancelled
        for now.

        With several calls under way, nobody knows which of them asks.
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
        """Note that the server has closed the connection."""
        self.is_lost = True

    def on_refusal(self, body: bytes, status: int) -> None:
        """Note that a POST got an HTTP error, or did not reach the server (0)."""
        try:
            call_key = json.loads(body)["params"]["_meta"][CALL_KEY]
        except (ValueError, KeyError, TypeError):
            return
        self._refusals[str(call_key)] = status


def question_key(params: types.ElicitRequestParams) -> str:
    """The key of a question. It is the same when the question is asked again."""
    if isinstance(params, types.ElicitRequestURLParams):
        return digest(["url", params.message, params.url])
    return digest(["form", params.message, params.requested_schema])


def accepted(params: types.ElicitRequestParams, answer: Any) -> types.ElicitResult:
    """The answer of a person, for the server."""
    content = answer if isinstance(params, types.ElicitRequestFormParams) else None
    return types.ElicitResult(action="accept", content=content)

"""A call of a tool of an MCP server: its questions, its answer, and its doubts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import partial
from typing import Any

import mcp_types as types
from pydantic_ai.messages import BinaryContent
from pydantic_core import from_json, to_json

from understudy.errors import UsageError
from understudy.interrupts import Interrupt
from understudy.mcp.connection import (
    Connection,
    LiveCall,
    NotSent,
    accepted,
    question_key,
)
from understudy.mcp.http_client import MAX_ANSWER
from understudy.mcp.listed_tool import ListedTool
from understudy.mcp.mcp_server import McpServer
from understudy.mcp.tasks import CreatedTask, Task
from understudy.tools import ToolContext, ToolFailed
from understudy.tools.result import RemoteToolError, ResultLost

LONGEST_PAUSE = 300.0
"""The maximum seconds between two looks at a long task, unless its server wants more."""
MAX_ROUNDS = 10
"""The maximum number of rounds of questions in one call."""


async def call_tool(
    server: McpServer,
    listed: ListedTool,
    ctx: ToolContext,
    arguments: dict[str, Any],
    *,
    repeatable: bool,
    progress_extends: bool,
) -> Any:
    """Call the tool, and return its answer.

    A question of the server becomes a question of the tool, which a person may answer in days. Each
    round is a point of the call: an answered round is not repeated.

    Args:
        server: the server of the tool.
        listed: the tool.
        ctx: of the call.
        arguments: of the call.
        repeatable: whether the call may be repeated to give an answer for which the server waits.
        progress_extends: whether the time limit begins anew with each progress.

    Raises:
        Interrupt: for the questions of the server, in a group.
        ToolFailed: if the tool was not called, or a question gets no answer.
        RemoteToolError: if the server says that it has failed.
        ResultLost: if the answer is too large.
        OutcomeUnknown: if nobody knows what the call has done.

    """
    call = _Call(server, listed, ctx, arguments, repeatable, progress_extends)
    if not (ctx.resumed or ctx.has_come_to("question/0")):
        first = await call.make({}, {})
        if isinstance(first, types.CallToolResult):  # the common case records nothing
            return value_of(server, first)
        step = await ctx.once("question/0", lambda: first)
    else:
        step = await ctx.once("question/0", partial(call.as_json, {}, {}))
    known: dict[str, Any] = {}
    for number in range(MAX_ROUNDS):
        if "polled" in step:
            step = await call.end_of_task(step, number)
        if "result" in step:
            break
        questions = [_question(each) for each in step["questions"]]
        given = await ctx.once(f"answer/{number}", partial(call.answers, questions))
        call.used |= set(given["requests"])
        values = given["values"]
        known |= {question_key(q): value for q, value in zip(questions, values, strict=True)}
        step = await ctx.once(f"question/{number + 1}", partial(call.as_json, known, step))
    if "result" not in step:
        raise ToolFailed(f"{server} asks more than {MAX_ROUNDS} times in one call")
    return value_of(server, types.CallToolResult.model_validate(step["result"]))


class _Call:
    """One attempt at a call."""

    def __init__(
        self,
        server: McpServer,
        listed: ListedTool,
        ctx: ToolContext,
        arguments: dict[str, Any],
        repeatable: bool,
        progress_extends: bool,
    ) -> None:
        self._server = server
        self._listed = listed
        self._ctx = ctx
        self._arguments = arguments
        self._repeatable = repeatable
        self._progress_extends = progress_extends
        self.used: set[str] = set()
        """The ids of the requests whose answers are recorded as points."""

    async def make(
        self, known: Mapping[str, Any], step: Mapping[str, Any]
    ) -> types.CallToolResult | dict[str, Any]:
        """Make the call, and return the answer or the questions of the server.

        Args:
            known: answers of people, by the digests of the questions.
            step: the last questions of the server.

        """
        server, ctx = self._server, self._ctx
        responses: types.InputResponses | None = None
        if "keys" in step:
            questions = map(_question, step["questions"])
            responses = {
                key: accepted(question, known[question_key(question)])
                for key, question in zip(step["keys"], questions, strict=True)
            }
        if "task" in step and responses is not None:
            connection = await _connection(server, self._listed, ctx)
            await connection.answer_task(step["task"], responses)
            return {"task": step["task"], "polled": step["polled"]}
        live = LiveCall(ctx, dict(known), progress_extends=self._progress_extends)
        send = partial(
            Connection.call,
            name=self._listed.name,
            arguments=self._arguments,
            call_key=ctx.call_key,
            live=live,
            responses=responses,
            state=step.get("state"),
        )
        connection = await _connection(server, self._listed, ctx)
        try:
            answer = await send(connection)
        except NotSent:  # retry at once, as it was not sent: the server may have been restarted
            connection = await _connection(server, self._listed, ctx, instead_of=connection)
            answer = await send(connection)
        if isinstance(answer, types.InputRequiredResult):
            return _step(server, answer)
        if isinstance(answer, CreatedTask):
            return {"task": answer.task_id, "polled": _seconds(answer)}
        if live.asked and self._repeatable:
            return {"questions": [each.model_dump(mode="json") for each in live.asked]}
        return _note(answer, live)

    async def as_json(self, known: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, Any]:
        """Make the call as `make` does, with the result as JSON for a record."""
        made = await self.make(known, step)
        if isinstance(made, dict):
            return made
        return {"result": made.model_dump(mode="json", by_alias=True, exclude_none=True)}

    async def end_of_task(self, step: dict[str, Any], number: int) -> dict[str, Any]:
        """The result of a call that has become a task, or the questions of the server.

        The call sleeps between two looks: nothing of it is in memory, and it survives its process.

        Args:
            step: names the task, and the seconds between two looks.
            number: the number of the round.

        Raises:
            ToolFailed: if the server has cancelled it.
            RemoteToolError: if the server says that it has failed.
            OutcomeUnknown: if the server does not know the task any more.

        """
        ctx, server, asked = self._ctx, self._server, f"asked/{number}"
        looks = 0
        while ctx.has_come_to(f"task/{number}/{looks}"):
            looks += 1
        while not ctx.has_come_to(asked):
            task = await self._look(step["task"]) if looks else None
            if task is not None and task.status == "completed" and task.result is not None:
                return {"result": task.result}
            if task is not None and task.status == "failed":
                raise RemoteToolError(str((task.error or {}).get("message", "the task has failed")))
            if task is not None and task.status == "cancelled":
                raise ToolFailed(f"{server} has cancelled the call: {task.status_message or ''}")
            if task is not None and task.status == "input_required":
                asks = types.InputRequiredResult(input_requests=task.input_requests or {})
                return await ctx.once(asked, partial(dict, {**_step(server, asks), **step}))
            seconds = step["polled"] if task is None else _seconds(task)
            seconds = max(seconds, min(LONGEST_PAUSE, 1.5**looks))
            await ctx.sleep(f"task/{number}/{looks}", seconds)
            looks += 1
        return await ctx.once(asked, lambda: step)

    async def _look(self, task_id: str) -> Task | None:
        """The task as it is now; None if the server cannot be reached, and is asked later."""
        try:
            connection = await self._ctx.shared(self._server)
            if connection.is_lost:
                connection = await self._ctx.shared(self._server, instead_of=connection)
            task = await connection.task(task_id)
        except ConnectionError:
            return None
        if task.status_message:
            self._ctx.emit({"message": task.status_message, "display": task.status_message})
        return task

    def answers(self, questions: list[types.ElicitRequestParams]) -> dict[str, list[Any]]:
        """The answers of persons, with the requests; raises the questions without an answer."""
        # Each answer is to one set of questions, also if a crash comes before the next ones are
        # recorded (test_an_answer_is_to_no_other_question_of_the_server_after_a_crash).
        given = {id: value for id, value in self._ctx.answers.items() if id not in self.used}
        if not given:
            raise ExceptionGroup("the server asks", _interrupts(self._server, questions))
        return {"requests": list(given), "values": list(given.values())}


async def _connection(
    server: McpServer,
    listed: ListedTool,
    ctx: ToolContext,
    *,
    instead_of: Connection | None = None,
) -> Connection:
    """The shared connection, opened anew if it is known to be lost, with the tool unchanged.

    It has a separate time limit: a call that is not sent yet is not in doubt, however slow the
    server is.
    """
    ctx.pause_timeout()
    with ctx.before_effect():
        connection = await ctx.shared(server, instead_of=instead_of)
        if connection.is_lost:
            connection = await ctx.shared(server, instead_of=connection)
        await connection.check_unchanged(listed)
    return connection


def _seconds(task: Task) -> float:
    """The seconds for which the server does not want to be asked."""
    return 1.0 if task.poll_interval_ms is None else max(task.poll_interval_ms / 1000, 0.1)


def _step(server: McpServer, asks: types.InputRequiredResult) -> dict[str, Any]:
    """The input that the server needs before it continues, as JSON."""
    requests = asks.input_requests or {}
    questions = []
    for request in requests.values():
        if not isinstance(request, types.ElicitRequest):
            raise ToolFailed(f"{server} asks for {request.method}, which it does not get")
        questions.append(request.params.model_dump(mode="json"))
    if not requests:
        raise ToolFailed(f"{server} wants the call again later, and says nothing more")
    return {
        "questions": questions,
        "keys": list(requests),
        "state": asks.request_state,
    }


def _question(data: Mapping[str, Any]) -> types.ElicitRequestParams:
    if data.get("mode") == "url":
        return types.ElicitRequestURLParams.model_validate(data)
    return types.ElicitRequestFormParams.model_validate(data)


def _interrupts(server: McpServer, questions: list[types.ElicitRequestParams]) -> list[Interrupt]:
    try:
        return [_interrupt(server, question) for question in questions]
    except UsageError as error:
        raise ToolFailed(f"{server} asks what cannot be asked: {error}") from error


def _interrupt(server: McpServer, question: types.ElicitRequestParams) -> Interrupt:
    asks = {"server": server.id, "question": question.message}
    if isinstance(question, types.ElicitRequestURLParams):
        return Interrupt({**asks, "url": question.url}, allowed=("approve", "reject"))
    return Interrupt(asks, schema=dict(question.requested_schema))


def _note(answer: types.CallToolResult, live: LiveCall) -> types.CallToolResult:
    """The answer, with the questions of the server that nobody answered."""
    if not live.asked:
        return answer
    asked = "; ".join(repr(question.message) for question in live.asked)
    text = f"The server asked, and was told that nobody answers now: {asked}"
    note = types.TextContent(type="text", text=text)
    return answer.model_copy(update={"content": [note, *answer.content]})


# ------------------------------------------------------------------------------- answers


def value_of(server: McpServer, answer: types.CallToolResult) -> Any:
    """The content of an answer for the model: structured content, texts, and files unchanged.

    Raises:
        RemoteToolError: if the answer is an error.
        ResultLost: if the answer is too large.

    """
    size = len(answer.model_dump_json())
    if size > MAX_ANSWER:
        why = f"the answer of {server} has {size:,} bytes, and may have {MAX_ANSWER:,}"
        raise RemoteToolError(f"It failed, and {why}.") if answer.is_error else ResultLost(why)
    parts = _parts(answer)
    if answer.is_error:
        reason = "\n".join(map(_in_words, parts))
        raise RemoteToolError(reason or f"{server} says that the call has failed.")
    return parts[0] if len(parts) == 1 else parts


def _parts(answer: types.CallToolResult) -> list[Any]:
    """The parts of the answer. Content that comes both as text and as data is kept as data."""
    parts = [_part(block) for block in answer.content]
    data = answer.structured_content
    if data is None:
        return parts
    said: list[Any] = [data]
    if isinstance(data, dict) and data.keys() == {"result"}:  # SDKs wrap values that are no object
        result = data["result"]
        said += [result, *(result if isinstance(result, list) else ())]
    return [*(part for part in parts if not _is_said(part, said)), data]


def _is_said(part: Any, said: list[Any]) -> bool:
    """Whether the part is a text with the same content as the data."""
    if not isinstance(part, str):
        return False
    if part in said:
        return True
    try:
        return from_json(part) in said
    except (ValueError, TypeError):  # half a surrogate pair raises TypeError
        return False


def _in_words(part: Any) -> str:
    if isinstance(part, BinaryContent):
        return f"[a file of the type {part.media_type!r}]"
    return part if isinstance(part, str) else to_json(part).decode()


def _part(block: types.ContentBlock) -> Any:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, (types.ImageContent, types.AudioContent)):
        return _file(block.data, block.mime_type)
    if isinstance(block, types.EmbeddedResource):
        resource = block.resource
        if isinstance(resource, types.BlobResourceContents):
            media_type = resource.mime_type or "application/octet-stream"
            return _file(resource.blob, media_type, uri=resource.uri)
        return resource.model_dump(mode="json", by_alias=True, exclude_none=True)
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)


def _file(data: str, media_type: str, *, uri: str | None = None) -> Any:
    try:
        content = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return f"[a file of the type {media_type!r} that cannot be decoded]"
    return BinaryContent(content, media_type=media_type, identifier=uri)

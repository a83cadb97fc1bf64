"""Vercel's AI stream: the requests of its clients, and the chunks that they get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from ag_ui.core import ResumeEntry
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_ai.messages import FunctionToolResultEvent
from pydantic_ai.ui.vercel_ai import VercelAIEventStream
from pydantic_ai.ui.vercel_ai.response_types import (
    BaseChunk,
    DataChunk,
    StartChunk,
    ToolApprovalRequestChunk,
    ToolInputAvailableChunk,
    ToolInputStartChunk,
)

from understudy._base.json_values import jsonable
from understudy.ag_ui import native_events as n
from understudy.ag_ui.contents import file_of_url
from understudy.ag_ui.conversation import Answer, Said, Writer, refusal_of
from understudy.ag_ui.messages import run_in, wire_id
from understudy.ag_ui.protocol import (
    MAX_ID,
    answer_of,
    interrupt_at,
    why_it_stands,
)
from understudy.ag_ui.site import Site
from understudy.interrupts import Decision, Request
from understudy.login import User
from understudy.login.bodies import checked_as
from understudy.login.problems import problem_of, refused
from understudy.outcomes import Failed, Interrupted, Outcome
from understudy.state.agent_state import AgentState

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
SDK: Literal[7] = 7
_BETWEEN = "."
"""The separator of the request's id and its digest, in the id of an approval."""


class _Body(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class _Approval(_Body):
    id: str
    approved: bool
    reason: str | None = None


class _Message(_Body):
    id: str = Field(max_length=MAX_ID)
    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Any]]


class ChatBody(_Body):
    """The body that `DefaultChatTransport` sends, with `resume` as in AG-UI."""

    id: str
    messages: list[_Message] = []
    trigger: str = "submit-message"
    resume: list[ResumeEntry] = []


def body_of(data: Any) -> ChatBody:
    """The body of a client's request.

    Raises:
        Refused: if it is no body of the protocol.

    """
    body = checked_as(ChatBody, data)
    if body.trigger != "submit-message":
        raise refused(400, "UsageError", "What was said is recorded: it is not said again.")
    return body


def said_in(body: ChatBody) -> Said:
    """The new content in a body: the user's last message, or answers in the agent's last
    message.
    """
    last = body.messages[-1] if body.messages else None
    answers = [answer_of(entry) for entry in body.resume]
    if last is not None and last.role == "user":
        if not last.id:
            raise refused(400, "UsageError", "messages: a user's message has an `id`.")
        return Said(body.id, last.id, _content(last), answers)
    if last is not None and last.role == "assistant":
        for part in last.parts:
            if part.get("state") == "approval-responded":
                answers.append(_approval_of(part))
    return Said(body.id, answers=answers)


def calls_in(body: ChatBody) -> set[str]:
    """The ids of the calls in the message that the client continues."""
    last = body.messages[-1] if body.messages else None
    parts = last.parts if last is not None and last.role == "assistant" else []
    return {id for part in parts if isinstance(id := part.get("toolCallId"), str)}


def _content(message: _Message) -> list[Any]:
    found: list[Any] = []
    for part in message.parts:
        match part:
            case {"type": "text", "text": str() as text}:
                found.append(text)
            case {"type": "file", "url": str() as url, "mediaType": str() as media_type}:
                found.append(file_of_url(url, media_type))
    return found


def _approval_of(part: Mapping[str, Any]) -> Answer:
    """A part of the agent's message that the user has approved, or not.

    Only the id of the approval and the answer are used, not the call or its arguments. The id of
    the approval has the digest of what was shown.
    """
    try:
        given = _Approval.model_validate(part.get("approval"))
    except ValidationError as error:
        raise refused(
            400, "UsageError", "messages: an approval has an `id` and `approved`."
        ) from error
    request_id, _, digest = given.id.partition(_BETWEEN)
    call_id = part.get("toolCallId")

    def decide(request: Request, by: str) -> Decision:
        if call_id != wire_id(run_in(request), request.tool_call_id):
            raise refused(409, "RequestChanged", "The approval is of another call.")
        if not given.approved:
            return Decision(type="reject", message=given.reason, by=by)
        return Decision(type="approve", note=given.reason, by=by)

    return Answer(request_id, decide, digest)


class VercelWriter(Writer[BaseChunk]):
    """Writes the chunks of one request.

    The protocol does not show the work of inner agents: their calls are shown only if they need an
    approval.

    Args:
        site: the endpoint.
        user: the user who gets them.
        calls: the ids of the calls in the message that the client continues.
        message_id: the id of the message that begins; None if the client continues one.

    """

    has_snapshots: ClassVar[bool] = False

    def __init__(
        self,
        site: Site,
        user: User,
        calls: Collection[str] = (),
        message_id: str | None = None,
    ) -> None:
        self._site = site
        self._user = user
        self._message_id = message_id
        self._calls = calls
        self._stream: VercelAIEventStream[Any, Any] = VercelAIEventStream(sdk_version=SDK)

    def encoded(self, chunk: BaseChunk) -> str:
        return chunk.encode(SDK)

    async def begin(self) -> AsyncIterator[BaseChunk]:
        yield StartChunk(message_id=self._message_id)

    async def snapshot(self, state: AgentState | None) -> AsyncIterator[BaseChunk]:
        # The protocol has no message for it, so a client keeps what it has.
        yield DataChunk(type="data-understudy-reload", data={}, transient=True)

    async def write(self, given: n.Given) -> AsyncIterator[BaseChunk]:
        match given:
            case n.ReplyBegins(run=n.ROOT):
                async for chunk in self._stream.before_response():
                    yield chunk
            case n.Piece(run=n.ROOT, event=native):
                async for chunk in self._stream.handle_event(native):
                    yield _bare(chunk)
            case n.Piece(run=run, event=FunctionToolResultEvent(part=part)):
                # The call of an inner agent is shown at the place of the outer call, for an
                # approval.
                if (id := wire_id(run, part.tool_call_id)) in self._calls:
                    shown = FunctionToolResultEvent(replace(part, tool_call_id=id))
                    async for chunk in self._stream.handle_event(shown):
                        yield _bare(chunk)
            case n.Emitted(run=n.ROOT):
                data = {"toolCallId": given.tool_call_id, "data": jsonable(given.data)}
                yield DataChunk(type="data-understudy-emitted", data=data, transient=True)
            case _:
                pass

    async def end(
        self, outcome: Outcome | None, state: AgentState | None, *, waits: bool
    ) -> AsyncIterator[BaseChunk]:
        match outcome:
            case Failed():
                async for chunk in self._failed(outcome.error):
                    yield chunk
            case Interrupted(requests=requests):
                for request in requests:
                    for chunk in await self._asked(request, state):
                        yield chunk
            case _:
                for what, why in why_it_stands(outcome, state, waits=waits):
                    yield DataChunk(type=f"data-understudy-{what}", data=why)
        async for chunk in self._stream.after_stream():
            yield chunk

    async def _asked(self, request: Request, state: AgentState | None) -> list[BaseChunk]:
        call_id = wire_id(run_in(request), request.tool_call_id)
        interrupt = await interrupt_at(self._site, self._user, request, state)
        chunks: list[BaseChunk] = [
            DataChunk(
                type="data-understudy-request",
                id=request.id,
                data=interrupt.model_dump(mode="json", by_alias=True),
            )
        ]
        if {"approve", "reject"} & set(request.allowed) and request.kind == "approval":
            if run_in(request):  # an inner agent asks, whose calls were not shown
                chunks += [
                    ToolInputStartChunk(
                        tool_call_id=call_id, tool_name=request.tool_name, dynamic=True
                    ),
                    ToolInputAvailableChunk(
                        tool_call_id=call_id,
                        tool_name=request.tool_name,
                        input=request.arguments,
                        dynamic=True,
                    ),
                ]
            chunks.append(
                ToolApprovalRequestChunk(
                    approval_id=f"{request.id}{_BETWEEN}{request.digest}", tool_call_id=call_id
                )
            )
        return chunks

    async def _failed(self, error: Exception) -> AsyncIterator[BaseChunk]:
        problem = problem_of(refusal_of(error))
        async for chunk in self._stream.on_error(
            RuntimeError(f"{problem.error}: {problem.detail}")
        ):
            yield chunk

    async def error(self, error: Exception) -> AsyncIterator[BaseChunk]:
        async for chunk in self._failed(error):
            yield chunk
        async for chunk in self._stream.after_stream():
            yield chunk


def _bare(chunk: BaseChunk) -> BaseChunk:
    """The chunk without provider data: nothing that a client sends back is trusted."""
    if getattr(chunk, "provider_metadata", None) is not None:
        return chunk.model_copy(update={"provider_metadata": None})
    return chunk

"""AG-UI: the requests of clients, and the events that they get."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import timezone
from typing import Any, ClassVar

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuccessOutcome,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    ToolCallResultEvent,
    ToolMessage,
    UserMessage,
)
from pydantic_ai.messages import FunctionToolResultEvent
from pydantic_ai.ui.ag_ui import AGUIEventStream

from understudy._base.json_values import jsonable
from understudy.ag_ui import native_events as n
from understudy.ag_ui.contents import content_of_ag_ui
from understudy.ag_ui.conversation import Answer, Said, Writer, refusal_of
from understudy.ag_ui.frontend_tools import is_for_page, results_in
from understudy.ag_ui.interrupts import decision_of, interrupt_of
from understudy.ag_ui.messages import call_at, message_id, messages_of, result_id, wire_id
from understudy.ag_ui.site import Site
from understudy.agent.standing import standing_of
from understudy.interrupts import Request
from understudy.login import User
from understudy.login.bodies import checked_as
from understudy.login.problems import problem_of, refused
from understudy.outcomes import Failed, Interrupted, Outcome, Paused, Stopped
from understudy.state.agent_state import AgentState
from understudy.state.next_due import votes_of

VERSION = "1.0"
"""The version of the protocol here."""
MAX_ID = 400
"""The maximum characters of the id of a message."""


def input_of(body: Any) -> RunAgentInput:
    """The input in a client's request.

    Raises:
        Refused: if it is no input of the protocol.

    """
    return checked_as(RunAgentInput, body)


def said_in(given: RunAgentInput, site: Site) -> Said:
    """The new content in a client's input: the last message, if it is a user's, answers, and
    results.

    The rest is the client's view of the conversation, which the records replace.
    """
    last = given.messages[-1] if given.messages else None
    message_id, content = None, None
    if isinstance(last, UserMessage):
        if not 0 < len(last.id) <= MAX_ID:
            raise refused(400, "UsageError", f"messages: an id has 1 to {MAX_ID} characters.")
        message_id, content = last.id, content_of_ag_ui(last.content)
    return Said(
        thread_id=given.thread_id,
        message_id=message_id,
        content=content,
        answers=[answer_of(entry) for entry in given.resume or ()],
        results=results_in(given.messages, site.frontend_tools, call_at),
        offered=[each.name for each in given.tools or ()],
    )


def answer_of(entry: ResumeEntry) -> Answer:
    """The answer in an entry."""
    about = (entry.metadata or {}).get("understudy")
    digest = about.get("digest") if isinstance(about, dict) else None

    def decide(request: Request, by: str) -> Any:
        return decision_of(request, entry, by)

    return Answer(entry.interrupt_id, decide, digest if isinstance(digest, str) else None)


def speaks_1_0(version: str | None) -> bool:
    """Whether a client declares version 1.0 or later. A text that is no version counts as later."""
    if version is None:
        return False
    match = re.fullmatch(r"(\d{1,9})\.(\d{1,9})", version)
    return match is None or int(match[1]) >= 1


class AgUiWriter(Writer[BaseEvent]):
    """Writes the events of one request.

    Args:
        site: the endpoint.
        user: the user who gets them.
        given: the request.

    """

    has_snapshots: ClassVar[bool] = True

    def __init__(self, site: Site, user: User, given: RunAgentInput) -> None:
        self._site = site
        self._user = user
        self._thread_id, self._run_id = given.thread_id, given.run_id
        self._own = [each for each in given.messages if isinstance(each, UserMessage)]
        self._executes = {each.name for each in given.tools or ()} & site.frontend_tools
        self._results = {
            each.tool_call_id: each.id for each in given.messages if isinstance(each, ToolMessage)
        }
        self._shown: list[BaseEvent] | None = None
        """The snapshot that the client has, if nothing came after it."""
        self._speaks_1_0 = speaks_1_0(given.protocol_version)
        self._streams: dict[str, _Stream] = {}

    async def begin(self) -> AsyncIterator[BaseEvent]:
        yield RunStartedEvent(
            thread_id=self._thread_id, run_id=self._run_id, protocol_version=VERSION
        )

    async def snapshot(self, state: AgentState | None) -> AsyncIterator[BaseEvent]:
        messages = [] if state is None else messages_of(state, self._own, self._results)
        events = [MessagesSnapshotEvent(messages=messages), *self._state(state)]
        if events != self._shown:  # a client that reconnects while a person is asked gets it once
            self._shown = events
            for event in events:
                yield event

    def _state(self, state: AgentState | None) -> Iterator[BaseEvent]:
        shared = None if state is None else self._site.shared(state)
        if shared is not None:
            yield StateSnapshotEvent(snapshot=shared["state"])

    async def write(self, given: n.Given) -> AsyncIterator[BaseEvent]:
        self._shown = None
        match given:
            case n.Piece(event=FunctionToolResultEvent(part=part)) if self._has_result(
                given.run, part
            ):
                pass  # the message is the client's own
            case n.AgentBegins():
                parent = given.parent or None
                yield SubagentStartedEvent(
                    subagent_run_id=given.run,
                    name=given.name,
                    parent_subagent_run_id=parent,
                    parent_tool_call_id=given.tool_call_id
                    and wire_id(given.parent, given.tool_call_id),
                )
            case n.AgentOver(run=run, error=str() as error):
                yield SubagentErrorEvent(subagent_run_id=run, message=error)
            case n.AgentOver(run=run, requests=None):
                yield SubagentFinishedEvent(
                    subagent_run_id=run, outcome=SubagentFinishedSuccessOutcome()
                )
            case n.AgentOver(run=run, requests=requests):
                suspended = SubagentFinishedSuspendedOutcome(interrupt_ids=list(requests or ()))
                yield SubagentFinishedEvent(subagent_run_id=run, outcome=suspended)
            case n.Emitted():
                value = {
                    "toolCallId": wire_id(given.run, given.tool_call_id),
                    "toolName": given.tool_name,
                    "data": jsonable(given.data),
                }
                yield CustomEvent(
                    name="understudy.emitted", value=value, subagent_run_id=given.run or None
                )
            case n.ReplyBegins(run=run, number=number):
                self._streams[run] = _Stream(run, number)
            case n.Piece(run=run):
                stream = self._streams.setdefault(run, _Stream(run, 0))
                async for event in stream.events(given.event):
                    yield event
            case n.Differs():
                pass

    async def end(
        self, outcome: Outcome | None, state: AgentState | None, *, waits: bool
    ) -> AsyncIterator[BaseEvent]:
        match outcome:
            case Failed():
                async for event in self.error(outcome.error):
                    yield event
                return
            case Interrupted(requests=requests):
                async for event in self.snapshot(state):
                    yield event
                if all(is_for_page(request, self._executes) for request in requests):
                    calls = [call_at(request) for request in requests]
                    yield self._finished(RunFinishedSuccessOutcome(pending_tool_call_ids=calls))
                    return
                asked = [
                    await interrupt_at(self._site, self._user, request, state)
                    for request in requests
                ]
                yield self._finished(RunFinishedInterruptOutcome(interrupts=asked))
                return
        for event in self._state(state):
            yield event
        for what, why in why_it_stands(outcome, state, waits=waits):
            yield CustomEvent(name=f"understudy.{what}", value=why)
        done: Any = RunFinishedSuccessOutcome()
        if isinstance(outcome, Stopped):
            # A client of an earlier version drops a stream with an unknown outcome.
            done = RunFinishedCancelledOutcome() if self._speaks_1_0 else None
        yield self._finished(done)

    def _has_result(self, run: str, part: Any) -> bool:
        is_its_own = part.tool_name in self._site.frontend_tools
        return is_its_own and wire_id(run, part.tool_call_id) in self._results

    def _finished(self, outcome: Any) -> BaseEvent:
        return RunFinishedEvent(thread_id=self._thread_id, run_id=self._run_id, outcome=outcome)

    async def error(self, error: Exception) -> AsyncIterator[BaseEvent]:
        problem = problem_of(refusal_of(error))
        yield RunErrorEvent(message=problem.detail, code=problem.error)


class _Stream:
    """Writes one reply of one agent, with the results of its calls.

    The ids of messages are the same as in `messages_of`, so a client that has both has each message
    once.
    """

    def __init__(self, run: str, number: int) -> None:
        self._stream: AGUIEventStream[Any, Any] = AGUIEventStream(thread_id="", run_id="")
        self._run = run
        self._number = number
        self._ids: dict[str, str] = {}
        self._counts = {"reply": 0, "thinking": 0}

    async def events(self, native: n.Native) -> AsyncIterator[BaseEvent]:
        async for event in self._stream.handle_event(native):
            if isinstance(event, ReasoningEncryptedValueEvent):
                continue  # nothing that a client sends back is trusted
            found: Any = event
            call_id = getattr(found, "tool_call_id", None)
            if call_id is not None:
                found.tool_call_id = wire_id(self._run, call_id)
            if isinstance(event, ToolCallResultEvent):
                event.message_id = result_id(self._run, event.tool_call_id)
            else:
                for name in ("message_id", "parent_message_id"):
                    if getattr(found, name, None) is not None:
                        setattr(found, name, self._id(getattr(found, name), event))
            if self._run:
                found.subagent_run_id = self._run
            yield event

    def _id(self, id: str, event: BaseEvent) -> str:
        if id not in self._ids:
            kind = "thinking" if event.type.value.startswith("REASONING") else "reply"
            self._ids[id] = message_id(kind, self._run, self._number, self._counts[kind])
            self._counts[kind] += 1
        return self._ids[id]


async def interrupt_at(
    site: Site, user: User, request: Request, state: AgentState | None
) -> Interrupt:
    """The interrupt that stands for a request of the agent at this endpoint, for this user."""
    votes = () if state is None else votes_of(state).get(request.id, ())
    standing = None
    if request.approval is not None or request.call_approval is not None:
        runtime = site.source()
        voter, now = None, await runtime.now()
        if runtime.people is not None:
            voter = await runtime.trust.voter(user.caller, now)
        standing = standing_of(request, request.approval, votes, voter, now)
    return interrupt_of(
        request,
        tool_call_id=call_at(request),
        parameters=getattr(site.source().tool_of(request), "parameters", None),
        votes=votes,
        standing=standing,
    )


def why_it_stands(
    outcome: Outcome | None, state: AgentState | None, *, waits: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The data that the run is `stopped` or `paused`, with the reason; or what it is `waiting`
    for.
    """
    if isinstance(outcome, Stopped):
        yield "stopped", {"reason": str(outcome.signals.highest)}
    elif isinstance(outcome, Paused):
        yield "paused", {"reason": outcome.reason}
    elif outcome is None and state is not None and state.pause is not None:
        yield "paused", {"reason": state.pause}
    elif waits and state is not None:
        yield "waiting", {"waits": _waits_in(state)}


def _waits_in(state: AgentState) -> list[dict[str, Any]]:
    return [
        {
            "name": wait.name,
            "until": wait.expires_at and wait.expires_at.astimezone(timezone.utc).isoformat(),
        }
        for wait in state.waits
    ]

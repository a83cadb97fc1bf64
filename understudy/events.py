"""The events that a run emits: `async for event in agent.stream(...)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast

from pydantic_ai.messages import (
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    UserContent,
)

from understudy._base.quickly_made import quickly_made
from understudy.approvals import Vote
from understudy.interrupts import DecisionType, Request
from understudy.state import records as r
from understudy.state.files import FileChange
from understudy.state.reviews import Review

__all__ = [
    "AgentEnded",
    "AttemptDiscarded",
    "Event",
    "FilesUpdated",
    "GlassBroken",
    "GrantUsed",
    "NativeToolCalled",
    "NativeToolReturned",
    "ReplyEnded",
    "ReplyStarted",
    "RequestEscalated",
    "RequestMade",
    "RequestReminder",
    "ReviewClosed",
    "RunFinished",
    "ScheduleOccurred",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallAnnounced",
    "ToolEmitted",
    "ToolEnded",
    "ToolOutcome",
    "ToolStarted",
    "Voted",
    "WaitOver",
    "WaitStarted",
    "events_of",
]

ToolOutcome = Literal["success", "failed", "denied", "interrupted"]
"""How a call ended: with its result, by an error, by a person, not executed, or in doubt."""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStarted:
    """The event that a model call begins."""

    agent_path: tuple[str, ...]
    turn: int
    model: str
    run_id: str = ""
    kind: Literal["reply_started"] = "reply_started"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """The event that the model sent a piece of its answer's text."""

    agent_path: tuple[str, ...]
    turn: int
    attempt: int
    """The number of the run's attempt, from 1. Each resume and each restart begins an attempt."""
    n: int
    """The number of this delta in this turn and attempt, from 0."""
    text: str
    run_id: str = ""
    part: int = 0
    """The index of the part of the reply that it belongs to."""
    kind: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """The event that the model sent a piece of its thinking."""

    agent_path: tuple[str, ...]
    turn: int
    attempt: int
    n: int
    text: str
    run_id: str = ""
    part: int = 0
    kind: Literal["thinking_delta"] = "thinking_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallAnnounced:
    """The event that the model begins to write a tool call. Its arguments are not complete yet."""

    agent_path: tuple[str, ...]
    turn: int
    attempt: int
    part: int
    """The index of the part of the reply that will be the call."""
    tool_name: str
    display_text: str | None = None
    """The tool's text for people, if it does not depend on the arguments."""
    run_id: str = ""
    kind: Literal["tool_call_announced"] = "tool_call_announced"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnded:
    """The event that the model's reply is accepted and recorded."""

    agent_path: tuple[str, ...]
    turn: int
    response: ModelResponse
    run_id: str = ""
    """The id of the run, if an inner agent has it; empty for the run of the root agent."""
    kind: Literal["reply_ended"] = "reply_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeToolCalled:
    """The event that an accepted reply has a call of a native tool, which the provider has already
    run.
    """

    agent_path: tuple[str, ...]
    turn: int
    tool_name: str
    tool_call_id: str
    arguments: Any
    """The arguments as the provider gives them: a text, a mapping, or None."""
    kind: Literal["native_tool_called"] = "native_tool_called"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeToolReturned:
    """The event that an accepted reply has the result of a native tool."""

    agent_path: tuple[str, ...]
    turn: int
    tool_name: str
    tool_call_id: str
    outcome: str
    content: Any
    """The result as the provider gives it."""
    kind: Literal["native_tool_returned"] = "native_tool_returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMade:
    """The event that a person is asked: the run needs a decision on `request`."""

    agent_path: tuple[str, ...]
    request: Request
    kind: Literal["request_made"] = "request_made"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantUsed:
    """The event that a grant has decided a request about a call. No person is asked."""

    agent_path: tuple[str, ...]
    request_id: str
    request: Request | None = None
    """The request; None if its `RequestMade` came directly before."""
    grant_id: str
    decision: DecisionType
    by: str | None
    """The person who gave the grant."""
    at: datetime
    kind: Literal["grant_used"] = "grant_used"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReminder:
    """The event that the person is reminded of a request that has no answer yet."""

    agent_path: tuple[str, ...]
    request_id: str
    number: int
    """The number of the reminder, from 1. If several are due at once, only the last has an
    event."""
    at: datetime
    kind: Literal["request_reminder"] = "request_reminder"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEscalated:
    """The event that other people are notified of a request that has no answer yet."""

    agent_path: tuple[str, ...]
    request_id: str
    audience: str
    at: datetime
    kind: Literal["request_escalated"] = "request_escalated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Voted:
    """The event that a person has voted on a request that asks several persons."""

    agent_path: tuple[str, ...]
    request_id: str
    vote: Vote
    missing: str
    """The votes that are missing now, such as "1 more of finance"; empty if enough persons
    agreed."""
    approved_at: datetime | None
    """The time at which the call is approved unless somebody objects, once enough have agreed."""
    kind: Literal["voted"] = "voted"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlassBroken:
    """The event that a person alone approved a call to which several persons had to agree.

    Tell all these persons: `review.roles` are the roles that would have been asked.
    """

    agent_path: tuple[str, ...]
    review: Review
    kind: Literal["glass_broken"] = "glass_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewClosed:
    """The event that a person has reviewed why another person had broken the glass."""

    agent_path: tuple[str, ...]
    review_id: str
    by: str
    note: str | None
    kind: Literal["review_closed"] = "review_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOccurred:
    """The event that a time of a schedule has come. The occurrence waits for its run, or is
    skipped.
    """

    agent_path: tuple[str, ...]
    schedule_id: str
    due: datetime
    triggered: bool
    """Whether a person asked for the occurrence."""
    skipped: Literal["missed", "overlap", "full"] | None
    """The reason why it gets no run; None if it gets one."""
    kind: Literal["schedule_occurred"] = "schedule_occurred"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """The event that a tool's body is about to be entered."""

    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any] | None = None
    """The arguments with which the call runs, if they differ from what the model wrote: defaults,
    say."""
    kind: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEmitted:
    """The event that a tool emitted with `ctx.emit(data)`."""

    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    data: Any
    kind: Literal["tool_emitted"] = "tool_emitted"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """The event that a call has its result."""

    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    outcome: ToolOutcome
    content: Any
    """The content of the result, for the model."""
    metadata: Any = None
    """The `metadata` of the `ToolReturn` that the tool returned, as JSON. It is for the program."""
    user_content: str | Sequence[UserContent] | None = None
    """The `content` of the `ToolReturn` that the tool returned. The model gets it with the
    result."""
    kind: Literal["tool_ended"] = "tool_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStarted:
    """The event that a tool sleeps or waits at a named point.

    It comes each time the tool reaches the point. It also comes for a call in doubt that waits
    until its check is asked.
    """

    agent_path: tuple[str, ...]
    call_key: str
    name: str
    """The tool's name for the point."""
    what: r.PointKind
    """The kind of the point: `sleep`, `wait` or `check`."""
    expires_at: datetime | None
    """The time at which it is over by itself; None = never."""
    kind: Literal["wait_started"] = "wait_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOver:
    """The event that a tool need not sleep or wait at a point any longer. It can continue."""

    agent_path: tuple[str, ...]
    call_key: str
    name: str
    what: r.PointKind
    how: r.PointEnd
    """How the point ended: `over` for a sleep or a check; `value`, `rejected` or `expired` for a
    wait."""
    kind: Literal["wait_over"] = "wait_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesUpdated:
    """The event that files of the agent have changed."""

    agent_path: tuple[str, ...]
    files: tuple[FileChange, ...]
    """Each path that changed, with the file that it has from now on."""
    call_key: str | None
    """The key of the call that changed them; None if the application changed them."""
    kind: Literal["files_updated"] = "files_updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDiscarded:
    """The event that a run continues after a crash. Deltas of `attempt` without a `ReplyEnded` are
    void.
    """

    agent_path: tuple[str, ...]
    attempt: int
    """The number of the attempt that is over."""
    kind: Literal["attempt_discarded"] = "attempt_discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The event that a run is over. An interrupted or paused run is not over: it continues
    later.
    """

    agent_path: tuple[str, ...]
    outcome: Literal["completed", "failed", "stopped", "withdrawn"]
    text: str
    """The final text of a completed run; empty for any other run."""
    error: dict[str, Any] | None
    """The `to_dict()` of a failed run's error; None for any other run."""
    signals: dict[str, Any] | None
    """The `StopSignals.to_dict()` of a stopped run; None for any other run."""
    run_id: str = ""
    """The id of the run, if an inner agent has it; empty for the run of the root agent."""
    kind: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnded:
    """The event that an agent of a workflow has ended its run."""

    agent_path: tuple[str, ...]
    round: int
    """The round of the workflow, from 0."""
    index: int
    """The agent's index among the workflow's agents, from 0."""
    outcome: Literal["completed", "failed", "stopped"]
    """The type of the outcome of the agent's run."""
    escalated: bool
    """Whether it ends the nearest loop around it."""
    kind: Literal["agent_ended"] = "agent_ended"


Event = (
    AttemptDiscarded
    | RunFinished
    | ReplyStarted
    | TextDelta
    | ThinkingDelta
    | ToolCallAnnounced
    | ReplyEnded
    | NativeToolCalled
    | NativeToolReturned
    | RequestMade
    | GrantUsed
    | RequestReminder
    | RequestEscalated
    | Voted
    | GlassBroken
    | ReviewClosed
    | ScheduleOccurred
    | ToolStarted
    | ToolEmitted
    | ToolEnded
    | WaitStarted
    | WaitOver
    | FilesUpdated
    | AgentEnded
)
"""Any event of a run."""


def _native_calls(record: r.Reply, agent_path: tuple[str, ...]) -> Iterator[Event]:
    for part in record.response.parts:
        if isinstance(part, NativeToolCallPart):
            yield NativeToolCalled(
                agent_path=agent_path,
                turn=record.turn,
                tool_name=part.tool_name,
                tool_call_id=part.tool_call_id,
                arguments=part.args,
            )
        elif isinstance(part, NativeToolReturnPart):
            yield NativeToolReturned(
                agent_path=agent_path,
                turn=record.turn,
                tool_name=part.tool_name,
                tool_call_id=part.tool_call_id,
                outcome=part.outcome,
                content=part.content,
            )


def _grant_used(
    record: r.Decided, agent_path: tuple[str, ...], request: Request | None
) -> Iterator[Event]:
    decision = record.decision
    if decision.by_grant is not None:
        yield GrantUsed(
            agent_path=agent_path,
            request_id=record.request_id,
            request=request,
            grant_id=decision.by_grant,
            decision=decision.type,
            by=decision.by,
            at=record.at,
        )


def events_of(record: r.Record, agent_path: tuple[str, ...], run_id: str = "") -> Iterator[Event]:
    """Return the events of a record. Live events and events of a replayed journal both come from
    it.

    Args:
        record: the record of the agent, or of an agent that it runs.
        agent_path: the path of the agent that has recorded it.
        run_id: the id of its run, if another agent runs it.

    """
    match record:
        case r.Reply():
            yield from _native_calls(record, agent_path)
            yield ReplyEnded(
                agent_path=agent_path, turn=record.turn, response=record.response, run_id=run_id
            )
        case r.InterruptsChecked():
            answered = {decided.request_id for decided in record.decided}
            for request in record.requests:
                if request.id not in answered:
                    yield RequestMade(agent_path=agent_path, request=request)
            requests = {request.id: request for request in record.requests}
            for decided in record.decided:
                yield from _grant_used(decided, agent_path, requests.get(decided.request_id))
        case r.Decided():
            yield from _grant_used(record, agent_path, None)
        case r.Requested():
            yield RequestMade(agent_path=agent_path, request=record.request)
        case r.Reminded():
            yield RequestReminder(
                agent_path=agent_path,
                request_id=record.request_id,
                number=record.number,
                at=record.at,
            )
        case r.Escalated():
            yield RequestEscalated(
                agent_path=agent_path,
                request_id=record.request_id,
                audience=record.audience,
                at=record.at,
            )
        case r.Voted():
            yield Voted(
                agent_path=agent_path,
                request_id=record.request_id,
                vote=record.vote,
                missing=record.missing,
                approved_at=record.approved_at,
            )
        case r.GlassBroken(review=review):
            yield GlassBroken(agent_path=review.agent_path, review=review)
        case r.ReviewClosed():
            yield ReviewClosed(
                agent_path=agent_path,
                review_id=record.review_id,
                by=record.by,
                note=record.note,
            )
        case r.Occurred(occurrence=occurrence):
            yield ScheduleOccurred(
                agent_path=agent_path,
                schedule_id=occurrence.schedule_id,
                due=occurrence.due,
                triggered=occurrence.triggered,
                skipped=occurrence.skipped,
            )
        case r.Started():
            yield ToolStarted(
                agent_path=agent_path,
                call_key=record.call_key,
                tool_call_id=record.tool_call_id,
                tool_name=record.tool_name,
                arguments=record.arguments,
            )
        case r.Result():
            yield ToolEnded(
                agent_path=agent_path,
                call_key=record.call_key,
                tool_call_id=record.part.tool_call_id,
                tool_name=record.part.tool_name,
                outcome=cast("ToolOutcome", record.part.outcome),  # no call of ours is `retried`
                content=record.part.content,
                metadata=record.part.metadata,
                user_content=None if record.user_prompt is None else record.user_prompt.content,
            )
            if record.files:
                yield FilesUpdated(
                    agent_path=agent_path, files=record.files, call_key=record.call_key
                )
        case r.FilesChanged() if record.files and not record.own:
            yield FilesUpdated(agent_path=agent_path, files=record.files, call_key=None)
        case r.PointReached():
            yield WaitStarted(
                agent_path=agent_path,
                call_key=record.call_key,
                name=record.name,
                what=record.what,
                expires_at=record.due,
            )
        case r.PointAnswered(what="sleep" | "wait" | "check"):
            yield WaitOver(
                agent_path=agent_path,
                call_key=record.call_key,
                name=record.name,
                what=record.what,
                how=record.how,
            )
        case r.Attempt(number=number, reply_lost=True):
            yield AttemptDiscarded(agent_path=agent_path, attempt=number - 1)
        case r.RunEnded(end=end):
            yield RunFinished(
                agent_path=agent_path,
                outcome=end.outcome,
                text=end.text,
                error=end.error,
                signals=end.signals,
                run_id=run_id,
            )
        case r.SubRunEnded():
            yield AgentEnded(
                agent_path=(*agent_path, record.agent),
                round=record.round,
                index=record.index,
                outcome=record.outcome,
                escalated=record.escalated,
            )
        case r.ChildRecord():
            yield from events_of(record.record, (*agent_path, record.name), record.child)
        case _:
            pass  # subscribers get no event of the pipeline's other records

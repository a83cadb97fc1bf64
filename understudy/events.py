"""What a run emits: `async for event in agent.stream(...)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic_ai.messages import ModelResponse

from understudy.interrupts import Request
from understudy.state import records as r

__all__ = [
    "AgentEnded",
    "AttemptDiscarded",
    "Event",
    "ReplyEnded",
    "ReplyStarted",
    "RequestEscalated",
    "RequestMade",
    "RequestReminder",
    "RunFinished",
    "TextDelta",
    "ThinkingDelta",
    "ToolEmitted",
    "ToolEnded",
    "ToolStarted",
    "events_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyStarted:
    """A model call begins."""

    agent_path: tuple[str, ...]
    turn: int
    model: str
    kind: Literal["reply_started"] = "reply_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """The model sent a piece of its answer's text."""

    agent_path: tuple[str, ...]
    turn: int
    attempt: int
    """The number of the run's attempt, from 1: each resume, and each restart, begins one."""
    n: int
    """The number of this delta in this turn and attempt, from 0."""
    text: str
    kind: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta:
    """The model sent a piece of its thinking."""

    agent_path: tuple[str, ...]
    turn: int
    attempt: int
    n: int
    text: str
    kind: Literal["thinking_delta"] = "thinking_delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnded:
    """The model's reply is accepted and recorded."""

    agent_path: tuple[str, ...]
    turn: int
    response: ModelResponse
    kind: Literal["reply_ended"] = "reply_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMade:
    """A person is asked: the run needs a decision on `request`."""

    agent_path: tuple[str, ...]
    request: Request
    kind: Literal["request_made"] = "request_made"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReminder:
    """A request is not answered yet: its person is reminded."""

    agent_path: tuple[str, ...]
    request_id: str
    number: int
    """The number of the reminder, from 1. Numbers that were due together are left out but one."""
    at: datetime
    kind: Literal["request_reminder"] = "request_reminder"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEscalated:
    """A request is not answered yet: somebody else is told."""

    agent_path: tuple[str, ...]
    request_id: str
    audience: str
    at: datetime
    kind: Literal["request_escalated"] = "request_escalated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool's body is about to be entered."""

    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    kind: Literal["tool_started"] = "tool_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEmitted:
    """A tool called `ctx.emit(data)`."""

    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    data: Any
    kind: Literal["tool_emitted"] = "tool_emitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A call has its result."""

    agent_path: tuple[str, ...]
    call_key: str
    tool_call_id: str
    tool_name: str
    outcome: str
    """`success`, `failed`, `denied` or `interrupted`."""
    content: Any
    """The content for the model."""
    kind: Literal["tool_ended"] = "tool_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDiscarded:
    """A run continues after a crash: deltas of `attempt` without a `ReplyEnded` are void."""

    agent_path: tuple[str, ...]
    attempt: int
    """The attempt that is over."""
    kind: Literal["attempt_discarded"] = "attempt_discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A run is over. An interrupted or paused run is not: it continues later."""

    agent_path: tuple[str, ...]
    outcome: Literal["completed", "failed", "stopped", "withdrawn"]
    text: str
    """The final text of a completed run, otherwise empty."""
    error: dict[str, Any] | None
    """The `to_dict()` of a failed run's error."""
    signals: dict[str, Any] | None
    """The `StopSignals.to_dict()` of a stopped run."""
    kind: Literal["run_finished"] = "run_finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnded:
    """An agent of a workflow has ended its run."""

    agent_path: tuple[str, ...]
    round: int
    """The round of the workflow, from 0."""
    index: int
    """The agent's index among the workflow's agents, from 0."""
    outcome: str
    """`completed`, `failed` or `stopped`."""
    escalated: bool
    """It ends the nearest loop around it."""
    kind: Literal["agent_ended"] = "agent_ended"


Event = (
    AttemptDiscarded
    | RunFinished
    | ReplyStarted
    | TextDelta
    | ThinkingDelta
    | ReplyEnded
    | RequestMade
    | RequestReminder
    | RequestEscalated
    | ToolStarted
    | ToolEmitted
    | ToolEnded
    | AgentEnded
)


def events_of(record: r.Record, agent_path: tuple[str, ...]) -> Iterator[Event]:
    """The events of a record. Live events and those of a replayed journal both come from here."""
    match record:
        case r.Reply():
            yield ReplyEnded(agent_path=agent_path, turn=record.turn, response=record.response)
        case r.InterruptsChecked():
            answered = {decided.request_id for decided in record.decided}
            for request in record.requests:
                if request.id not in answered:
                    yield RequestMade(agent_path=agent_path, request=request)
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
        case r.Started():
            yield ToolStarted(
                agent_path=agent_path,
                call_key=record.call_key,
                tool_call_id=record.tool_call_id,
                tool_name=record.tool_name,
            )
        case r.Result():
            yield ToolEnded(
                agent_path=agent_path,
                call_key=record.call_key,
                tool_call_id=record.part.tool_call_id,
                tool_name=record.part.tool_name,
                outcome=record.part.outcome,
                content=record.part.content,
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
            yield from events_of(record.record, (*agent_path, record.name))
        case _:
            pass  # subscribers get no event of the pipeline's other records

"""The facts that a run is made of. The state is their fold, and nothing else changes it.

Each record is one fact, small and frozen. `record_to_dict` and `record_from_dict` are lossless and
JSON-able, so a journal can keep them anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, cast

import pydantic

from understudy.interrupts import Decision, Request
from understudy.models.messages import (
    StoredMessage,
    StoredRequest,
    StoredResponse,
    StoredToolReturn,
)

__all__ = [
    "AgentCreated",
    "Attempt",
    "CancelRequested",
    "ChildRecord",
    "Decided",
    "EarlyStopBegun",
    "End",
    "HistoryReplaced",
    "HooksRan",
    "Imported",
    "InterruptsChecked",
    "MessageQueued",
    "Once",
    "Override",
    "PauseChecked",
    "Paused",
    "Propagated",
    "Quarantined",
    "Record",
    "Released",
    "Reply",
    "Requested",
    "Result",
    "Revoked",
    "RunEnded",
    "RunStarted",
    "Settled",
    "Signalled",
    "Snapshot",
    "Started",
    "StatusNoted",
    "SubRunEnded",
    "Suspended",
    "TimeSpent",
    "TurnClosed",
    "Unpaused",
    "UserMessage",
    "ValuesMerged",
    "Withdrawn",
    "record_from_dict",
    "record_to_dict",
]


def _read_record(data: Any) -> Any:
    return record_from_dict(data) if isinstance(data, dict) else data


def _tell_record(record: Any) -> dict[str, Any]:
    return record_to_dict(record)


StoredRecord = Annotated[
    Any, pydantic.PlainValidator(_read_record), pydantic.PlainSerializer(_tell_record)
]
"""Any record: typed so where `Record` itself is still to be defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run ends, as data: enough to make its outcome again (J1)."""

    outcome: Literal["completed", "failed", "stopped", "withdrawn"]
    text: str = ""
    tool_call: str | None = None
    """Key of the until tool's call that ended the run."""
    tool_arguments: dict[str, Any] | None = None
    """What that call was run with."""
    error: dict[str, Any] | None = None
    signals: dict[str, Any] | None = None
    """What stopped the run."""
    early_stopped: bool = False
    """The model had to answer before it was done (R1)."""
    output: Any = None
    """The final text as a value of the agent's `output_type`, as JSON (W4)."""
    has_output: bool = False
    """Whether there is such a value: it may be None itself."""
    output_key: str | None = None
    """Where in the values the final text, or its value, is put (W4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCreated:
    """The agent's first fact, where it begins with values."""

    values: dict[str, Any]
    kind: Literal["agent_created"] = "agent_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The agent's records were put here from a copy: what stood open may have gone on elsewhere.

    Calls that were started are in doubt, and what a person was asked is asked anew (J5, J7).
    """

    at: datetime
    agent_id: str
    """Where it was before."""
    incarnation: int
    kind: Literal["imported"] = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusNoted:
    """The agent's status is another one now, and subscribers are told so (A1)."""

    status: str
    runs: int | None = None
    """So many runs in a row did the agent start by messages to itself: it waits now (A4)."""
    kind: Literal["status_noted"] = "status_noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesMerged:
    """A middleware changed the agent's values, on a message to it (A7)."""

    delta: dict[str, Any]
    source: str
    kind: Literal["values_merged"] = "values_merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """The run was cut off too often in a row without getting further: nothing wakes it (J10)."""

    cause: str
    kind: Literal["quarantined"] = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """Somebody mended what had cut the run off: it may be tried again (J10)."""

    kind: Literal["released"] = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins, with all that must hold for the whole of it."""

    run_id: str
    agent: str
    at: datetime
    message: StoredRequest | None
    """The input, as it enters the conversation; None for an agent of a workflow."""
    until_tool: tuple[str, ...] | None
    require_tool_success: bool
    max_runs: int
    early_stopping: str
    fingerprint: str
    deps_given: bool
    pause_when_given: bool
    message_ids: tuple[str, ...] = ()
    """The queued messages that went into the input: they leave the queue by this."""
    values: dict[str, Any] = field(default_factory=dict)
    """Defaults that the middleware's `state_schema` adds."""
    agent_id: str = ""
    """Of the actor that runs it; the agent's name where there is none."""
    deadline: float | None = None
    """Seconds that the run may take, not counting the waits for people (P9)."""
    max_overrides: int = 3
    """So often in a row may the signals of one guard be overridden (P4)."""
    shares: bool = False
    """It is an agent of a workflow: it goes on with the workflow's conversation and values (W5)."""
    contents: Literal["default", "none"] = "default"
    """How much of the conversation it is shown."""
    workflow: str | None = None
    """The agents that its mode runs, where it is a workflow itself (J12)."""
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The n-th time that this run is driven: first, after an answer, after a crash."""

    number: int
    reply_lost: bool = False
    """The one before it may have been cut off in the middle of a reply of the model (J17)."""
    kind: Literal["attempt"] = "attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message from a user enters the conversation."""

    message: StoredRequest
    message_ids: tuple[str, ...] = ()
    author: str | None = None
    kind: Literal["user_message"] = "user_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued:
    """A message waits: for the end of the run, or to steer the one that goes on (A2)."""

    message_id: str
    message: StoredRequest
    steer: bool = False
    self_sent: bool = False
    """By a tool or hook of the agent itself, not from outside (A4, I10)."""
    kind: Literal["message_queued"] = "message_queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody wants the run cancelled: whatever follows, it ends as stopped (J13)."""

    signal: dict[str, Any]
    kind: Literal["cancel_requested"] = "cancel_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signalled:
    """Somebody wants the run to stop before turn number `turn` (P3).

    It stands at that boundary alone: where the run went on nevertheless, it was overridden (P4).
    """

    turn: int
    signal: dict[str, Any]
    answer: bool = False
    """The model may answer once more, without tools, before the run ends."""
    kind: Literal["signal"] = "signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Somebody wants turn number `turn` to come, whatever signals stand before it (P4)."""

    turn: int
    source: str | None = None
    prompt: str | None = None
    """What the model is told where it had no tool call to go on from."""
    kind: Literal["override"] = "override"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopBegun:
    """The model is to answer now, with what it has, and without tools (R1)."""

    turn: int
    """The number of its answer."""
    message: StoredRequest
    """What it is told."""
    kind: Literal["early_stop_begun"] = "early_stop_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent:
    """So many seconds has the run been going, all its drives together (P5)."""

    seconds: float
    kind: Literal["time_spent"] = "time_spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksRan:
    """The `on_run_start` hooks of this run are done."""

    stage: Literal["run_start"] = "run_start"
    kind: Literal["hooks_ran"] = "hooks_ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The model's reply, after `after_model`. It opens a turn."""

    turn: int
    response: StoredResponse
    cut: bool = False
    """Broken off or cut by its length: its tool calls are not to run (R6)."""
    broken: dict[str, Any] | None = None
    """The error that broke its stream: the run ends by it."""
    kind: Literal["reply"] = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseChecked:
    """`pause_when` was asked about this turn, and said no."""

    turn: int
    kind: Literal["pause_checked"] = "pause_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The run pauses in this turn, before its tools."""

    turn: int
    reason: str
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaused:
    """Somebody lets the paused run go on."""

    kind: Literal["unpaused"] = "unpaused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A person is asked about a call: from now on only an answer or a withdrawal releases it."""

    request: Request
    replaces: tuple[str, ...] = ()
    """Requests that this one asks again, because what they showed has changed (I12)."""
    kind: Literal["requested"] = "requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The answer to a request."""

    request_id: str
    decision: Decision
    at: datetime
    sticky: bool = False
    """It came from an earlier `always=True`."""
    kind: Literal["decided"] = "decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptsChecked:
    """Every middleware was asked which calls of this turn need a person, and said so, once (I7).

    One fact, so that a crash cannot part what was asked from that it was asked.
    """

    turn: int
    requests: tuple[Request, ...] = ()
    decided: tuple[Decided, ...] = ()
    """Answers that earlier ones with `always=True` give at once."""
    kind: Literal["interrupts_checked"] = "interrupts_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """An answer given with `always=True` holds no longer."""

    tool_name: str
    kind: Literal["revoked"] = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A call is about to run: durable before the tool's body is entered (J3)."""

    call_key: str
    tool_name: str
    tool_call_id: str
    attempt: int
    idempotent: bool = False
    """Running it again has no second effect: cut off, it is in no doubt."""
    epoch: int = 0
    kind: Literal["started"] = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that a call brought."""

    call_key: str
    part: StoredToolReturn
    value: Any = None
    """The tool's own return value as JSON, where it is more than the part's content (J18)."""
    value_is: Literal["content", "separate", "given", "lost"] = "content"
    """`given`: by a person instead of the tool; it is the content.

    `lost`: the value could not be serialised and is gone after a recovery.
    """
    state: dict[str, Any] | None = None
    doubt: str | None = None
    """Set where the outcome is unknown: why (J4)."""
    signal: dict[str, Any] | None = None
    """The tool raised `StopAgent` with it (P6)."""
    escalate: bool = False
    """It ends the nearest loop around the agent (W2)."""
    skip_summarization: bool = False
    """The run ends with this turn: the model is not asked again (W3)."""
    halt: Request | None = None
    """The tool halted the whole tree of agents; a person can only dismiss it (I11)."""
    kind: Literal["result"] = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The call waits for an agent that it runs, and that waits for a person (S5)."""

    call_key: str
    kind: Literal["suspended"] = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecord:
    """A fact of an agent that a call of this one runs (S3)."""

    child: str
    """Its key: the call's, with a number behind it where the call runs several."""
    name: str
    record: StoredRecord
    kind: Literal["child_record"] = "child_record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What a call in doubt really did is known now, so the doubt is gone (J4)."""

    call_key: str
    how: str
    kind: Literal["settled"] = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Propagated:
    """The results of this turn are all there: its message is made, its deltas are merged, once."""

    turn: int
    at: datetime
    kind: Literal["propagated"] = "propagated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnClosed:
    """What was decided at the end of a turn: ask the model again, or end the run so (J1)."""

    turn: int
    end: End | None = None
    message: StoredRequest | None = None
    """What the model is told before it is asked again.

    Why its answer is none (W4), or to go on though it had asked for nothing (P3).
    """
    kind: Literal["turn_closed"] = "turn_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRunEnded:
    """An agent of this workflow is done: what it said and changed is the workflow's now, once."""

    child: str
    agent: str
    round: int
    index: int
    """Its place among the workflow's agents."""
    outcome: Literal["completed", "failed", "stopped"]
    escalated: bool = False
    """One of its tools asked to end the nearest loop (W2)."""
    passes_on: bool = False
    """This workflow is no loop: whoever runs it is asked the same."""
    at: datetime
    kind: Literal["sub_run_ended"] = "sub_run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplaced:
    """A middleware rewrote the conversation, for good (J15)."""

    messages: tuple[StoredMessage, ...]
    kind: Literal["history_replaced"] = "history_replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A side effect of a hook is done and brought this (J15)."""

    key: str
    value: Any
    kind: Literal["once"] = "once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """A new message from outside takes the standing requests back (I10)."""

    request_ids: tuple[str, ...]
    kind: Literal["withdrawn"] = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run is over. Calls of an open turn that never ran get a result that says so."""

    end: End
    at: datetime
    kind: Literal["run_ended"] = "run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A whole state, where a journal does not begin with the agent's first record."""

    state: dict[str, Any]
    kind: Literal["snapshot"] = "snapshot"


Record = (
    AgentCreated
    | Imported
    | StatusNoted
    | ValuesMerged
    | Quarantined
    | Released
    | RunStarted
    | Attempt
    | UserMessage
    | MessageQueued
    | CancelRequested
    | Signalled
    | Override
    | EarlyStopBegun
    | TimeSpent
    | HooksRan
    | Reply
    | PauseChecked
    | Paused
    | Unpaused
    | Requested
    | InterruptsChecked
    | Decided
    | Revoked
    | Started
    | Result
    | Suspended
    | ChildRecord
    | Settled
    | Propagated
    | TurnClosed
    | SubRunEnded
    | HistoryReplaced
    | Once
    | Withdrawn
    | RunEnded
    | Snapshot
)


@cache
def _adapter() -> pydantic.TypeAdapter[Record]:
    return pydantic.TypeAdapter(Annotated[Record, pydantic.Discriminator("kind")])


def record_to_dict(record: Record) -> dict[str, Any]:
    """A record as JSON-able data; fields at their default are left out."""
    data = _adapter().dump_python(record, mode="json", exclude_defaults=True)
    return {"kind": record.kind, **cast("dict[str, Any]", data)}


def record_from_dict(data: dict[str, Any]) -> Record:
    """The record that `record_to_dict` told."""
    return _adapter().validate_python(data)

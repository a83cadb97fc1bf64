"""The type of any record, also of an inner agent, and its form as JSON-able data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, cast

import pydantic

from understudy._base.quickly_made import quickly_made
from understudy.state.records import agents, calls, ends, queue, replies, requests, runs
from understudy.state.records.timed import Timed


def _load_record(data: Any) -> Any:
    return record_from_dict(data) if isinstance(data, dict) else data


def _dump_record(record: Any) -> dict[str, Any]:
    return record_to_dict(record)


StoredRecord = Annotated[
    Any, pydantic.PlainValidator(_load_record), pydantic.PlainSerializer(_dump_record)
]
"""Any record, as the type of a field that holds a record. `Record` itself is defined later."""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecord(Timed):
    """A record of a child: an agent that this agent runs, by a call or as a workflow."""

    child: str
    """The key of the child. For a call it is the call key; from the call's second child on with `+`
    and a number."""
    name: str
    """The name of the child's agent."""
    record: StoredRecord
    kind: Literal["child_record"] = "child_record"


Record = (
    agents.AgentCreated
    | agents.Imported
    | agents.StatusNoted
    | agents.ValuesMerged
    | runs.Quarantined
    | runs.Released
    | runs.RunStarted
    | runs.Attempt
    | runs.AttemptClosed
    | queue.UserMessage
    | queue.MessageQueued
    | queue.BackgroundStarted
    | queue.MessageDue
    | queue.MessageCancelled
    | queue.MessageRefused
    | queue.MessagesArchived
    | queue.PauseRequested
    | queue.ScheduleSet
    | queue.ScheduleRemoved
    | queue.Occurred
    | runs.CancelRequested
    | runs.Signalled
    | runs.Override
    | runs.EarlyStopBegun
    | runs.TimeSpent
    | runs.HooksRan
    | replies.Reply
    | replies.ReplyHeld
    | replies.PauseChecked
    | replies.Paused
    | replies.Unpaused
    | requests.Requested
    | requests.InterruptsChecked
    | requests.Reminded
    | requests.Escalated
    | requests.Voted
    | requests.GlassBroken
    | requests.ReviewClosed
    | requests.Decided
    | requests.Revoked
    | calls.Started
    | calls.Result
    | agents.FilesChanged
    | calls.Suspended
    | calls.PointReached
    | calls.TokenMade
    | calls.PointAnswered
    | ChildRecord
    | calls.Settled
    | replies.Propagated
    | replies.TurnClosed
    | ends.SubRunEnded
    | agents.HistoryReplaced
    | runs.Once
    | replies.ModelAsked
    | replies.ModelGaveNoAnswer
    | requests.Withdrawn
    | ends.RunEnded
    | agents.Snapshot
    | agents.SnapshotMessages
)
"""Any record of a journal."""


def innermost(record: Record) -> Record:
    """The record as it was made, by the agent itself or by an agent inside it."""
    while isinstance(record, ChildRecord):
        record = record.record
    return record


def agents_inside(record: Record) -> list[ChildRecord]:
    """The record and the records in it by which agents inside have one, the outermost first.

    They say the keys and the names of these agents. Empty for a record of the agent itself.
    """
    found = []
    while isinstance(record, ChildRecord):
        found.append(record)
        record = record.record
    return found


def status_in(record: Record) -> str | None:
    """The agent's new status; None if the record does not change it."""
    return record.status if isinstance(record, _WITH_STATUS) else None


_WITH_STATUS = (agents.StatusNoted, runs.RunStarted, runs.Attempt, ends.RunEnded)
"""The kinds of records that may have a new status of the agent."""

stamp: Callable[[Record, datetime], None] = cast("Any", Timed).at.__set__
"""Set the time of a new record, which has no time yet."""
set_closes_turn: Callable[[calls.Result, bool], None] = cast(
    "Any", calls.Result
).closes_turn.__set__
"""Set on a new result whether it closes its turn, which is known only when it is recorded.

No other field of a record ever changes. A copy of it with `replace` takes 3 µs.
"""


@cache
def _adapter() -> pydantic.TypeAdapter[Record]:
    return pydantic.TypeAdapter(Annotated[Record, pydantic.Discriminator("kind")])


def record_to_dict(record: Record) -> dict[str, Any]:
    """Return a record as JSON-able data, without the fields that have their default."""
    data = _adapter().dump_python(record, mode="json", exclude_defaults=True)
    return {"kind": record.kind, **cast("dict[str, Any]", data)}


def record_from_dict(data: dict[str, Any]) -> Record:
    """Return the record from its `record_to_dict`."""
    return _adapter().validate_python(data)

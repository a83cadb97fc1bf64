"""The records of an agent. Its state is their fold, and nothing else changes it.

A record is one small, frozen fact. `record_to_dict` gives JSON-able data without loss, for any
journal. Kinds and fields are stored: they are not renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, cast

import pydantic
from pydantic_ai.usage import RunUsage

from understudy._base.context_codecs import StoredContext
from understudy._base.quickly_made import quickly_made
from understudy.interrupts import Decision, Request
from understudy.models.messages import (
    StoredMessage,
    StoredRequest,
    StoredResponse,
    StoredToolReturn,
    StoredUserPrompt,
)
from understudy.state.costs import Lines
from understudy.state.files import FileChange
from understudy.state.plans import Occurrence, Schedule


def _load_record(data: Any) -> Any:
    return record_from_dict(data) if isinstance(data, dict) else data


def _dump_record(record: Any) -> dict[str, Any]:
    return record_to_dict(record)


StoredRecord = Annotated[
    Any, pydantic.PlainValidator(_load_record), pydantic.PlainSerializer(_dump_record)
]
"""Any record, for a field of a record: `Record` is defined after them."""

PointKind = Literal["sleep", "wait", "once"]
"""What a tool does at a named point of its call."""
PointEnd = Literal["over", "value", "rejected", "expired", "failed"]
"""How a point ends. `over`: the time of a sleep has come. `value`: a wait was resolved, or what is
done once is done. `rejected`, `expired`: the wait. `failed`: what was done once is done, and its
value cannot be kept.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a run ends, as data: its outcome can be rebuilt from it."""

    outcome: Literal["completed", "failed", "stopped", "withdrawn"]
    text: str = ""
    tool_call: str | None = None
    """The key of the until tool's call that ended the run."""
    tool_arguments: dict[str, Any] | None = None
    """The arguments that this call ran with."""
    error: dict[str, Any] | None = None
    signals: dict[str, Any] | None = None
    """The signals that stopped the run."""
    early_stopped: bool = False
    """The run reached a limit, and the model answered with what it had."""
    output: Any = None
    """The final text as a value of the agent's `output_type`, as JSON."""
    has_output: bool = False
    """Whether there is an `output`, which may be None itself."""
    output_key: str | None = None
    """The key of the agent's values under which the output, or else the text, is put."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A record that the ledger gives its time, in the moment in which it is recorded."""

    at: datetime | None = field(default=None, compare=False)
    """None in data from before records had it, and of a record that another one holds.

    Not compared: the same signal at another time is the same signal.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCreated(Timed):
    """The first record of an agent that starts with values."""

    values: dict[str, Any]
    kind: Literal["agent_created"] = "agent_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The agent's records were imported: the original may have continued an open run.

    Calls that were started are in doubt, and pending requests are made again.
    """

    at: datetime
    agent_id: str
    """The id under which it was exported."""
    incarnation: int
    kind: Literal["imported"] = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusNoted(Timed):
    """The agent's status changed, which is emitted to subscribers."""

    status: str
    runs: int | None = None
    """The number of runs in a row that the agent started by messages to itself, at the limit."""
    kind: Literal["status_noted"] = "status_noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesMerged(Timed):
    """A middleware changed the agent's values when it got a message."""

    delta: dict[str, Any]
    source: str
    kind: Literal["values_merged"] = "values_merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined(Timed):
    """The run had too many attempts in a row without progress and is not continued."""

    cause: str
    kind: Literal["quarantined"] = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Timed):
    """A quarantined run may be continued again."""

    kind: Literal["released"] = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run starts, with the options that hold for the whole run."""

    run_id: str
    agent: str
    at: datetime
    message: StoredRequest | None
    """The input, as it is added to the conversation; None for an agent of a workflow."""
    until_tool: tuple[str, ...] | None
    require_tool_success: bool
    max_runs: int
    early_stopping: str
    fingerprint: str
    deps_given: bool
    pause_when_given: bool
    message_ids: tuple[str, ...] = ()
    """The queued messages that the input was made from; they leave the queue."""
    values: dict[str, Any] = field(default_factory=dict)
    """Defaults from the `state_schema` of the middleware."""
    agent_id: str = ""
    """Of the actor that runs it; the agent's name where there is none."""
    deadline: float | None = None
    """The seconds that the run may take, without the waits for people."""
    max_overrides: int = 3
    """How many times in a row the signals of one guard may be overridden."""
    shares: bool = False
    """It is an agent of a workflow and shares the workflow's conversation and values."""
    contents: Literal["default", "none"] = "default"
    """`none`: the model gets only the run's messages and the latest turn of another author."""
    workflow: str | None = None
    """Of a workflow: the agents of its mode."""
    forced: bool = False
    """The model must call the until tool."""
    ends_at: datetime | None = None
    """The time at which the run is stopped, also while it waits."""
    occurrence: Occurrence | None = None
    """The time of a schedule that it is the run of."""
    context: StoredContext = field(default_factory=dict)
    """That of who sent its message, or the last of several."""
    initial: tuple[StoredMessage, ...] = ()
    """Of an agent that a call runs: the conversation that it begins with, before its message."""
    told: str = ""
    """Of an agent that a call runs: what it is told besides its own instructions."""
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Timed):
    """An attempt at the run begins: at its start, at a resume, or after a crash."""

    number: int
    """From 1."""
    reply_lost: bool = False
    """The attempt before it may have ended in the middle of a reply of the model."""
    host: str | None = None
    """Who makes it, of a store that hosts share; None elsewhere, and in older records."""
    trace: str | None = None
    """The W3C traceparent of its span; None where it has none, and in older records."""
    kind: Literal["attempt"] = "attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptClosed(Timed):
    """The attempt ended between two steps, for the agent was to be passivated: it is no crash."""

    kind: Literal["attempt_closed"] = "attempt_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage(Timed):
    """A message from a user is added to the conversation."""

    message: StoredRequest
    message_ids: tuple[str, ...] = ()
    """The queued messages that it was made from; they leave the queue."""
    author: str | None = None
    kind: Literal["user_message"] = "user_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued(Timed):
    """A message is queued until the run ends, or until the run takes it."""

    message_id: str
    message: StoredRequest
    steer: bool = False
    """The run in progress takes it, before its next model call."""
    self_sent: bool = False
    """A tool or hook of the agent itself sent it."""
    due: datetime | None = None
    """It waits until this time; then it is queued."""
    context: StoredContext = field(default_factory=dict)
    """That of who sent it."""
    kind: Literal["message_queued"] = "message_queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDue:
    """The time of a message has come: it is queued from now on."""

    message_id: str
    at: datetime
    kind: Literal["message_due"] = "message_due"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCancelled:
    """A message that no run has taken yet is cancelled. Its id is free again."""

    message_id: str
    at: datetime
    kind: Literal["message_cancelled"] = "message_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """The run, or else the next one, is to be paused after its next model reply."""

    reason: str | None
    """None: it is not to be paused any more."""
    at: datetime
    kind: Literal["pause_requested"] = "pause_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSet:
    """A schedule of the agent, in place of the one of the same id."""

    schedule: Schedule
    at: datetime
    kind: Literal["schedule_set"] = "schedule_set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRemoved:
    """A schedule is removed, with its occurrences that wait for their runs."""

    schedule_id: str
    at: datetime
    kind: Literal["schedule_removed"] = "schedule_removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurred:
    """A time of a schedule has come: it waits for its run, or is skipped."""

    occurrence: Occurrence
    message_id: str = ""
    """Of its input in the queue; empty where it is skipped."""
    since: datetime | None = None
    """Of occurrences that were missed together, which are one record: the first one."""
    next_due: datetime | None = None
    """The next occurrence that is not recorded yet. Not used of one that was triggered."""
    at: datetime
    kind: Literal["occurred"] = "occurred"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Timed):
    """The run is cancelled: whatever follows, it ends as stopped by `signal`."""

    signal: dict[str, Any]
    kind: Literal["cancel_requested"] = "cancel_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signalled(Timed):
    """A signal to stop the run before turn number `turn`.

    It holds at that boundary alone. Where the run continued nevertheless, it was overridden.
    """

    turn: int
    signal: dict[str, Any]
    answer: bool = False
    """The model may answer once more, without calling a tool, before the run ends."""
    kind: Literal["signal"] = "signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override(Timed):
    """A request to begin turn number `turn` in spite of signals at its boundary."""

    turn: int
    source: str | None = None
    prompt: str | None = None
    """The prompt for the model, where its reply had no tool call."""
    kind: Literal["override"] = "override"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopBegun(Timed):
    """The model has to answer now, without calling a tool."""

    turn: int
    """The number of the turn with its answer."""
    message: StoredRequest
    """The prompt that says so."""
    kind: Literal["early_stop_begun"] = "early_stop_begun"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent(Timed):
    """The seconds that the run took so far, in all attempts together."""

    seconds: float
    kind: Literal["time_spent"] = "time_spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksRan(Timed):
    """The `on_run_start` hooks of this run are done."""

    stage: Literal["run_start"] = "run_start"
    kind: Literal["hooks_ran"] = "hooks_ran"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Timed):
    """The model's reply, as `after_model` returned it. It opens a turn."""

    turn: int
    response: StoredResponse
    cut: bool = False
    """It is incomplete, by a broken stream or a length limit: its tool calls do not run."""
    broken: dict[str, Any] | None = None
    """The error that broke its stream, and that ends the run."""
    kind: Literal["reply"] = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHeld(Timed):
    """The model's reply, as it came: `after_model` asks a person about it before it counts."""

    turn: int
    response: StoredResponse
    kind: Literal["reply_held"] = "reply_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseChecked(Timed):
    """`pause_when` was called for this turn, and the run does not pause."""

    turn: int
    kind: Literal["pause_checked"] = "pause_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Timed):
    """The run pauses in this turn, before its tool calls."""

    turn: int
    reason: str
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaused(Timed):
    """The paused run continues."""

    kind: Literal["unpaused"] = "unpaused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Timed):
    """A request about a call: from now on the call needs a decision or a withdrawal."""

    request: Request
    replaces: tuple[str, ...] = ()
    """The requests that it replaces, because what they showed has changed."""
    reply_size: int = 1
    """In the index of a store: how many requests the reply of the model had. Else it is 1."""
    kind: Literal["requested"] = "requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminded:
    """The person is reminded of a request: its `number`-th reminder was due, and those before."""

    request_id: str
    number: int
    """From 1. Of several that are due at once only the last one is recorded."""
    at: datetime
    kind: Literal["reminded"] = "reminded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalated:
    """Somebody else is told of a request: its `number`-th escalation was due."""

    request_id: str
    number: int
    """From 1."""
    audience: str
    at: datetime
    kind: Literal["escalated"] = "escalated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision on a request."""

    request_id: str
    decision: Decision
    at: datetime
    sticky: bool = False
    """It comes from an earlier `always=True`."""
    context: StoredContext = field(default_factory=dict)
    """That of who decided."""
    kind: Literal["decided"] = "decided"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptsChecked(Timed):
    """Every middleware has said which calls of this turn need a person.

    One record, so that after a crash either all requests are there or all middleware is called
    again.
    """

    turn: int
    requests: tuple[Request, ...] = ()
    decided: tuple[Decided, ...] = ()
    """Decisions that follow at once from earlier ones with `always=True`."""
    kind: Literal["interrupts_checked"] = "interrupts_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked(Timed):
    """A decision with `always=True` holds no longer."""

    tool_name: str
    kind: Literal["revoked"] = "revoked"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Timed):
    """A call is about to run. The record is durable before the tool's body is entered."""

    call_key: str
    tool_name: str
    tool_call_id: str
    attempt: int
    idempotent: bool = False
    """Running it again has no second effect, so it is never in doubt."""
    epoch: int = 0
    kind: Literal["started"] = "started"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Timed):
    """The result of a call, with everything that follows from it."""

    call_key: str
    part: StoredToolReturn
    value: Any = None
    """The tool's own return value as JSON, where `value_is` is `separate`."""
    value_is: Literal["content", "separate", "given", "lost"] = "content"
    """Where the tool's own return value is.

    `content`: it is the part's content. `separate`: in `value`. `given`: a person gave the content
    instead of the tool. `lost`: it could not be serialised and is gone after a recovery.
    """
    state: dict[str, Any] | None = None
    """The delta of the agent's values."""
    doubt: str | None = None
    """Set where the outcome is unknown: the reason."""
    signal: dict[str, Any] | None = None
    """The signal of a `StopAgent` that the tool raised."""
    escalate: bool = False
    """It ends the nearest loop around the agent."""
    skip_summarization: bool = False
    """The run ends with this turn, without another model call."""
    halt: Request | None = None
    """The request of a `Halt` that the tool raised."""
    user_prompt: StoredUserPrompt | None = None
    """What the tool gives the model beside its result, after the results of its turn."""
    files: tuple[FileChange, ...] = ()
    """The files that the call has changed."""
    kind: Literal["result"] = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesChanged(Timed):
    """Files of the agent were changed, by no call of a tool."""

    files: tuple[FileChange, ...]
    own: bool = False
    """A sub-agent has files of its own from now on: these. Else it shares those above it."""
    kind: Literal["files_changed"] = "files_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(Timed):
    """The call is suspended: an agent that it runs waits, or it waits at a point."""

    call_key: str
    kind: Literal["suspended"] = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointReached:
    """A call has come to a named point of its tool where it sleeps, or waits for the outside.

    Or the model call of the next turn is put off.
    """

    call_key: str
    name: str
    """The tool's name for the point; a name is of one point of the call."""
    what: Literal["sleep", "wait"]
    at: datetime
    due: datetime | None = None
    """When a sleep is over, or a wait has timed out; None for never."""
    suspends: bool = True
    """The call is suspended with it. Not where something else of the call is under way."""
    reason: str | None = None
    """Of a call that failed and is retried: its error. Of a model call: why it is put off."""
    used: RunUsage | None = None
    """Of a model call that is put off: what replies used that were no answer."""
    costs: Lines = ()
    """What they cost, if they were priced."""
    kind: Literal["point_reached"] = "point_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMade:
    """A call has a token by which one of its waits can be answered, now or before it waits."""

    call_key: str
    name: str
    """The name of the wait."""
    token_hash: str
    """The SHA-256 of the token, as hexadecimal digits. The token itself is not stored."""
    at: datetime
    kind: Literal["token_made"] = "token_made"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnswered:
    """A point is over: from now on the tool passes it at once, whenever it runs."""

    call_key: str
    name: str
    what: PointKind
    how: PointEnd
    value: Any = None
    """Of a wait that was resolved, and of what was done once, as JSON."""
    reason: str | None = None
    """Why a wait was rejected, or why what was done once has no value."""
    at: datetime
    kind: Literal["point_answered"] = "point_answered"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecord(Timed):
    """A record of an agent that this one runs, by a call or as a workflow."""

    child: str
    """The child's key. Of a call: the call key, from its second child on with `+` and a number."""
    name: str
    """The name of the child's agent."""
    record: StoredRecord
    kind: Literal["child_record"] = "child_record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Timed):
    """The outcome of a call in doubt is known now."""

    call_key: str
    how: str
    token_hash: str | None = None
    """Of the wait of the call whose late answer shows it."""
    answer: PointEnd | None = None
    """What that answer was: a `value`, or `rejected`."""
    value: Any = None
    reason: str | None = None
    kind: Literal["settled"] = "settled"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Propagated:
    """All results of this turn are recorded: they become one message, and their deltas merge."""

    turn: int
    at: datetime
    kind: Literal["propagated"] = "propagated"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class TurnClosed(Timed):
    """The end of a turn, and whether the run ends with it."""

    turn: int
    end: End | None = None
    """How the run ends; None where the model is called again."""
    message: StoredRequest | None = None
    """A prompt before that call: why its answer was invalid, or to continue after an override."""
    kind: Literal["turn_closed"] = "turn_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubRunEnded:
    """An agent of this workflow has ended: its messages and changes are now the workflow's."""

    child: str
    agent: str
    round: int
    index: int
    """The agent's index among the workflow's agents."""
    outcome: Literal["completed", "failed", "stopped"]
    escalated: bool = False
    """One of its tools asked to end the nearest loop."""
    passes_on: bool = False
    """This workflow is not a loop, so the escalation goes on to the workflow around it."""
    at: datetime
    kind: Literal["sub_run_ended"] = "sub_run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplaced(Timed):
    """A middleware replaced the conversation."""

    messages: tuple[StoredMessage, ...]
    kind: Literal["history_replaced"] = "history_replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Once(Timed):
    """A side effect of a hook, run by `run.once`, is done and returned `value`."""

    key: str
    value: Any
    kind: Literal["once"] = "once"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAsked(Timed):
    """A model answered beside the conversation, by `run.ask_model`."""

    key: str
    response: StoredResponse
    """Its reply, without the parts: `value` is what they say."""
    value: Any
    """The answer, as JSON."""
    kind: Literal["model_asked"] = "model_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGaveNoAnswer(Timed):
    """A model was asked by `run.ask_model`, and its replies are no answer. They cost nevertheless.

    It is no progress: a run that only repeats it is quarantined in the end.
    """

    key: str
    response: StoredResponse
    """The last of them."""
    error: str
    kind: Literal["model_gave_no_answer"] = "model_gave_no_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn(Timed):
    """A new message from outside withdraws the pending requests."""

    request_ids: tuple[str, ...]
    kind: Literal["withdrawn"] = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run has ended. Calls of an open turn that did not run get a result that says so."""

    end: End
    at: datetime
    kind: Literal["run_ended"] = "run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Timed):
    """A whole state, where a journal no longer has the agent's first records."""

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
    | AttemptClosed
    | UserMessage
    | MessageQueued
    | MessageDue
    | MessageCancelled
    | PauseRequested
    | ScheduleSet
    | ScheduleRemoved
    | Occurred
    | CancelRequested
    | Signalled
    | Override
    | EarlyStopBegun
    | TimeSpent
    | HooksRan
    | Reply
    | ReplyHeld
    | PauseChecked
    | Paused
    | Unpaused
    | Requested
    | InterruptsChecked
    | Reminded
    | Escalated
    | Decided
    | Revoked
    | Started
    | Result
    | FilesChanged
    | Suspended
    | PointReached
    | TokenMade
    | PointAnswered
    | ChildRecord
    | Settled
    | Propagated
    | TurnClosed
    | SubRunEnded
    | HistoryReplaced
    | Once
    | ModelAsked
    | ModelGaveNoAnswer
    | Withdrawn
    | RunEnded
    | Snapshot
)
"""Any record of a journal."""


stamp: Callable[[Record, datetime], None] = cast("Any", Timed).at.__set__
"""Gives a new record, which has no time yet, its time. No other field ever changes."""


@cache
def _adapter() -> pydantic.TypeAdapter[Record]:
    return pydantic.TypeAdapter(Annotated[Record, pydantic.Discriminator("kind")])


def record_to_dict(record: Record) -> dict[str, Any]:
    """A record as JSON-able data, without the fields that have their default."""
    data = _adapter().dump_python(record, mode="json", exclude_defaults=True)
    return {"kind": record.kind, **cast("dict[str, Any]", data)}


def record_from_dict(data: dict[str, Any]) -> Record:
    """The record from its `record_to_dict`."""
    return _adapter().validate_python(data)

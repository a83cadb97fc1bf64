"""Records of a run as a whole: its beginning, attempts, signals."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from understudy._base.authors import By
from understudy._base.context_codecs import StoredContext
from understudy._base.quickly_made import quickly_made
from understudy.interrupts import DOUBT_ENDS
from understudy.models.messages import StoredMessage, StoredRequest
from understudy.state.plans import BackgroundCall, Occurrence
from understudy.state.records.timed import Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The record that a run starts, with the options that hold for the whole run."""

    run_id: str
    agent: str
    at: datetime
    message: StoredRequest | None
    """The input, as it is added to the conversation.

    None for an agent of a workflow, and for a run that continues a failed run without a new
    message.
    """
    fingerprint: str
    until_tool: tuple[str, ...] | None = None
    require_tool_success: bool = False
    max_runs: int = 50
    early_stopping: str = "force"
    deps_given: bool = False
    pause_when_given: bool = False
    message_ids: tuple[str, ...] = ()
    """The ids of the queued messages from which the input was made. They leave the queue."""
    values: dict[str, Any] = field(default_factory=dict)
    """The default values from the `state_schema` of the middleware."""
    agent_id: str = ""
    """The id of the agent's actor; the name of the agent if there is no actor."""
    deadline: float | None = None
    """The seconds that the run may take, without the waits for people; None = no limit."""
    max_overrides: int = 3
    """The number of times in a row that the signals of one guard may be overridden."""
    shares: bool = False
    """Whether it is an agent of a workflow that shares the workflow's conversation and values."""
    contents: Literal["default", "none"] = "default"
    """How much of the conversation the model sees.

    With `none` it sees only the messages of the run and the latest turn by another author.
    """
    workflow: str | None = None
    """The agents of its mode, as text, for a workflow; None otherwise."""
    forced: bool = False
    """Whether the model must call the until tool."""
    ends_at: datetime | None = None
    """The time at which the run is stopped, also while it waits."""
    occurrence: Occurrence | None = None
    """The time of a schedule for which the run was started; None for any other run."""
    context: StoredContext = field(default_factory=dict)
    """The context of the sender of its message, by the names of the codecs. Of several senders the
    last counts."""
    initial: tuple[StoredMessage, ...] = ()
    """The conversation with which an agent begins that a call runs, before its message."""
    told: str = ""
    """The instructions that an agent that a call runs gets in addition to its own."""
    continues: str | None = None
    """The id of the failed run that it continues; None if it continues none.

    The failed run was the last run of the agent.
    """
    doubt_ends: float | None = DOUBT_ENDS
    """The seconds after which a doubt ends of which only the model was informed; None = never."""
    by: tuple[By, ...] = ()
    """The people who sent its messages, each once, or who had a failed run retried."""
    also_unnamed: bool = False
    """Whether there is also a message for which nobody was named."""
    makes: BackgroundCall | None = None
    """The background call that the run makes. It opens the first turn, without a reply of a
    model."""
    status: str | None = None
    """The agent's new status, which is `running`; None if the record does not change it."""
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Timed):
    """The record that an attempt at the run begins: at its start, at a resume, or after a crash."""

    number: int
    """The number of the attempt, from 1."""
    reply_lost: bool = False
    """Whether the attempt before may have ended in the middle of a reply of the model."""
    host: str | None = None
    """The host that makes the attempt, if hosts share the store; None otherwise."""
    trace: str | None = None
    """The W3C traceparent of the attempt's span; None if it has no span."""
    by: str | None = None
    """The person who had the runs that were cut off recovered; None if nobody was named."""
    status: str | None = None
    """The agent's new status, which is `running`; None if the record does not change it."""
    kind: Literal["attempt"] = "attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptClosed(Timed):
    """The record that an attempt ended between two steps, because the agent was to be passivated.

    The end is orderly: it does not count as a crash.
    """

    kind: Literal["attempt_closed"] = "attempt_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksRan(Timed):
    """The record that all `on_run_start` hooks of this run are done."""

    stage: Literal["run_start"] = "run_start"
    kind: Literal["hooks_ran"] = "hooks_ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Once(Timed):
    """The record that a side effect of a hook, made by `run.once`, is done and returned `value`."""

    key: str
    value: Any
    kind: Literal["once"] = "once"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent(Timed):
    """The record of the seconds that the run has taken so far, in all attempts together."""

    seconds: float
    kind: Literal["time_spent"] = "time_spent"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(Timed):
    """The record that the run is cancelled. Whatever follows, the run ends as stopped by
    `signal`.
    """

    signal: dict[str, Any]
    kind: Literal["cancel_requested"] = "cancel_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signalled(Timed):
    """The record of a signal to stop the run before the turn number `turn`.

    The signal counts for this turn alone. If the run continued nevertheless, the signal was
    overridden.
    """

    turn: int
    signal: dict[str, Any]
    answer: bool = False
    """Whether the model may answer once more, without a tool call, before the run ends."""
    kind: Literal["signal"] = "signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override(Timed):
    """The record of a request to begin the turn number `turn` in spite of signals before it."""

    turn: int
    source: str | None = None
    prompt: str | None = None
    """The prompt for the model, if its reply had no tool call; None otherwise."""
    kind: Literal["override"] = "override"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStopBegun(Timed):
    """The record that the model must give its last answer now, without a tool call."""

    turn: int
    """The number of the turn that will have the answer."""
    message: StoredRequest
    """The prompt that asks for the last answer."""
    kind: Literal["early_stop_begun"] = "early_stop_begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined(Timed):
    """The record that the run had too many attempts in a row without progress, and is not
    continued.
    """

    cause: str
    kind: Literal["quarantined"] = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Timed):
    """The record that a quarantined run may be continued again."""

    by: By | None = None
    """The person who released it; None if nobody was named."""
    kind: Literal["released"] = "released"

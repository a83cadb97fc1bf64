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
    """A run starts, with the options that hold for the whole run."""

    run_id: str
    agent: str
    at: datetime
    message: StoredRequest | None
    """The input, as it is added to the conversation; None for an agent of a workflow, and where a
    run continues a failed one without a new message."""
    fingerprint: str
    until_tool: tuple[str, ...] | None = None
    require_tool_success: bool = False
    max_runs: int = 50
    early_stopping: str = "force"
    deps_given: bool = False
    pause_when_given: bool = False
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
    continues: str | None = None
    """The id of the failed run that it takes over from, which was the agent's last one."""
    doubt_ends: float | None = DOUBT_ENDS
    """Seconds after which a doubt of the run ends of which only the model was told; None: never."""
    by: tuple[By, ...] = ()
    """The people who sent its messages, each once, or who had a failed run retried."""
    also_unnamed: bool = False
    """Beside these, nobody was named for one of the messages."""
    makes: BackgroundCall | None = None
    """The background call that it makes: it opens the first turn, without a reply of a model."""
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Timed):
    """An attempt at the run begins: at its start, at a resume, or after a crash."""

    number: int
    """From 1."""
    reply_lost: bool = False
    """The attempt before it may have ended in the middle of a reply of the model."""
    host: str | None = None
    """Who makes it, of a store that hosts share; None elsewhere."""
    trace: str | None = None
    """The W3C traceparent of its span; None where it has none."""
    by: str | None = None
    """The person who had the runs that were cut off recovered; None where nobody was named."""
    kind: Literal["attempt"] = "attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptClosed(Timed):
    """The attempt ended between two steps, for the agent was to be passivated: it is no crash."""

    kind: Literal["attempt_closed"] = "attempt_closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksRan(Timed):
    """The `on_run_start` hooks of this run are done."""

    stage: Literal["run_start"] = "run_start"
    kind: Literal["hooks_ran"] = "hooks_ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Once(Timed):
    """A side effect of a hook, run by `run.once`, is done and returned `value`."""

    key: str
    value: Any
    kind: Literal["once"] = "once"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpent(Timed):
    """The seconds that the run took so far, in all attempts together."""

    seconds: float
    kind: Literal["time_spent"] = "time_spent"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined(Timed):
    """The run had too many attempts in a row without progress and is not continued."""

    cause: str
    kind: Literal["quarantined"] = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Timed):
    """A quarantined run may be continued again."""

    by: By | None = None
    """The person who released it; None where nobody was named."""
    kind: Literal["released"] = "released"

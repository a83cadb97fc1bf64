"""Records of calls of tools: starts, results, and the points at which they wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic_ai.usage import RunUsage

from understudy._base.authors import By
from understudy._base.quickly_made import quickly_made
from understudy.interrupts import Request
from understudy.models.messages import StoredToolReturn, StoredUserPrompt
from understudy.state.costs import Lines
from understudy.state.files import FileChange
from understudy.state.records.timed import Timed

PointKind = Literal["sleep", "wait", "once", "check"]
"""What a tool does at a named point of its call. `check`: the call is in doubt, and waits until the
tool's `check` is asked what it did.
"""


Effect = Literal["read_only", "idempotent", "effects"]
"""What it does to call a tool again. `read_only`: it never harms. `idempotent`: it does not harm
under the same call key. `effects`: it may harm.
"""
PointEnd = Literal["over", "value", "rejected", "expired", "failed"]
"""How a point ends. `over`: the time of a sleep, or of a check, has come. `value`: a wait was
resolved, or what is done once is done; the doubt of a check was settled before its time.
`rejected`, `expired`: the wait. `failed`: what was done once is done, and its value cannot be kept.
"""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Timed):
    """A call is about to run. The record is durable before the tool's body is entered."""

    call_key: str
    tool_name: str
    tool_call_id: str
    attempt: int
    effect: Effect = "effects"
    """What running it again does: see `Effect`."""
    epoch: int = 0
    arguments: dict[str, Any] | None = None
    """Those that the call runs with; None where they are as recorded before, or as the model wrote
    them."""
    key_hash: str | None = None
    """The hash of the key that the call has taken, by which others are equal to it; None where its
    tool has no key, and where it was recorded before."""
    gates_asked_by: str = ""
    """Where the gates have just let all calls of the turn pass without a word: the process and the
    definition that have asked them, as of `InterruptsChecked.asked_by`."""
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
    settled: str | None = None
    """What settled the doubt about the call, where it had been in doubt: `check`, for instance."""
    ran: bool = False
    """The tool ran, and its result cannot be kept, as the part says. It must not run again."""
    not_entered: bool = False
    """This attempt at the call ended before its body was entered: a middleware answered, say."""
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
    closes_turn: bool = False
    """It is the last one of its turn, and the model is asked next: nothing else can end the run.

    So the results become one message, as by `Propagated`, and the turn ends, as by `TurnClosed`.
    """
    kind: Literal["result"] = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(Timed):
    """The call is suspended: an agent that it runs waits, or it waits at a point.

    Or it was cancelled before its effect: nothing is in doubt, and it may start again.
    """

    call_key: str
    not_entered: bool = False
    """This attempt at the call was cancelled before its effect."""
    kind: Literal["suspended"] = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointReached:
    """A call has come to a named point of its tool where it sleeps, or waits for the outside.

    Or it is in doubt, and waits until its check is asked. Or the model call of the next turn is put
    off.
    """

    call_key: str
    name: str
    """The tool's name for the point; a name is of one point of the call."""
    what: Literal["sleep", "wait", "check"]
    at: datetime
    due: datetime | None = None
    """When a sleep is over, a wait has timed out, or a check is asked; None for never."""
    suspends: bool = True
    """The call is suspended with it. Not where something else of the call is under way."""
    reason: str | None = None
    """Of a call that failed and is retried: its error. Of a call in doubt: why it is. Of a model
    call: why it is put off."""
    unknown: bool = False
    """Of a call that failed and is retried: its error does not say whether it took effect."""
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
    by: By | None = None
    """Who has answered a wait; None where nobody was named."""
    at: datetime
    kind: Literal["point_answered"] = "point_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Timed):
    """A call is in doubt no longer: its outcome is known now, or its doubt has ended by itself."""

    call_key: str
    how: str
    token_hash: str | None = None
    """Of the wait of the call whose late answer shows it."""
    answer: PointEnd | None = None
    """What that answer was: a `value`, or `rejected`."""
    value: Any = None
    reason: str | None = None
    happened: bool = True
    """Whether the call took effect, or may have: then it counts as done for calls with its key. If
    not, it gives the key back."""
    ended: bool = False
    """Nobody has found out what the call did: the doubt is only too old to hold other calls."""
    by: By | None = None
    """The person who settled it; None where nobody was named."""
    kind: Literal["settled"] = "settled"

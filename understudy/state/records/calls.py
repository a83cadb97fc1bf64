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
"""What a tool does at a named point of its call.

`check`: the call is in doubt, and waits until the tool's `check` is asked what the call did.
"""


Effect = Literal["read_only", "idempotent", "effects"]
"""The effect of calling a tool again.

- `read_only`: another call never harms.
- `idempotent`: another call does not harm under the same call key.
- `effects`: another call may harm.
"""
PointEnd = Literal["over", "value", "rejected", "expired", "failed"]
"""How a point ends.

- `over`: the time of a sleep, or of a check, has come.
- `value`: a wait was resolved, what is done once is done, or the doubt of a check was settled
  before its time.
- `rejected`, `expired`: a wait ended without a value.
- `failed`: what was done once is done, and its value cannot be kept.
"""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Timed):
    """The record that a call is about to run. It is durable before the tool's body is entered."""

    call_key: str
    tool_name: str
    tool_call_id: str
    attempt: int
    effect: Effect = "effects"
    """The effect of running the call again: see `Effect`."""
    epoch: int = 0
    arguments: dict[str, Any] | None = None
    """The arguments with which the call runs; None if they are as recorded before, or as the model
    wrote them."""
    key_hash: str | None = None
    """The hash of the key that the call has taken. Calls with the same key are equal.

    None if its tool has no key, and if the key was recorded before.
    """
    gates_asked_by: str = ""
    """The process and the definition of the gates that have just let all calls of the turn pass.

    The form is the same as in `InterruptsChecked.asked_by`. Empty if the gates made a request, or
    were not asked just now.
    """
    kind: Literal["started"] = "started"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Timed):
    """The record of the result of a call, with everything that follows from it."""

    call_key: str
    part: StoredToolReturn
    value: Any = None
    """The tool's return value as JSON, if `value_is` is `separate`."""
    value_is: Literal["content", "separate", "given", "lost"] = "content"
    """The place of the tool's return value.

    - `content`: it is the content of the part.
    - `separate`: it is in `value`.
    - `given`: a person gave the content instead of the tool.
    - `lost`: it could not be serialised, and is gone after a recovery.
    """
    state: dict[str, Any] | None = None
    """The delta of the agent's values."""
    doubt: str | None = None
    """The reason why the outcome is unknown; None if it is known."""
    settled: str | None = None
    """What settled the doubt about the call, such as `check`; None if the call was not in doubt."""
    ran: bool = False
    """Whether the tool ran and its result cannot be kept, as the part says. It must not run
    again."""
    not_entered: bool = False
    """Whether the call ended before the body of the tool was entered: a middleware answered, for
    instance."""
    signal: dict[str, Any] | None = None
    """The signal of a `StopAgent` that the tool raised."""
    escalate: bool = False
    """Whether the call ends the nearest loop around the agent."""
    skip_summarization: bool = False
    """Whether the run ends with this turn, without another model call."""
    halt: Request | None = None
    """The request of a `Halt` that the tool raised."""
    user_prompt: StoredUserPrompt | None = None
    """The content that the tool gives the model in addition to its result.

    It follows the results of the turn.
    """
    files: tuple[FileChange, ...] = ()
    """The files that the call has changed."""
    closes_turn: bool = False
    """Whether it is the last result of its turn, and the model is asked next.

    Nothing else can end the run then. So the results become one message, as by `Propagated`, and
    the turn ends, as by `TurnClosed`.
    """
    kind: Literal["result"] = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(Timed):
    """The record that a call is suspended: an agent that it runs waits, or the call waits at a
    point.

    It also records that a call was cancelled before its effect. Nothing is in doubt then, and the
    call may start again.
    """

    call_key: str
    not_entered: bool = False
    """Whether this attempt at the call was cancelled before its effect."""
    kind: Literal["suspended"] = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointReached:
    """The record that a call has come to a point at which it sleeps, or waits for an answer from
    outside.

    Two other cases have this record too: a call in doubt that waits until its check is asked, and
    the model call of the next turn that is put off.
    """

    call_key: str
    name: str
    """The tool's name for the point. No other point of the call has this name."""
    what: Literal["sleep", "wait", "check"]
    at: datetime
    due: datetime | None = None
    """The time at which a sleep is over, a wait has timed out, or a check is asked; None =
    never."""
    suspends: bool = True
    """Whether the call is suspended by it. It is not if another part of the call is under way."""
    reason: str | None = None
    """The reason for the wait.

    For a call that failed and is retried it is the error. For a call in doubt it says why the call
    is in doubt. For a model call it says why the call is put off.
    """
    unknown: bool = False
    """Whether the call may have taken effect, for a call that failed and is retried."""
    used: RunUsage | None = None
    """For a model call that is put off: the usage of replies that were no answer."""
    costs: Lines = ()
    """The costs of these replies, if they were priced."""
    kind: Literal["point_reached"] = "point_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenMade:
    """The record that a call has a token for one of its waits. An answer may come before the call
    waits.
    """

    call_key: str
    name: str
    """The name of the wait."""
    token_hash: str
    """The SHA-256 of the token, as hexadecimal digits. The token itself is not stored."""
    at: datetime
    kind: Literal["token_made"] = "token_made"


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnswered:
    """The record that a point is over. From now on the tool passes it at once, whenever it runs."""

    call_key: str
    name: str
    what: PointKind
    how: PointEnd
    value: Any = None
    """The value, as JSON: of a wait that was resolved, or of what was done once."""
    reason: str | None = None
    """The reason why a wait was rejected, or why what was done once has no value."""
    by: By | None = None
    """The person who answered a wait; None if nobody was named."""
    at: datetime
    kind: Literal["point_answered"] = "point_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Timed):
    """The record that a call is no longer in doubt.

    Its outcome is known, or the doubt has ended by itself.
    """

    call_key: str
    how: str
    token_hash: str | None = None
    """The hash of the token of the call's wait whose late answer shows the outcome."""
    answer: PointEnd | None = None
    """The type of this answer: a `value`, or `rejected`."""
    value: Any = None
    reason: str | None = None
    happened: bool = True
    """Whether the call took effect, or may have taken effect.

    If so, it counts as done for calls with its key. If not, it gives the key back.
    """
    ended: bool = False
    """Whether the doubt ended only because it is too old to hold other calls. Nobody knows what the
    call did."""
    by: By | None = None
    """The person who settled it; None if nobody was named."""
    kind: Literal["settled"] = "settled"

"""Records of replies of models, and of the turns that they open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from understudy._base.authors import By
from understudy._base.quickly_made import quickly_made
from understudy.models.messages import StoredRequest, StoredResponse
from understudy.state.records.ends import End
from understudy.state.records.timed import Timed


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
class PauseChecked(Timed):
    """`pause_when` was called for this turn, and the run does not pause."""

    turn: int
    kind: Literal["pause_checked"] = "pause_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Timed):
    """The run pauses in this turn, before its tool calls."""

    turn: int
    reason: str
    by: By | None = None
    """The person who asked for it; None where nobody was named."""
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaused(Timed):
    """The paused run continues."""

    by: By | None = None
    """The person who asked for it; None where nobody was named."""
    kind: Literal["unpaused"] = "unpaused"


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

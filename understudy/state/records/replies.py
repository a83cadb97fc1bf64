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
    """The record of the model's reply, as `after_model` returned it. It opens a turn."""

    turn: int
    response: StoredResponse
    cut: bool = False
    """Whether the reply is incomplete, by a broken stream or a length limit. Its tool calls do not
    run."""
    broken: dict[str, Any] | None = None
    """The error that broke the stream of the reply. It ends the run."""
    kind: Literal["reply"] = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHeld(Timed):
    """The record of the model's reply as it came, while `after_model` asks a person about it.

    The reply does not count before it is accepted.
    """

    turn: int
    response: StoredResponse
    kind: Literal["reply_held"] = "reply_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAsked(Timed):
    """The record that a model answered outside the conversation, to `run.ask_model`."""

    key: str
    response: StoredResponse
    """The model's reply, without its parts. `value` has their content."""
    value: Any
    """The answer, as JSON."""
    kind: Literal["model_asked"] = "model_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGaveNoAnswer(Timed):
    """The record that a model was asked by `run.ask_model`, and no reply was an answer.

    The replies cost nevertheless. It does not count as progress: a run that only repeats it is
    quarantined in the end.
    """

    key: str
    response: StoredResponse
    """The last of these replies."""
    error: str
    kind: Literal["model_gave_no_answer"] = "model_gave_no_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseChecked(Timed):
    """The record that `pause_when` was called for this turn, and that the run does not pause."""

    turn: int
    kind: Literal["pause_checked"] = "pause_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(Timed):
    """The record that the run pauses in this turn, before its tool calls."""

    turn: int
    reason: str
    by: By | None = None
    """The person who asked for the pause; None if nobody was named."""
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaused(Timed):
    """The record that the paused run continues."""

    by: By | None = None
    """The person who asked for it; None if nobody was named."""
    kind: Literal["unpaused"] = "unpaused"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Propagated:
    """The record that all results of this turn are there.

    They become one message, and their deltas merge.
    """

    turn: int
    at: datetime
    kind: Literal["propagated"] = "propagated"


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class TurnClosed(Timed):
    """The record of the end of a turn. It says whether the run ends with it."""

    turn: int
    end: End | None = None
    """The end of the run; None if the model is called again."""
    message: StoredRequest | None = None
    """The prompt before the next model call; None if there is none.

    It says why an answer was invalid, or asks to continue after an override.
    """
    kind: Literal["turn_closed"] = "turn_closed"

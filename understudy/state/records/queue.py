"""Records of what is to be run: queued messages, and plans for times to come."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from understudy._base.authors import By
from understudy._base.context_codecs import StoredContext
from understudy.models.messages import StoredRequest
from understudy.state.plans import BackgroundCall, Occurrence, RunChoices, Schedule
from understudy.state.records.timed import Timed


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage(Timed):
    """The record that a message from a user is added to the conversation."""

    message: StoredRequest
    message_ids: tuple[str, ...] = ()
    """The ids of the queued messages from which it was made. They leave the queue."""
    by: By | None = None
    """The person who sent it; None if nobody was named."""
    kind: Literal["user_message"] = "user_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued(Timed):
    """The record that a message is queued until the run ends, or until the run takes it."""

    message_id: str
    message: StoredRequest
    steer: bool = False
    """Whether the current run takes the message, before its next model call."""
    self_sent: bool = False
    """Whether a tool or a hook of the agent itself sent the message."""
    due: datetime | None = None
    """The time until which the message waits before it is queued; None = it is queued at once."""
    context: StoredContext = field(default_factory=dict)
    """The context of the sender, by the names of the codecs."""
    choices: RunChoices | None = None
    """The options of a `run` that waits for its turn; None for a message that was sent."""
    by: By | None = None
    """The person who sent the message; None if nobody was named."""
    makes: BackgroundCall | None = None
    """The background call that its run makes; None for any other message."""
    kind: Literal["message_queued"] = "message_queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundStarted:
    """The record that a call continues in the background.

    A message with the id `result_id` brings its result.
    """

    call: BackgroundCall
    at: datetime
    kind: Literal["background_started"] = "background_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDue:
    """The record that the time of a message has come. It is queued from now on."""

    message_id: str
    at: datetime
    kind: Literal["message_due"] = "message_due"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCancelled:
    """The record that a queued message is cancelled before a run took it. Its id is free again."""

    message_id: str
    at: datetime
    by: By | None = None
    """The person who cancelled the message; None if nobody was named."""
    kind: Literal["message_cancelled"] = "message_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRefused:
    """The record that a `run` that waited for its turn cannot begin. Its message leaves the queue.

    The id of the message is free again. A caller that asks for the outcome gets the error.
    """

    message_id: str
    error: dict[str, Any]
    """The error as plain data, as `error_to_dict` makes it."""
    at: datetime
    kind: Literal["message_refused"] = "message_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesArchived(Timed):
    """The record that the ids of old messages leave the state.

    From now on the index of the store has them.
    """

    runs: dict[str, str]
    """The id of the run that took each message, by message id."""
    kind: Literal["messages_archived"] = "messages_archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """The record that a pause was asked for: of the current run, or else of the next run.

    The run pauses after its next model reply.
    """

    reason: str | None
    """The reason for the pause; None = the pause is not wanted any more."""
    at: datetime
    by: By | None = None
    """The person who asked for it; None if nobody was named."""
    kind: Literal["pause_requested"] = "pause_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSet:
    """The record of a schedule of the agent. It replaces the schedule with the same id."""

    schedule: Schedule
    at: datetime
    by: By | None = None
    """The person who set, paused or resumed it, if more than the name is known; None otherwise."""
    kind: Literal["schedule_set"] = "schedule_set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRemoved:
    """The record that a schedule is removed, together with its occurrences that wait for their
    runs.
    """

    schedule_id: str
    at: datetime
    by: By | None = None
    """The person who removed it; None if nobody was named."""
    kind: Literal["schedule_removed"] = "schedule_removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurred:
    """The record that a time of a schedule has come. The occurrence waits for its run, or is
    skipped.
    """

    occurrence: Occurrence
    message_id: str = ""
    """The id of its input in the queue; empty if it is skipped."""
    since: datetime | None = None
    """The time of the first occurrence, if several were missed together. They have one record."""
    next_due: datetime | None = None
    """The time of the next occurrence that is not recorded yet. It is not used for a triggered
    occurrence."""
    at: datetime
    kind: Literal["occurred"] = "occurred"

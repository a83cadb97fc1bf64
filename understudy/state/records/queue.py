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
    """A message from a user is added to the conversation."""

    message: StoredRequest
    message_ids: tuple[str, ...] = ()
    """The queued messages that it was made from; they leave the queue."""
    by: By | None = None
    """The person who sent it; None where nobody was named."""
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
    choices: RunChoices | None = None
    """Of a `run` that waits for its turn; None of a message that was sent."""
    by: By | None = None
    """The person who sent it; None where nobody was named."""
    makes: BackgroundCall | None = None
    """The background call that its run makes; None of any other message."""
    kind: Literal["message_queued"] = "message_queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundStarted:
    """A call goes on in the background: its result comes by a message of the id `result_id`."""

    call: BackgroundCall
    at: datetime
    kind: Literal["background_started"] = "background_started"


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
    by: By | None = None
    """The person who cancelled it; None where nobody was named."""
    kind: Literal["message_cancelled"] = "message_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRefused:
    """A `run` that waited for its turn may not begin: its message leaves the queue.

    Its id is free again. Who asks for its outcome gets the error.
    """

    message_id: str
    error: dict[str, Any]
    """As `error_to_dict` makes it."""
    at: datetime
    kind: Literal["message_refused"] = "message_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesArchived(Timed):
    """The ids of old messages leave the state: the index of the store has them from now on."""

    runs: dict[str, str]
    """By message id, the id of the run that took the message."""
    kind: Literal["messages_archived"] = "messages_archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """The run, or else the next one, is to be paused after its next model reply."""

    reason: str | None
    """None: it is not to be paused any more."""
    at: datetime
    by: By | None = None
    """The person who asked for it; None where nobody was named."""
    kind: Literal["pause_requested"] = "pause_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSet:
    """A schedule of the agent, in place of the one of the same id."""

    schedule: Schedule
    at: datetime
    by: By | None = None
    """The person who set, paused or resumed it, where more than the name is known."""
    kind: Literal["schedule_set"] = "schedule_set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRemoved:
    """A schedule is removed, with its occurrences that wait for their runs."""

    schedule_id: str
    at: datetime
    by: By | None = None
    """The person who removed it; None where nobody was named."""
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

"""What an agent is to do later by itself: messages with a time, schedules, and a pause.

Part of its state. Which times a schedule has is never computed here: a record says the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from understudy._base.context_codecs import StoredContext
from understudy.models.messages import StoredRequest

Missed = Literal["skip", "one", "all"]
Overlap = Literal["skip", "queue"]
Skipped = Literal["missed", "overlap", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One time of a schedule."""

    schedule_id: str
    due: datetime
    """The time that the schedule says; of a triggered one, when it was triggered."""
    triggered: bool = False
    """A person asked for it; the schedule's own times stay as they are."""
    skipped: Skipped | None = None
    """Why it got no run: `missed`: its time had passed when it was noticed. `overlap`: the one
    before it was still waiting or running. `full`: too many were waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When an agent runs by itself, and with which message."""

    id: str
    """Unique in its agent."""
    name: str
    """For people; the id, where none was given."""
    cron: str
    timezone: str
    """By its IANA name. The times of `cron` are those of its clocks."""
    message: StoredRequest
    """The input of each run."""
    missed: Missed
    overlap: Overlap
    created_at: datetime
    next_due: datetime | None
    """Its next occurrence. All before it are recorded: none comes twice. None = there is none."""
    paused: bool = False
    """By a person, or because the agent was imported or is of an older copy of its store."""
    latest: Occurrence | None = None
    """The latest occurrence, also if it was skipped."""
    context: StoredContext = field(default_factory=dict)
    """That of who has set it: its runs have it."""


class TakenMessage(NamedTuple):
    """That a run has taken a message."""

    run_id: str
    """Of the run."""
    at: datetime | None
    """When the run took it; None in data from before records had times."""


RETRY_ID = "retry/"
"""The ids of retries begin with it, and no other message id does."""


def retry_id(run_id: str) -> str:
    """The message id of the retry of a failed run: the run that takes it continues that one."""
    return RETRY_ID + run_id


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that waits until a run takes it."""

    message_id: str
    message: StoredRequest
    steer: bool
    """The run in progress takes it, before its next model call."""
    self_sent: bool
    """A tool or hook of the agent itself sent it."""
    due: datetime | None = None
    """The time before which no run takes it; None = at once."""
    occurrence: Occurrence | None = None
    """Set where it is the input of an occurrence, which gets a run of its own."""
    context: StoredContext = field(default_factory=dict)
    """That of who sent it."""


class _DueTime:
    __slots__ = ("_next_due",)
    _next_due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans(_DueTime):
    """What is planned. Never changed: a record that changes something makes another one."""

    timed: dict[str, QueuedMessage] = field(default_factory=dict)
    """Messages whose time has not come, by message id."""
    schedules: dict[str, Schedule] = field(default_factory=dict)
    """By id."""
    pause: str | None = None
    """The reason of a requested pause: the run is paused after its next model reply."""

    @property
    def next_due(self) -> datetime | None:
        """When the next message or occurrence is due."""
        # Asked for at each commit, while the plans seldom change.
        try:
            return self._next_due
        except AttributeError:
            due = min(self._due_times(), default=None)
            object.__setattr__(self, "_next_due", due)
            return due

    def _due_times(self) -> Iterator[datetime]:
        for queued in self.timed.values():
            if queued.due is not None:
                yield queued.due
        for schedule in self.schedules.values():
            if schedule.next_due is not None and not schedule.paused:
                yield schedule.next_due


NO_PLANS = Plans()


def requested_pause(plans: Plans | None) -> str | None:
    """The reason of a pause that is requested and has not come yet."""
    return plans.pause if plans is not None else None


def next_occurrence(queue: dict[str, QueuedMessage]) -> QueuedMessage | None:
    """The occurrence that has been waiting for its run for the longest time."""
    for queued in queue.values():
        if queued.occurrence is not None:
            return queued
    return None

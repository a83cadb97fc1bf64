"""What comes to an agent later by itself: messages with a time, schedules, a pause, results.

Plans are a part of its state. The times of a schedule are never computed here: a record holds the
next time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from understudy._base.authors import By
from understudy._base.context_codecs import StoredContext
from understudy.approvals import Approval
from understudy.models.messages import StoredRequest

Missed = Literal["skip", "one", "all"]
Overlap = Literal["skip", "queue"]
Skipped = Literal["missed", "overlap", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One time of a schedule."""

    schedule_id: str
    """The id of the schedule."""
    due: datetime
    """The time of the occurrence by the schedule; if it was triggered, the time of the trigger."""
    triggered: bool = False
    """Whether a person triggered it. The schedule's own times stay as they are."""
    by: By | None = None
    """The person who triggered it; None if nobody was named."""
    authors: tuple[By | None, ...] = (None,)
    """The persons who set the schedule, as in `Schedule.authors`."""
    skipped: Skipped | None = None
    """The reason why the occurrence got no run; None if it was not skipped.

    - `missed`: its time had passed when it was noticed.
    - `overlap`: the occurrence before it was still waiting or running.
    - `full`: too many occurrences were waiting.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule: the times at which an agent runs by itself, and the message."""

    id: str
    """The id, unique in its agent."""
    name: str
    """The name for people; the id if no name was given."""
    cron: str
    """The cron line, with five fields."""
    timezone: str
    """The IANA name of the time zone of `cron`."""
    message: StoredRequest
    """The input of each run."""
    missed: Missed
    """What happens to occurrences that are noticed too late."""
    overlap: Overlap
    """What happens to an occurrence while the one before it waits or runs."""
    created_at: datetime
    """The time at which the schedule was set."""
    next_due: datetime | None
    """The time of the next occurrence; None if there is none.

    All occurrences before it are recorded, so none comes twice.
    """
    paused: bool = False
    """Whether the schedule is paused.

    A person paused it, or the agent was imported or comes from an older copy of its store.
    """
    latest: Occurrence | None = None
    """The latest occurrence, even if it was skipped; None if there was none."""
    context: StoredContext = field(default_factory=dict)
    """The context of the person who set the schedule. Its runs have this context."""
    by: str | None = None
    """The person who last set, paused or resumed it; None if nobody was named."""
    authors: tuple[By | None, ...] = (None,)
    """The persons who set the schedule with this message; None for a person without a name.

    They count as requesters of its runs.
    """


class TakenMessage(NamedTuple):
    """The fact that a run has taken a message."""

    run_id: str
    """The id of the run."""
    at: datetime | None
    """The time at which the run took it; None in data from before records had times."""


RETRY_ID = "retry/"
"""The prefix of the ids of retries, and of no other message id."""


def retry_id(run_id: str) -> str:
    """The message id of the retry of a failed run: the run that takes the message continues it."""
    return RETRY_ID + run_id


RUN_ID = "run/"
"""The prefix of the message ids that `run` makes. No id of a caller has it."""


def run_message_id(run_id: str) -> str:
    """The message id for a `run` without one, made of the id of its run."""
    return RUN_ID + run_id


def run_named_by(message_id: str) -> str | None:
    """The id of the run in a message id that `run` has made; None for any other id."""
    return message_id.removeprefix(RUN_ID) if message_id.startswith(RUN_ID) else None


BACKGROUND_ID = "background/"
"""The prefix of the ids of messages that bring results of background calls, and of no others."""


SENDER_OF_RESULTS = "understudy"
"""The sender shown for results of background calls. No person has this name."""


def result_id(code: str) -> str:
    """The id of the message that brings the result of a background call."""
    return BACKGROUND_ID + code


def is_result(message_id: str) -> bool:
    """Whether a message brings the result of a background call. Nobody has sent it."""
    return message_id.startswith(BACKGROUND_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundCall:
    """A call of a tool with `background=True`: a separate agent makes it, in one run."""

    code: str
    """The name of the call for the model. Nobody can guess it."""
    agent_id: str
    """The id of the agent that makes the call: `Runtime.get(agent_id)` shows and cancels it."""
    owner: str
    """The id of the agent that gets its result."""
    call_key: str
    """The key of the model's call, which was answered by "started"."""
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    agent_path: tuple[str, ...]
    """The names of the agents from the root to the one whose model made it."""
    at: datetime
    authors: tuple[By | None, ...] = (None,)
    """The persons who had asked for what the agent did by then; None for a person without a
    name."""
    was_asked: bool = False
    """Whether persons have agreed to the call."""
    approval: Approval | None = None
    """The persons who had to agree to the call; None if nobody had to."""
    requesters: tuple[str, ...] | None = None
    """The ids of the persons whom the approval excludes; None if one of them is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """The options that the caller of `run` has chosen for its run. None leaves an option to the
    agent.
    """

    until_tool: tuple[str, ...] | None = None
    """The names of the tools that end the run."""
    require_tool_success: bool = False
    """Whether only a successful result of such a tool ends the run."""
    force: bool = False
    """Whether the model must call the until tool."""
    max_runs: int | None = None
    deadline: float | None = None
    """The seconds that the run may take, without the waits for people."""
    early_stopping_prompt: str | None = None
    ends_at: datetime | None = None
    """The time at which the run is stopped."""
    go_on: bool = False
    """Whether the run continues the run before it, if that failed."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that waits until a run takes it."""

    message_id: str
    message: StoredRequest
    steer: bool
    """Whether the run in progress takes it, before its next model call."""
    self_sent: bool
    """Whether a tool or hook of the agent itself sent it."""
    due: datetime | None = None
    """The time before which no run takes it; None = at once."""
    occurrence: Occurrence | None = None
    """The occurrence whose input it is, which gets a run of its own; None for other messages."""
    context: StoredContext = field(default_factory=dict)
    """The context of the sender, by the names of the codecs."""
    choices: RunChoices | None = None
    """The options of a `run` that waits for its turn, also if all of them are left to the agent.
    None for a message that was sent."""
    by: By | None = None
    """The person who sent it; None if nobody was named."""
    makes: BackgroundCall | None = None
    """The background call that its run makes; None for any other message."""


class _DueTime:
    __slots__ = ("_next_due",)
    _next_due: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans(_DueTime):
    """The plans of an agent. They are immutable: a record that changes something makes new
    plans.
    """

    timed: dict[str, QueuedMessage] = field(default_factory=dict)
    """Messages whose time has not come, by message id."""
    schedules: dict[str, Schedule] = field(default_factory=dict)
    """The schedules, by id."""
    pause: str | None = None
    """The reason of a requested pause: the run is paused after its next model reply."""
    pause_by: By | None = None
    """The person who asked for this pause; None if nobody was named."""
    background: dict[str, BackgroundCall] = field(default_factory=dict)
    """The background calls whose results have not come, by their codes."""

    @property
    def next_due(self) -> datetime | None:
        """The time of the next message or occurrence; None if there is none."""
        # It is read at each commit, while the plans seldom change.
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


class PauseAsked(NamedTuple):
    """A pause that somebody asked for."""

    reason: str
    by: By | None


def pause_asked(plans: Plans | None) -> PauseAsked | None:
    """The pause that is requested and has not come yet."""
    reason = requested_pause(plans)
    return None if plans is None or reason is None else PauseAsked(reason, plans.pause_by)


def requested_pause(plans: Plans | None) -> str | None:
    """The reason of a pause that is requested and has not come yet."""
    return plans.pause if plans is not None else None


def next_turn(
    queue: dict[str, QueuedMessage], *, is_held: bool, with_occurrences: bool = True
) -> list[QueuedMessage]:
    """The queued messages with which the next run begins; none if no run is to begin.

    A `run` takes the messages that were sent before it, and is the last message of its turn. An
    occurrence of a schedule has a turn of its own, before the messages that came after it.

    Args:
        queue: the queue of the agent.
        is_held: whether messages that were sent wait for the next `run`, as they do after a run
            that failed or was cancelled.
        with_occurrences: whether the turn may be the turn of an occurrence.

    """
    sent: list[QueuedMessage] = []
    occurrence: QueuedMessage | None = None
    for queued in queue.values():
        if queued.occurrence is not None:
            if not sent and with_occurrences:
                return [queued]
            occurrence = occurrence or queued
        elif queued.choices is None:
            sent.append(queued)
        elif occurrence is not None and with_occurrences:
            return [occurrence]
        else:
            return [*sent, queued]
    if not is_held:
        return sent
    return [occurrence] if occurrence is not None and with_occurrences else []


def next_occurrence(queue: dict[str, QueuedMessage]) -> QueuedMessage | None:
    """The occurrence that has waited longest for its run; None if none waits."""
    for queued in queue.values():
        if queued.occurrence is not None:
            return queued
    return None

"""What becomes of a planned time that has come, as records: messages and occurrences of schedules.

A tick of a clock is no fact: these functions look at the state. What they record is not due any
more, so it does not matter how often they are called. A schedule's next time is part of each record
about it: so each of its occurrences is recorded once, by the owner of the agent then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from pydantic_ai.messages import UserPromptPart

from understudy._base.authors import By, Login, shown_author
from understudy._base.clock import Clock, NewId
from understudy._base.json_values import shown
from understudy.actors.agent.cron import next_time, times_until
from understudy.errors import UsageError
from understudy.run.ledger import Ledger
from understudy.state.next_due import due_of_plans
from understudy.state.plans import NO_PLANS, Occurrence, Schedule, Skipped
from understudy.state.records import MessageDue, Occurred, ScheduleRemoved, ScheduleSet

MAX_TIMED = 1000
"""How many messages of an agent may wait for their times."""
MAX_SCHEDULES = 100
"""How many schedules an agent may have."""
MAX_WAITING = 100
"""How many occurrences of one schedule may wait for their runs, and are made up for at most."""
RECORD_BYTES = 1024
"""The size of a run's first record without its message, rounded up."""
MISSED_AFTER = timedelta(seconds=60)
"""An occurrence that is noticed later than this after its time was missed."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change of one schedule."""

    action: Literal["set", "pause", "resume", "trigger", "remove"]
    id: str
    wanted: Schedule | None = None
    """The schedule to `set`."""
    at: datetime | None = None
    """The time at which `trigger` was asked for."""
    message_id: str = ""
    """The id of the triggered occurrence's input: a second `trigger` with this id adds nothing."""
    by: By | None = None
    """The person who asks for the change; None where nobody is named."""

    def __call__(self, plans: Plans) -> Schedule | Occurrence | None:
        """Make this change in the plans of an agent."""
        if self.wanted is not None:
            return plans.set(replace(self.wanted, authors=(self.by,)))
        if self.at is not None:
            return plans.trigger(self.id, self.at, self.message_id, self.by)
        change: Callable[[str, By | None], Schedule | Occurrence | None]
        change = getattr(plans, self.action)
        return change(self.id, self.by)


_Coming = tuple[datetime, Callable[[], object]]
"""Something that is due: the time, and the function that records it."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans of one agent, read from its state and changed by its records."""

    _ledger: Ledger
    _clock: Clock
    """The clock of the runtime."""
    _new_id: NewId

    def now(self) -> datetime:
        """The time, by the clock of the runtime."""
        return self._clock.now()

    def record_due(self, now: datetime) -> bool:
        """Record everything that is due; returns whether it has a message that no run has taken."""
        due = due_of_plans(self._ledger.state)
        if due is None or due > now:
            return False
        plans = self._ledger.state.plans or NO_PLANS
        coming: list[_Coming] = []
        for message in plans.timed.values():
            if message.due is not None and message.due <= now:
                record = MessageDue(message_id=message.message_id, at=now)
                coming.append((message.due, partial(self._ledger.record, record)))
        has_message = bool(coming)
        for schedule in plans.schedules.values():
            if not schedule.paused and schedule.next_due is not None and schedule.next_due <= now:
                coming.extend(self._occurrences(schedule, schedule.next_due, now))
        # One plan may rest on another
        # (test_what_is_overdue_comes_in_the_order_of_its_times).
        coming.sort(key=lambda each: each[0])
        for _, record_it in coming:
            record_it()
        return has_message

    def check_room(self) -> None:
        """Raise `UsageError` if one more message cannot wait for its time."""
        timed = (self._ledger.state.plans or NO_PLANS).timed
        if len(timed) >= MAX_TIMED:
            raise UsageError(
                f"{len(timed)} messages of this agent wait for their times already, and no more "
                "than that may: cancel some, use a schedule, or another agent"
            )

    # ------------------------------------------------------------------- schedules

    def get(self, schedule_id: str) -> Schedule:
        """The schedule with this id.

        Raises:
            UsageError: if there is none; it lists those that there are.

        """
        schedules = (self._ledger.state.plans or NO_PLANS).schedules
        if schedule_id not in schedules:
            there = ", ".join(map(repr, schedules)) or "none"
            raise UsageError(f"This agent has no schedule {shown(schedule_id)}; there are: {there}")
        return schedules[schedule_id]

    def set(self, wanted: Schedule) -> Schedule:
        """Record a schedule, unless there is the same one of its id already.

        One that is changed stays paused if it was. While its times are the same, so is the next.
        """
        schedules = (self._ledger.state.plans or NO_PLANS).schedules
        before = schedules.get(wanted.id)
        if before is None and len(schedules) >= MAX_SCHEDULES:
            raise UsageError(
                f"This agent has {len(schedules)} schedules already, and no agent may have more: "
                "remove some, or give the others to another agent"
            )
        if before is not None:
            wanted = replace(
                wanted, created_at=before.created_at, paused=before.paused, latest=before.latest
            )
            if _content(wanted) == _content(before):
                # Who sets only other times has not written the message.
                authors = tuple(dict.fromkeys((*before.authors, *wanted.authors)))
                wanted = replace(wanted, message=before.message, authors=authors)
            if (wanted.cron, wanted.timezone) == (before.cron, before.timezone):
                wanted = replace(wanted, next_due=before.next_due)
        if before is not None and before == replace(wanted, by=before.by, authors=before.authors):
            return before
        return self._record(wanted, wanted.authors[0])

    def pause(self, schedule_id: str, by: By | None) -> Schedule:
        """Record that a schedule has no occurrences from now on."""
        schedule = self.get(schedule_id)
        if schedule.paused:
            return schedule
        return self._record(replace(schedule, paused=True, by=shown_author(by)), by)

    def resume(self, schedule_id: str, by: By | None) -> Schedule:
        """Record that a paused schedule has occurrences again, from now on."""
        schedule, now = self.get(schedule_id), self._clock.now()
        if not schedule.paused:
            return schedule
        next_due = schedule.next_due
        # A later one stays: where the clock was set back, those before it have come
        # (test_a_schedule_that_is_resumed_after_the_clock_was_set_back_repeats_nothing).
        if next_due is not None and next_due <= now:
            next_due = next_time(schedule.cron, schedule.timezone, now)
        resumed = replace(schedule, paused=False, next_due=next_due, by=shown_author(by))
        return self._record(resumed, by)

    def trigger(self, schedule_id: str, at: datetime, message_id: str, by: By | None) -> Occurrence:
        """Record an occurrence now, also of a paused schedule; once for a message."""
        schedule = self.get(schedule_id)
        occurrence = Occurrence(
            schedule_id=schedule.id, due=at, triggered=True, by=by, authors=schedule.authors
        )
        if message_id in self._ledger.state.queue or message_id in self._ledger.state.message_ids:
            return occurrence
        return self._occur(occurrence, None, message_id)

    def remove(self, schedule_id: str, by: By | None) -> None:
        """Record that a schedule is removed, with its occurrences that wait."""
        id = self.get(schedule_id).id
        self._ledger.record(ScheduleRemoved(schedule_id=id, at=self.now(), by=by))

    def _record(self, schedule: Schedule, by: By | None) -> Schedule:
        login = by if isinstance(by, Login) else None
        record = ScheduleSet(schedule=schedule, at=self.now(), by=login)
        self._ledger.check(record, spare=RECORD_BYTES)  # its runs must be able to begin
        self._ledger.record(record)
        return schedule

    # ------------------------------------------------------------------ occurrences

    def _occurrences(self, schedule: Schedule, first: datetime, now: datetime) -> Iterator[_Coming]:
        """All occurrences of a schedule up to now, to be recorded in order, each once."""
        most = MAX_WAITING if schedule.missed == "all" else 1
        cron, zone = schedule.cron, schedule.timezone
        times = times_until(cron, zone, first, now, most=most) or [first]
        if schedule.missed == "skip" and now - times[-1] > MISSED_AFTER:
            missed_until: datetime | None = times.pop()
        else:  # those before the ones that are made up for
            before = times[0] - timedelta(seconds=1)
            earlier = times_until(cron, zone, first, before, most=1) if first < times[0] else []
            missed_until = earlier[-1] if earlier else None
        following = [*times[1:], next_time(cron, zone, now)]
        if missed_until is not None:
            missed = Occurrence(schedule_id=schedule.id, due=missed_until, skipped="missed")
            then = times[0] if times else following[-1]
            since = first if first < missed_until else None
            record = Occurred(occurrence=missed, since=since, next_due=then, at=now)
            yield (missed_until, partial(self._ledger.record, record))
        for due, then in zip(times, following, strict=False):
            occurrence = Occurrence(schedule_id=schedule.id, due=due, authors=schedule.authors)
            yield (due, partial(self._occur, occurrence, then, self._new_id()))

    def _occur(
        self, occurrence: Occurrence, next_due: datetime | None, message_id: str
    ) -> Occurrence:
        skipped = self._why_skipped(occurrence.schedule_id)
        occurrence = replace(occurrence, skipped=skipped)
        self._ledger.record(
            Occurred(
                occurrence=occurrence,
                message_id=message_id if skipped is None else "",
                next_due=next_due,
                at=self.now(),
            )
        )
        return occurrence

    def _why_skipped(self, schedule_id: str) -> Skipped | None:
        queued = [each.occurrence for each in self._ledger.state.queue.values()]
        waiting = sum(each is not None and each.schedule_id == schedule_id for each in queued)
        if waiting >= MAX_WAITING:
            return "full"
        run = self._ledger.state.run
        running = run.occurrence if run is not None and not run.over else None
        is_open = waiting or (running is not None and running.schedule_id == schedule_id)
        return "overlap" if is_open and self.get(schedule_id).overlap == "skip" else None


def _content(schedule: Schedule) -> list[object]:
    """The input of a schedule, without the time at which it was given."""
    parts = schedule.message.parts
    return [part.content for part in parts if isinstance(part, UserPromptPart)]

"""`Concurrent`: tasks of one attempt that run at the same time, such as the calls of a reply.

A suspended call continues as soon as its wait ends: it does not wait for the last task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

from understudy._base.clock import NEAR, TimerClock
from understudy._base.event_loops import call_on
from understudy.run.ledger import Ledger
from understudy.run.run import Run, stop_of
from understudy.run.waits.dues import next_over, record_over
from understudy.state.run_state import Call

K = TypeVar("K")
T = TypeVar("T")

RECHECK = 1.0
"""Maximum seconds between two looks at the clock, however long a wait is: the clock may have been
set, or the machine may have been suspended."""


class Concurrent(Generic[K, T]):
    """Tasks of one attempt at a run. Leaving it cancels the tasks that have not ended."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._tasks: dict[asyncio.Task[T | BaseException], K] = {}
        self._news: asyncio.Queue[asyncio.Task[T | BaseException] | Callable[[], None] | None] = (
            asyncio.Queue()
        )
        self._watched: Ledger | None = None
        self._disarm: Callable[[], object] = _nothing
        self._armed: datetime | None = None
        """The time at which `next` returns at the latest; None if there is no such time."""
        self._ends: dict[datetime, float] = {}
        """The monotonic seconds at which a near due has come, by its time of day: the clock may be
        set meanwhile."""
        self._handled: list[Callable[[], None]] = []
        """Functions to call when what was due is recorded: a caller that advances a clock waits for
        them."""
        self._has_ended = False
        self._woken_by: dict[Hashable, set[tuple[str, int, int]]] = {}
        """By suspended call, the keys, attempts and checks of the calls that woke it last."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._has_ended = True
        self._disarm()
        if (ledger := self._watched) is not None:
            ledger.on_answer = tuple(f for f in ledger.on_answer if f != self.answered)
        while not self._news.empty():
            news = self._news.get_nowait()
            if news is not None and not isinstance(news, asyncio.Task):
                self._handled.append(news)
        self._call_handled()
        await end_tasks(self._run, self._tasks)

    @property
    def any_runs(self) -> bool:
        """Whether a task has not ended, or has ended and was not returned by `next` yet."""
        return bool(self._tasks)

    def start(self, key: K, work: Coroutine[Any, Any, T]) -> None:
        """Run this in a task."""
        task = asyncio.ensure_future(caught(work))
        self._tasks[task] = key
        task.add_done_callback(self._news.put_nowait)

    def look(self, waiting: Iterable[tuple[Ledger, Call]], beside: bool = False) -> None:
        """Record which waits of these calls are over by now. `next` returns when more may be over.

        Args:
            waiting: calls that are suspended, each with the ledger of its agent.
            beside: whether the calls of the previous look wait too.

        """
        if self._watched is None:
            self._watched = self._run.root.ledger
            self._watched.on_answer += (self.answered,)
        if not beside:
            self._disarm()
            self._disarm, self._armed = _nothing, None
        calls = list(waiting)
        record_over(calls, self._run.clock.now())
        self._measure(call for _, call in calls)
        while (due := next_over(call for _, call in calls)) is not None and self._seconds_to(
            due
        ) <= 0:
            record_over(calls, due)  # the clock was set back
        if due is not None and (self._armed is None or due < self._armed):
            self._disarm()
            self._armed = due
            self._arm(due)

    def is_woken(self, what: Hashable, by: Iterable[Call]) -> bool:
        """Whether a suspended call is to continue, because of these calls that are woken in it.

        The calls that woke it last do not count. It came to rest although they were woken: it was
        paused, or its steps are custom ones. To wake it again would be an endless loop
        (`test_what_is_paused_where_it_would_go_on_goes_in_no_circle`).
        """
        woken = {(call.key, call.attempts, call.checks) for call in by}
        if not woken or woken == self._woken_by.get(what):
            return False
        self._woken_by[what] = woken
        return True

    async def next(self) -> tuple[K, T | BaseException] | None:
        """What the next task that ends returned or raised, by its key.

        None if a wait may be over before a task ends: call `look` then.
        """
        self._call_handled()
        news = await self._news.get()
        if isinstance(news, asyncio.Task):
            return self._tasks.pop(news), news.result()
        if news is not None:
            self._handled.append(news)
        return None

    def answered(self) -> None:
        """A wait of the run is answered, or a time has come."""
        self._news.put_nowait(None)

    # ------------------------------------------------------------------ the time

    def _arm(self, due: datetime) -> None:
        clock = self._run.clock
        if isinstance(clock, TimerClock):
            self._disarm = clock.call_at(due, self._on_time)
        else:
            self._check(due)

    def _measure(self, calls: Iterable[Call]) -> None:
        clock = self._run.clock
        for point in (point for call in calls for point in call.waits_at):
            if point.due is None or point.due in self._ends or isinstance(clock, TimerClock):
                continue
            left = (point.due - clock.now()).total_seconds()
            if left <= NEAR:
                self._ends[point.due] = clock.monotonic() + left

    def _seconds_to(self, due: datetime) -> float:
        end = self._ends.get(due)
        return float("inf") if end is None else end - self._run.clock.monotonic()

    def _check(self, due: datetime) -> None:
        try:
            left = (due - self._run.clock.now()).total_seconds()
            left = min(left, self._seconds_to(due))
        except BaseException:  # of the application's clock; a SystemExit of it would end the loop
            left = RECHECK
        if left <= 0:
            self.answered()
        else:
            timer = self._run.loop.call_later(min(left, RECHECK), self._check, due)
            self._disarm = timer.cancel

    def _on_time(self, done: Callable[[], None]) -> None:
        """The clock has reached the time; called in any thread."""
        if not call_on(self._run.loop, self._on_time_here, done):
            done()  # the loop is closed

    def _on_time_here(self, done: Callable[[], None]) -> None:
        if self._has_ended:
            done()
        else:
            self._news.put_nowait(done)

    def _call_handled(self) -> None:
        handled, self._handled = self._handled, []
        for done in handled:
            done()


def may_start(run: Run) -> bool:
    """Whether a call that waited may still continue: this attempt is not ended in any way."""
    root = run.root.current
    if root.halt is not None or root.cancelled is not None or run.current.cancelled is not None:
        return False
    if stop_of(run) is not None:
        return False
    is_to_end = run.environment.is_to_end_attempt
    return is_to_end is None or not is_to_end()


async def end_tasks(run: Run, tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel these tasks of the attempt, and wait until they have ended.

    If a task ignores its cancellation, a runtime abandons the attempt. Without a runtime this waits
    until the task ends.
    """
    ending: asyncio.Task[None] | None = None
    abandon_later = run.environment.abandon_later
    for task in tasks:
        if task.cancel() and ending is None and abandon_later is not None:
            ending = abandon_later()
    try:
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        if ending is not None:
            ending.cancel()


async def caught(work: Coroutine[Any, Any, T]) -> T | BaseException:
    """The result of `work`, or what it raised, as a value. A cancellation is raised.

    It is for the body of a task: a task that raises SystemExit or KeyboardInterrupt stops its event
    loop, and with it all agents (`test_a_run_goes_on_from_its_line_after_a_tool_killed_it`,
    `test_a_workflow_whose_actor_dies_in_the_middle_goes_on_there`).
    """
    try:
        return await work
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error


def _nothing() -> None:
    return

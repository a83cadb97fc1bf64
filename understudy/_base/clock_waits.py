"""Waits in memory by the clock of a run: a simulated clock ends them when it is advanced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

from understudy._base.clock import Clock, SharedClock, SystemClock, TimerClock
from understudy._base.event_loops import call_on

logger: logging.Logger = logging.getLogger(__name__)

_RECHECK = 0.1
"""Seconds after which a clock of the program's own that has no timers is looked at again."""
_NOW = 1e-6
"""Seconds that are no wait: a clock counts microseconds."""
RECHECK = 1.0
"""Seconds after which work that is due at a time looks at the clock again, however far away that
is: the clock may have been set or have raised, or the machine may have been suspended."""


def _nobody() -> None:
    """Nobody is told."""


async def wait_by(
    clock: Clock, seconds: float, changed: asyncio.Event, waits: Callable[[], None] = _nobody
) -> None:
    """Wait so long by this clock, or until `changed` is set.

    By a clock without timers it returns early, to look at the clock again.

    Args:
        clock: by which it waits.
        seconds: how long.
        changed: ends the wait.
        waits: called as soon as the clock can pass the wait.

    """
    if not isinstance(clock, TimerClock):
        waits()
        try:
            async with asyncio.timeout(_until_next_look(clock, seconds)):
                await changed.wait()
        except TimeoutError:
            pass
        return
    loop = asyncio.get_running_loop()
    handled: list[Callable[[], None]] = []

    def wake(done: Callable[[], None]) -> None:
        handled.append(done)
        changed.set()

    cancel = _call_at(clock, clock.now() + timedelta(seconds=seconds), loop, wake)
    waits()
    try:
        await changed.wait()
    finally:
        cancel()
        for done in handled:  # after what waits has gone on, at the time at which the clock stands
            loop.call_soon(done)


async def sleep_by(clock: Clock, seconds: float, waits: Callable[[], None] = _nobody) -> None:
    """Wait so long by this clock; the arguments are those of `wait_by`."""
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > _NOW:
        await wait_by(clock, left, asyncio.Event(), waits)
        waits = _nobody


class DueWork:
    """Does something whenever its time has come by a clock. On one loop.

    Who advances a simulated clock waits until it is done. Any other clock is looked at again and
    again. While the application's clock raises nothing is due, which is logged once.

    Args:
        clock: the clock.
        next_time: returns the time of the next work, from the time that it is; None = there is
            none. It is asked after each work, and by `look`.
        work: what is done. It must not raise.
        start_task: starts a task that ends with the runtime at the latest.

    """

    def __init__(
        self,
        clock: Clock,
        next_time: Callable[[datetime], datetime | None],
        work: Callable[[], Coroutine[Any, Any, None]],
        start_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._clock, self._next_time = clock, next_time
        self._work, self._start_task = work, start_task
        self._loop = asyncio.get_running_loop()
        self._armed_at: datetime | None = None
        self._disarm: Callable[[], object] = _nobody
        self._task: asyncio.Task[None] | None = None
        self._on_done: list[Callable[[], None]] = []
        self._is_open = False
        self._clock_fails = False

    def open(self) -> None:
        """Work from now on. A simulated clock that is advanced stops at the next time."""
        self._is_open = True
        self.look()

    def close(self) -> None:
        """Work no more."""
        self._is_open = False
        self._disarm()
        if self._task is not None:
            self._task.cancel()
        self._call_done()

    def now(self) -> datetime | None:
        """The time; None while the clock raises."""
        try:
            return self._clock.now()
        except BaseException:  # a SystemExit of it would end the loop
            self._note_failure()
            return None

    def _note_failure(self) -> None:
        if not self._clock_fails:
            logger.exception("the clock raised: nothing is due until it tells the time")
        self._clock_fails = True

    def look(self) -> None:
        """The next time may be another one now: set the timer to it, or begin at once."""
        if not self._is_open or self._task is not None:
            return  # the end of the work looks again
        now = self.now()
        at = None if now is None else self._next_time(now)
        if at is not None and at == self._armed_at:
            return
        self._disarm()
        self._armed_at, self._disarm = at, _nobody
        if now is None:
            self._disarm = self._ring_in(RECHECK)
            return
        if at is not None:
            if at <= now:  # before the timer is set: a clock may call back at once
                self._task = self._start_task(self._work())
                self._task.add_done_callback(self._ended)
            try:
                self._disarm = self._set_timer(at, now)
            except BaseException:  # as in `now`
                self._note_failure()
                self._disarm = self._ring_in(RECHECK)
                return
        self._clock_fails = False

    def _set_timer(self, at: datetime, now: datetime) -> Callable[[], object]:
        clock = self._clock
        if isinstance(clock, TimerClock):
            # Also for a time that has passed: who advances the clock waits for the work.
            return _call_at(clock, at, self._loop, self._ring)
        left = _until_next_look(clock, max((at - now).total_seconds(), 0.0))
        return self._ring_in(min(left, RECHECK))

    def _ring_in(self, seconds: float) -> Callable[[], object]:
        return self._loop.call_later(seconds, self._ring).cancel

    def _ring(self, done: Callable[[], None] = _nobody) -> None:
        self._on_done.append(done)
        self._armed_at, self._disarm = None, _nobody
        self.look()
        if self._task is None:
            self._call_done()

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._task = self._armed_at = None
        self.look()
        if self._task is None:
            self._call_done()

    def _call_done(self) -> None:
        called, self._on_done = self._on_done, []
        for done in called:
            done()


def _call_at(
    clock: TimerClock,
    at: datetime,
    loop: asyncio.AbstractEventLoop,
    function: Callable[[Callable[[], None]], None],
) -> Callable[[], None]:
    """Have a clock call a function on a loop, unless that is closed by then."""

    def on_time(done: Callable[[], None]) -> None:  # in any thread
        if not call_on(loop, function, done):
            done()

    return clock.call_at(at, on_time)


def _until_next_look(clock: Clock, seconds: float) -> float:
    return seconds if type(clock) in (SystemClock, SharedClock) else min(seconds, _RECHECK)

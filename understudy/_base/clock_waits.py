"""Waits in memory by the clock of a run: a simulated clock ends them when it is advanced."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from understudy._base.clock import Clock, SharedClock, SystemClock, TimerClock, jittered
from understudy._base.event_loops import call_on

logger: logging.Logger = logging.getLogger(__name__)

_RECHECK = 0.1
"""Seconds after which a clock of the program's own that has no timers is looked at again."""
_NOW = 1e-6
"""Seconds that are no wait: a clock counts microseconds."""
_AFTER_AN_ERROR = 1.0
"""Seconds after which a clock that has raised is asked again."""


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

    def on_time(done: Callable[[], None]) -> None:
        if not call_on(loop, wake, done):
            done()

    cancel = clock.call_at(clock.now() + timedelta(seconds=seconds), on_time)
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


def block_by(clock: Clock, seconds: float, waits: Callable[[], None] = _nobody) -> None:
    """Block this thread for so long by this clock; the arguments are those of `wait_by`.

    On an event loop it would stop the loop.
    """
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > _NOW:
        passed = threading.Event()
        if not isinstance(clock, TimerClock):
            waits()
            waits = _nobody
            passed.wait(_until_next_look(clock, left))
            continue

        def on_time(done: Callable[[], None], passed: threading.Event = passed) -> None:
            passed.set()
            done()

        cancel = clock.call_at(clock.now() + timedelta(seconds=left), on_time)
        waits()
        waits = _nobody
        try:
            passed.wait()
        finally:
            cancel()


class Again:
    """Does something again and again, each time after a period by a clock. On one loop.

    Whoever advances a simulated clock waits until it is done. By other clocks the period differs
    by a quarter at random, so that hosts that share a store do not act at the same moment.

    Args:
        clock: by which the period passes.
        seconds: the period.
        work: what is done. It must not raise.
        start_task: starts a task that ends with the runtime at the latest.

    """

    def __init__(
        self,
        clock: Clock,
        seconds: float,
        work: Callable[[], Coroutine[Any, Any, None]],
        start_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._clock, self._seconds = clock, seconds
        self._work, self._start_task = work, start_task
        self._loop = asyncio.get_running_loop()
        self._until: float | None = None
        self._disarm: Callable[[], object] = _nobody
        self._task: asyncio.Task[None] | None = None
        self._is_open = False

    def begin(self) -> None:
        """Begin the first period. A simulated clock that is advanced from now on stops at it."""
        self._is_open = True
        self._arm()

    def close(self) -> None:
        """Do it no more."""
        self._is_open = False
        self._disarm()
        if self._task is not None:
            self._task.cancel()

    def _arm(self) -> None:
        clock = self._clock
        try:
            now = clock.monotonic()
            if isinstance(clock, TimerClock):
                at = clock.now() + timedelta(seconds=self._seconds)
                self._disarm = clock.call_at(at, self._on_time)
                return
        except BaseException:  # of the application's clock; a SystemExit of it would end the loop
            logger.exception("the clock raised: it is asked again")
            self._disarm = self._loop.call_later(_AFTER_AN_ERROR, self._arm).cancel
            return
        if self._until is None:
            self._until = now + jittered(self._seconds)
        left = self._until - now
        if left > _NOW:
            self._disarm = self._loop.call_later(_until_next_look(clock, left), self._arm).cancel
        else:
            self._until = None
            self._start(_nobody)

    def _on_time(self, done: Callable[[], None]) -> None:
        """The clock has reached the end of the period. Called in any thread."""
        if not call_on(self._loop, self._start, done):
            done()  # the loop is closed

    def _start(self, done: Callable[[], None]) -> None:
        if not self._is_open:
            done()
            return

        def ended(_task: asyncio.Task[None]) -> None:
            self._task = None
            if self._is_open:
                self._arm()
            done()

        self._task = self._start_task(self._work())
        self._task.add_done_callback(ended)


def _until_next_look(clock: Clock, seconds: float) -> float:
    return seconds if type(clock) in (SystemClock, SharedClock) else min(seconds, _RECHECK)

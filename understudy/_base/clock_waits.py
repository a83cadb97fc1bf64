"""Waits in memory by the clock of a run: a simulated clock ends them when it is advanced."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

from understudy._base.clock import Clock, SharedClock, SystemClock, TimerClock
from understudy._base.event_loops import call_on

_RECHECK = 0.1
"""Seconds after which a clock of the program's own that has no timers is looked at again."""
_NOW = 1e-6
"""Seconds that are no wait: a clock counts microseconds."""


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


def _until_next_look(clock: Clock, seconds: float) -> float:
    return seconds if type(clock) in (SystemClock, SharedClock) else min(seconds, _RECHECK)

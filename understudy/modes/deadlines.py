"""The deadline of a run: it ends whatever is going on, as a cancellation does (P9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from understudy.errors import JournalFailed
from understudy.modes.stop_steps import time_is_over
from understudy.outcomes import Outcome
from understudy.run.run import Run

__all__ = ["within_deadline"]


async def within_deadline(run: Run, going: Awaitable[Outcome]) -> Outcome | None:
    """What the drive brings, or None where its time was over first.

    A model call or async tool is interrupted at once; the thread of a plain one is abandoned. The
    wish to stop is recorded before anything is interrupted, so a crash in between changes nothing.
    In a halted tree there is none: what still goes on is interrupted, and the halt stands (I11).
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        left = run.seconds_left
        if left:  # by the run's own clock, which need not keep pace with the loop's
            timer = loop.call_later(left, look)
            return
        with suppress(JournalFailed):  # it refuses the next record as well, and that is told
            if run.current.cancelled is None and run.root.current.halt is None:
                run.ledger.record(time_is_over(run))
        scope.reschedule(loop.time())

    scope = asyncio.timeout(None)
    try:
        async with scope:
            timer = loop.call_later(run.seconds_left or 0.0, look)
            return await going
    except TimeoutError:
        if not scope.expired():
            raise
        return None
    finally:
        if timer is not None:
            timer.cancel()

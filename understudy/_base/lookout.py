"""`Lookout`: looks at something again and again, after a hint or when a period has passed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from understudy._base.json_values import text_of
from understudy.errors import JournalFailed

logger: logging.Logger = logging.getLogger(__name__)

PAUSE = 0.1
"""Seconds behind a look that has failed: with a period of 0 it would fail again at once."""


class Hints:
    """Hints that there is something new to look at, and waits for them. On one loop.

    Who waits takes `count` before the look. A hint that comes during the look ends the next wait
    at once, so nothing that happens between a look and the wait behind it is missed.
    """

    def __init__(self) -> None:
        self.count: int = 0
        """How many hints were given."""
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def is_awaited(self) -> bool:
        """Whether a task waits for a hint."""
        return bool(self._waiters)

    def give(self) -> None:
        """There is something new: wake all who wait."""
        self.count += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seconds: float | None, count: int) -> int:
        """Wait for another hint after the first `count`, at most so long. Returns the new count."""
        if self.count == count:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await asyncio.wait({waiter}, timeout=seconds)
            finally:
                self._waiters.discard(waiter)
        return self.count


class Lookout:
    """Looks at something after each hint, and whenever a period has passed. On one loop.

    A hint may be lost on its way, a period is not. Where there is nothing to look at there is no
    task. What a look raises is logged, and is no end: the next look tries again.

    Args:
        what: the look finds out, as in "what became of calls".
        period: seconds until the next look at the latest; None: there is nothing to look at. It is
            asked before each wait.
        look: looks. It gets whether a hint led to the look. No hint did where a period has passed
            without such a look, however many hints came meanwhile.
        start_task: starts a task that ends with the runtime at the latest.
        hints: that others give. Each that was given before the first look leads to it at once.

    """

    def __init__(
        self,
        what: str,
        period: Callable[[], float | None],
        look: Callable[[bool], Coroutine[Any, Any, None]],
        start_task: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        hints: Hints | None = None,
    ) -> None:
        self._what = what
        self._period = period
        self._look = look
        self._start_task = start_task
        self._hints = hints or Hints()
        self._seen = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look from now on, as long as there is something to look at."""
        if self._task is None:
            self._task = self._start_task(self._look_again_and_again(), f"finding out {self._what}")

    def hint(self) -> None:
        """Do not wait for the end of the period."""
        self._hints.give()

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _look_again_and_again(self) -> None:
        now = asyncio.get_running_loop().time
        last = now()
        try:
            while (seconds := self._period()) is not None:
                before, due_at = self._seen, last + seconds
                self._seen = await self._hints.wait(max(due_at - now(), 0.0), before)
                # Who is hinted all the time looks for what no hint told of, too
                # (test_hints_without_end_put_off_no_look_that_is_due).
                is_hinted = self._seen != before and now() < due_at
                if not await look_once(self._what, self._look(is_hinted)):
                    await asyncio.sleep(PAUSE)
                if not is_hinted:
                    last = now()
        finally:
            self._task = None


async def look_once(what: str, look: Coroutine[Any, Any, None]) -> bool:
    """Look, and log what the look raises.

    Args:
        what: the look finds out, as in "what became of calls".
        look: looks.

    Returns:
        Whether it has raised nothing.

    """
    try:
        await look
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except JournalFailed as error:  # the store is away
        logger.warning("%s is not known: %s", what, text_of(error))
        return False
    except BaseException:  # of a store of the application: a SystemExit would end the loop
        logger.exception("%s is not known", what)
        return False
    return True

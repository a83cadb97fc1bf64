"""`AbandonedTasks`: tasks that were cancelled, go on all the same, and are not waited for.

A thread cannot be ended from outside, and a task cannot either: its code may catch the
`CancelledError` and go on. A wait for it would last for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from typing import Any

logger: logging.Logger = logging.getLogger(__name__)


class AbandonedTasks:
    """Counts the tasks of one event loop that go on after their cancellation.

    Args:
        seconds: how long a task may take to end once it is cancelled.

    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(self._tasks)

    async def cancel(self, tasks: Collection[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Cancel the tasks and wait until they have ended; return those that go on after that."""
        for task in tasks:
            task.cancel()
        if not tasks:
            return set()
        ended, going_on = await asyncio.wait(tasks, timeout=self.seconds)
        for task in ended:
            if not task.cancelled():
                task.exception()  # asyncio logs one that nobody has looked at
        return going_on - self._tasks

    def add(self, task: asyncio.Task[Any], what: str) -> None:
        """Stop waiting for the task: log where it is, and count it until it ends.

        Args:
            task: was cancelled.
            what: names it, for the log.

        """
        self._tasks.add(task)
        logger.warning(
            "%s goes on %g s after it was cancelled, in %s: it is abandoned. Async code must let "
            "asyncio.CancelledError pass",
            what,
            self.seconds,
            place_of(task),
        )
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        logger.info("the abandoned task %r has ended: %r", task.get_name(), error)


def place_of(task: asyncio.Task[Any]) -> str:
    """The innermost function that the task waits in and that is not asyncio's or ours."""
    place = "an unknown place"
    awaited: Any = task.get_coro()
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        file = frame.f_code.co_filename
        if "/asyncio/" not in file and "/understudy/" not in file:
            place = f"{frame.f_code.co_qualname} ({file}:{frame.f_lineno})"
        awaited = awaited.cr_await
    return place

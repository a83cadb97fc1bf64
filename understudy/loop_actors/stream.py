"""`Stream`: items that come over time, to iterate in a thread or on an event loop."""

from __future__ import annotations

import enum
import types
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any, Generic, TypeVar

from understudy._base.pieces import ITEMS, turn
from understudy.loop_actors.future import Future

T = TypeVar("T")


class Pause(enum.Enum):
    """No item: see `Stream._steps`."""

    PAUSE = "pause"


PAUSE = Pause.PAUSE


class Stream(ABC, Generic[T]):
    """Items that come over time: iterate with `for` in a thread, or with `async for` on a loop.

    A subclass defines in `_steps`, once for both ways, what comes next.
    """

    def __iter__(self) -> Iterator[T]:
        for step in self._steps():
            if isinstance(step, Future):
                step._fetch(None)
            elif step is not PAUSE:
                yield step

    async def __aiter__(self) -> AsyncIterator[T]:
        steps = 0
        for step in self._steps():
            if isinstance(step, Future):
                await _until_settled(step)
                continue
            if step is not PAUSE:
                yield step
                steps += 1
            # Items that are there already would come without a turn for other tasks of this loop.
            if step is PAUSE or not steps % ITEMS:
                await turn()

    @abstractmethod
    def _steps(self) -> Iterator[T | Future[Any] | Pause]:
        """The items, and a future wherever the iteration has to wait before the next step.

        A `PAUSE` lets other tasks have their turn, between two pieces of long work. The iteration
        continues when the future is settled. It does not raise the error of the future: a step that
        needs the value calls `get`.
        """


@types.coroutine
def _until_settled(future: Future[Any]) -> Generator[Any, None, None]:
    yield from future._fetch_async()

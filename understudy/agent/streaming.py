"""Events as they come: a run in a task of its own, and an iterator over what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from understudy._base.event_loops import call_on
from understudy.events import Event
from understudy.outcomes import Outcome

__all__ = ["streamed"]


async def streamed(
    begin: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Outcome]],
) -> AsyncIterator[Event | Outcome]:
    """What the run that `begin(emit)` begins tells, from any thread, in order; then its outcome."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def emit(event: Event) -> None:
        # When the loop is closed the events of an abandoned tool have no reader left.
        call_on(loop, queue.put_nowait, event)

    task = asyncio.ensure_future(begin(emit))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (event := await queue.get()) is not None:
            yield event
        yield await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

"""`streamed`: a run in a task of its own, and an iterator over its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from understudy._base.event_loops import call_on
from understudy.events import Event
from understudy.outcomes import Outcome


async def streamed(
    begin: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Outcome]],
) -> AsyncIterator[Event | Outcome]:
    """The events of the run that `begin(emit)` starts, in order, and last its outcome.

    `emit` may be called from any thread. Closing the iterator cancels the run and waits for its end
    (`test_leaving_the_loop_early_cancels_the_run_and_leaves_no_task`).
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def emit(event: Event) -> None:
        # The thread of an abandoned tool may emit after the loop was closed: nobody reads such
        # events.
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

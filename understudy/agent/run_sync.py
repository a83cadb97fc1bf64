"""Runs a coroutine to its end from code that cannot await, also while an event loop runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from understudy._base.event_loops import open_runner

T = TypeVar("T")


def run_sync(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await `work()` on a new event loop, and return its result.

    If no loop runs in this thread, the new loop runs here. If a loop runs, as in a notebook, the
    new loop runs in a new thread with a copy of this context. This thread waits, and its loop
    stands still meanwhile.

    An interrupt of the wait (`KeyboardInterrupt`) cancels the work, and is raised when the work has
    ended. A second interrupt does not wait.
    """
    if asyncio._get_running_loop() is None:  # get_running_loop, but without an exception
        with open_runner() as runner:
            return runner.run(work())
    elsewhere = _InThread(work)
    try:
        elsewhere.start()
        return elsewhere.result()
    except BaseException:
        elsewhere.cancel()
        raise


class _InThread(Generic[T]):
    """A coroutine that a new thread runs to its end."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._ended: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        # The thread is a daemon: a second interrupt leaves it behind, and the process must be able
        # to end.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run,
            args=(self._run,),
            name="understudy-sync",
            daemon=True,
        )
        self.start = self._thread.start

    def result(self) -> T:
        """Wait for the coroutine, and return its result or raise its error."""
        return self._ended.result()

    def cancel(self) -> None:
        """Cancel the coroutine if it has not ended, and wait for its end."""
        self._cancelled = True
        task = self._task
        if task is not None and not self._ended.done():
            loop = task.get_loop()
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:  # the coroutine has ended meanwhile, and its loop is closed
                assert loop.is_closed()
        with contextlib.suppress(RuntimeError):  # its start was interrupted or refused
            self._thread.join()

    def _run(self) -> None:
        try:
            with open_runner() as runner:
                result = runner.run(self._main())
        except BaseException as error:  # `result` raises the error
            self._ended.set_exception(error)
        else:
            self._ended.set_result(result)

    async def _main(self) -> T:
        # The task is set before the flag is read; `cancel` does the reverse, so one sees the other.
        # A thread that was interrupted in its start does nothing.
        self._task = asyncio.current_task()
        if self._cancelled:
            raise asyncio.CancelledError
        return await self._work()

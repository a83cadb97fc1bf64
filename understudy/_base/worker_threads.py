"""Daemon threads for plain (non-async) functions.

Not `asyncio.to_thread`: its threads are joined at exit, so a tool that hangs would keep the
process alive, and an abandoned one would keep its place for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from understudy.errors import UsageError

__all__ = ["WorkerThreads"]

logger = logging.getLogger(__name__)
T = TypeVar("T")
_IDLE_SECONDS = 10.0


class WorkerThreads:
    """At most `max_threads` daemon threads, started when needed and ended after 10 idle seconds.

    A caller that stops waiting abandons its thread: the function runs on, its place in the pool is
    free at once for others, and `abandoned` counts it until it returns.
    """

    def __init__(self, max_threads: int = 64) -> None:
        if not isinstance(max_threads, int) or max_threads < 1:
            raise UsageError(f"max_threads is a number from 1 on, not {max_threads!r}")
        self._max = max_threads
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._jobs: deque[_Call[Any]] = deque()
        self._threads = 0
        self._idle = 0
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """How many threads run a function that nobody waits for any more."""
        return self._abandoned

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        on_late: Callable[[asyncio.Future[T]], None] | None = None,
        **kwargs: Any,
    ) -> T:
        """Call `function` in a thread, with this task's context variables, and wait for it.

        When the wait is cancelled the thread is abandoned; `on_late` is then called on the loop
        with what it brings after all.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        job = _Call(lambda: context.run(function, *args, **kwargs), loop, done, self._lock)
        with self._lock:
            self._jobs.append(job)
            if len(self._jobs) <= self._idle:
                self._wake.notify()
            elif self._threads < self._max:
                self._start_thread()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._abandon(job)
            done.add_done_callback(on_late if on_late is not None else _forget)
            raise

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name="understudy-worker", daemon=True).start()

    def _abandon(self, job: _Call[T]) -> None:
        with self._lock:
            if job in self._jobs:  # not started: it never will be
                self._jobs.remove(job)
                job.done.cancel()
            elif not job.finished:
                job.abandoned = True
                self._abandoned += 1
                self._threads -= 1
                if len(self._jobs) > self._idle:
                    self._start_thread()

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._jobs:
                    self._idle += 1
                    woken = self._wake.wait(_IDLE_SECONDS)
                    self._idle -= 1
                    if not woken and not self._jobs:
                        self._threads -= 1
                        return
                job = self._jobs.popleft()
            job()
            with self._lock:
                if job.abandoned:
                    self._abandoned -= 1  # its place was given away: this thread ends
                    return
            del job


class _Call(Generic[T]):
    """One function in one thread; its outcome goes back to the loop that waits."""

    def __init__(
        self,
        call: Callable[[], T],
        loop: asyncio.AbstractEventLoop,
        done: asyncio.Future[T],
        lock: threading.Lock,
    ) -> None:
        self.call = call
        self.loop = loop
        self.done = done
        self.lock = lock
        self.finished = False
        self.abandoned = False

    def __call__(self) -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = self.call()
        except BaseException as raised:  # handed to the waiter, whatever it is
            error = raised
        with self.lock:
            self.finished = True
        try:
            self.loop.call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:
            # The loop is closed: whoever waited is gone, and a recovery finds the call in doubt.
            logger.warning("a plain function returned after its event loop was closed")

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(value)
        elif isinstance(error, StopIteration):
            # A future refuses StopIteration: it would end the coroutine that awaits it.
            self.done.set_exception(RuntimeError(f"the function raised {error!r}"))
        else:
            self.done.set_exception(error)


def _forget(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.warning("an abandoned plain function raised %r", error)

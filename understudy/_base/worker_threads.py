"""Daemon threads for plain (non-async) functions.

Not `asyncio.to_thread`: its threads are joined at exit, so a function that hangs would keep the
process alive, and an abandoned one would keep its place in the pool.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from understudy._base.forks import call_in_child
from understudy._base.json_values import shown
from understudy.errors import UsageError

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
_IDLE_SECONDS = 10.0


class WorkerThreads:
    """At most `max_threads` daemon threads, started when needed and ended after 10 idle seconds.

    A caller whose wait is cancelled abandons its thread: the function runs on, its place in the
    pool is free at once, and `abandoned` counts it until it returns.

    Raises:
        UsageError: if `max_threads` is not a number from 1 on.

    """

    def __init__(self, max_threads: int = 64, *, name: str = "understudy-worker") -> None:
        is_number = isinstance(max_threads, int) and not isinstance(max_threads, bool)
        if not is_number or max_threads < 1:
            raise UsageError(
                f"`max_threads` must be a whole number from 1 on, got {shown(max_threads)}"
            )
        self._max = max_threads
        self._name = name
        self._begin_anew()
        _all.add(self)

    def _begin_anew(self) -> None:
        """Without a thread: at first, and in the child of a fork, which has none of its parent's.

        test_a_plain_function_runs_in_the_child_of_a_fork
        """
        self._lock = threading.Lock()
        self._job_added = threading.Condition(self._lock)
        self._jobs: deque[_Job[Any]] = deque()
        self._threads = 0
        self._idle = 0
        self._is_over = False
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """The number of threads that run a function without a waiter."""
        return self._abandoned

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        on_late: Callable[[asyncio.Future[T]], None] | None = None,
        **kwargs: Any,
    ) -> T:
        """Call `function` in a thread, with a copy of this task's context variables.

        When the wait is cancelled the thread is abandoned. `on_late` is then called on the loop
        with the future of the function's result, as soon as it is done.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(function, *args, **kwargs), loop, done, self._lock)
        with self._lock:
            self._jobs.append(job)
            self._is_over = False
            # Not "if self._idle": an idle thread may be notified already and not be awake yet.
            # Shown by
            # test_functions_that_come_at_once_run_beside_each_other_though_one_thread_is_idle.
            if len(self._jobs) <= self._idle:
                self._job_added.notify()
            elif self._threads < self._max:
                self._start_thread()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._abandon(job)
            done.add_done_callback(on_late if on_late is not None else _log_late_error)
            raise

    def end_idle(self) -> None:
        """End the threads that have nothing to do. A later job starts another one."""
        with self._lock:
            self._is_over = True
            self._job_added.notify_all()

    def _start_thread(self) -> None:
        """Start one more. Where none can be started, jobs wait for the threads that there are.

        Without any their callers get the error: nothing else would ever take them.
        """
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except Exception as error:  # a limit of the system's, or no memory
            if self._threads:
                logger.warning("no further worker thread could be started: %s", error)
                return
            jobs, self._jobs = self._jobs, deque()
            for job in jobs:
                job.refuse(error)
        else:
            self._threads += 1

    def _abandon(self, job: _Job[T]) -> None:
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
                job.done.cancel()
            # A function that has returned, and whose future is not settled yet, holds no place.
            # Shown by test_a_function_that_returned_before_its_wait_was_cancelled_is_not_abandoned.
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
                    # Race: the thread may come back from its last job only after `end_idle`.
                    self._idle += 1
                    notified = self._is_over or self._job_added.wait(_IDLE_SECONDS)
                    self._idle -= 1
                    if (self._is_over or not notified) and not self._jobs:
                        self._threads -= 1
                        return
                job = self._jobs.popleft()
            job()
            with self._lock:
                if job.abandoned:
                    self._abandoned -= 1
                    return  # another thread has its place
            del job  # an idle thread holds no arguments and no result


class _Job(Generic[T]):
    """One function in one thread; its result goes to the loop of the waiter."""

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
        except BaseException as raised:  # re-raised at the waiter
            error = raised
        with self.lock:
            self.finished = True
        try:
            self.loop.call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:
            # The loop is closed and with it the waiter; a recovery finds the call in doubt.
            # Shown by test_a_function_that_outlives_its_loop_harms_nothing.
            logger.warning("a plain function returned after its event loop was closed")

    def refuse(self, error: Exception) -> None:
        """No thread calls the function. Called on any loop, with the lock."""
        with suppress(RuntimeError):  # the loop is closed, and with it the waiter
            self.loop.call_soon_threadsafe(self._settle, None, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(value)
        elif isinstance(error, StopIteration):
            # A future refuses StopIteration: it would end the coroutine that awaits it.
            self.done.set_exception(RuntimeError(f"the function raised {shown(error)}"))
        else:
            self.done.set_exception(error)


_all: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()


def _begin_anew_in_child() -> None:
    for threads in list(_all):
        threads._begin_anew()


call_in_child(_begin_anew_in_child)


def _log_late_error(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        logger.warning("an abandoned plain function raised %s", shown(error))

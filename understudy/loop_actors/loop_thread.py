"""An event loop in a daemon thread, and the shared loop of actors that are started without one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from understudy._base.event_loops import open_runner
from understudy._base.forks import call_in_child
from understudy.errors import UsageError
from understudy.loop_actors.live_actors import end_actors_of_closed_loops

logger: logging.Logger = logging.getLogger(__name__)


class LoopThread:
    """A daemon thread that runs an event loop from `start()` to `stop()`."""

    def __init__(self, name: str = "understudy-loop") -> None:
        self._name = name
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs from `start()` to `stop()`.

        Raises:
            UsageError: if the thread was not started, or has stopped.

        """
        if self._loop is None:
            raise UsageError("this LoopThread does not run: call start() first")
        return self._loop

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the thread if it does not run, wait until its loop runs, and return the loop.

        Raises:
            OutOfDescriptors: if no file descriptor is left for the loop.
            RuntimeError: if no thread can be started.

        """
        with self._lock:
            if self._loop is None:
                running: Future[None] = Future()
                thread = threading.Thread(
                    target=self._run, args=(running,), name=self._name, daemon=True
                )
                thread.start()
                running.result()
                self._thread = thread
            return self.loop

    def stop(self, timeout: float | None = None) -> bool:
        """Cancel the tasks of the loop, end its actors, and close it.

        On the loop itself, the call only requests this and returns at once. It may be called twice.
        A task that ignores its cancellation keeps the loop and its thread until the task ends.

        Args:
            timeout: seconds to wait for the thread; None = no limit.

        Returns:
            True if the thread has ended.

        """
        with self._lock:
            # The thread is taken in one step. So only one of two threads that stop it sends the
            # request, and a later start makes a new thread.
            thread, loop, stopping = self._thread, self._loop, self._stopping
            self._loop = None
        if loop is not None and stopping is not None:
            loop.call_soon_threadsafe(stopping.set)
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self, running: Future[None]) -> None:
        try:
            with open_runner() as runner:
                _run_until_complete(runner.get_loop(), self._wait(running))
        except BaseException as error:
            if running.done():
                raise
            # Only this thread can end the wait of the caller
            # (test_a_runtime_raises_however_few_files_it_may_open).
            running.set_exception(error)
            return
        # Another thread may have started actors while the loop shut down, after its own had ended:
        # test_an_actor_that_is_started_while_it_stops_is_ended_with_it
        end_actors_of_closed_loops()

    async def _wait(self, running: Future[None]) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        running.set_result(None)
        await self._stopping.wait()


def _run_until_complete(loop: asyncio.AbstractEventLoop, wait: Coroutine[Any, Any, None]) -> None:
    """Run the loop until the coroutine has ended.

    A task that raises `SystemExit` or `KeyboardInterrupt` stops its loop, and its awaiter gets the
    exception. Such a task may be an application's own, in a `gather` of a tool. The loop has other
    agents, so it continues (test_a_system_exit_in_a_task_of_a_tool_ends_no_other_agent).
    """
    waiting = loop.create_task(wait)
    while not waiting.done():
        try:
            loop.run_until_complete(waiting)
        except (SystemExit, KeyboardInterrupt):
            logger.exception(
                "a task of the event loop raised what ends a program; the loop continues"
            )


_lock = threading.Lock()
_shared: LoopThread | None = None


def shared_loop() -> asyncio.AbstractEventLoop:
    """The loop of actors that are started where no loop runs; its thread starts on demand."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = LoopThread("understudy-actors")
        return _shared.start()


def _forget_after_fork() -> None:
    """Let the child of a fork start a thread of its own: the parent's does not run there."""
    global _lock, _shared
    _lock = threading.Lock()
    _shared = None


call_in_child(_forget_after_fork)

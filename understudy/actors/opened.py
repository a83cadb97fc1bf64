"""`Opened`: a `Runtime` or an `Observer` is open on a loop: of its own, or of the application."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from typing import Self

from understudy._base import forks
from understudy.actors.presence import Presence
from understudy.actors.reads.store_views import StoreViews
from understudy.errors import ForkedRuntime, UsageError
from understudy.loop_actors.future import refuse_closed, refuse_on_its_loop
from understudy.loop_actors.loop_thread import LoopThread

logger: logging.Logger = logging.getLogger(__name__)


class Opened(StoreViews):
    """The base of objects that open and close on a loop. `with` makes the loop, in a thread.

    Args:
        stop_timeout: seconds that steps in progress may take when it closes; None = no limit.
        cancel_timeout: seconds that code of the application may keep the loop of a thread from
            ending; None = no limit.

    """

    def __init__(
        self, *, stop_timeout: float | None = None, cancel_timeout: float | None = None
    ) -> None:
        self._stop_timeout = stop_timeout
        self._cancel_timeout = cancel_timeout
        self._thread: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop on which the object is open; None while it is closed."""
        self._forks = forks.count
        self.presence: Presence = Presence()
        """The people who look at requests now, as far as the pages of this process know."""

    # -------------------------------------------------------- in a thread of its own

    def __enter__(self) -> Self:
        self._refuse_twice()
        self._thread = LoopThread(f"understudy-{type(self).__name__.lower()}")
        loop = self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._enter(), loop).result()
        except BaseException:
            self._end_thread(self._thread)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._leave(self._stop_timeout)

    def _leave(self, timeout: float | None) -> None:
        """Close the object and end its thread. A second call does nothing.

        Raises:
            UsageError: inside `async with`.
            WouldDeadlock: on its loop.

        """
        thread, loop = self._thread, self._loop
        if thread is None:
            if loop is not None:
                raise UsageError(
                    f"this {type(self).__name__} uses the application's event loop: leave its "
                    "`async with` instead"
                )
            return
        if self._forks != forks.count:
            return  # the loop's thread is the parent's
        if loop is not None:
            refuse_on_its_loop(loop, "stop", "call it from another thread")
        try:
            if loop is not None:
                asyncio.run_coroutine_threadsafe(self._close_here(timeout), loop).result()
        finally:
            # Also where Ctrl-C interrupts the wait: what is left is cut off, and the store is
            # closed (test_a_second_interrupt_cuts_off_what_the_first_waits_for).
            self._end_thread(thread)
            self._thread = None

    def _end_thread(self, thread: LoopThread) -> None:
        """End the loop and its thread, unless code of the application goes on: it is left to run.

        The loop cancels its tasks, closes its generators and waits for what `asyncio.to_thread`
        runs: each of them may go on for ever.
        """
        if not thread.stop(self._cancel_timeout):
            logger.warning(
                "the event loop of this runtime has not ended in %g s, and is left to its thread: "
                "a task, an async generator or a function in asyncio.to_thread goes on in it",
                self._cancel_timeout,
            )

    # ------------------------------------------------------ on the application's loop

    async def __aenter__(self) -> Self:
        self._refuse_twice()
        await self._enter()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the object, on the loop on which it was entered.

        Raises:
            UsageError: on another loop than that on which it was entered; it stays open.

        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise UsageError(
                f"this {type(self).__name__} was entered on another event loop: leave its `async "
                "with` on that loop (with pytest-asyncio, give the fixture and the tests the same "
                "`loop_scope`)"
            )
        await self._close_here(self._stop_timeout)

    # ----------------------------------------------------------------------- of both

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        await self._open(loop)
        self._loop = loop

    async def _close_here(self, timeout: float | None) -> None:
        try:
            await self._close(timeout)
        finally:
            self._loop = None

    @abstractmethod
    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the object. Called on the loop."""

    @abstractmethod
    async def _close(self, timeout: float | None) -> None:
        """Close the object, on the loop. Steps in progress may take `timeout` seconds."""

    # ------------------------------------------------------------ may it be called now?

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which the object is open.

        Raises:
            ForkedRuntime: in a child process.
            LoopNotRunning: if the loop is closed.
            UsageError: if it is not open yet, or closed.

        """
        self._refuse_in_fork()
        self._refuse_ended()
        if self._loop is None:
            what = type(self).__name__
            raise UsageError(f"this {what} is not open: use it in `with` or `async with`")
        refuse_closed(self._loop)
        return self._loop

    def _refuse_twice(self) -> None:
        if self._loop is not None:
            raise UsageError(f"this {type(self).__name__} is open already")
        self._refuse_ended()

    def _refuse_in_fork(self) -> None:
        """Raise a `ForkedRuntime` in a child process of the process that opened the object."""
        if self._forks != forks.count:
            raise ForkedRuntime

    def _refuse_ended(self) -> None:
        """Raise a `UsageError` if the object has ended for good."""

"""`RuntimeLoop`: the event loop of a runtime, in a thread of its own or the application's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from understudy._base import forks
from understudy.actors.agent.slot import running_agents
from understudy.actors.agent_host import AgentHost
from understudy.errors import ForkedRuntime, UsageError, WouldDeadlock
from understudy.loop_actors.future import refuse_closed, refuse_on_its_loop
from understudy.loop_actors.loop_thread import LoopThread

logger: logging.Logger = logging.getLogger(__name__)


class RuntimeLoop:
    """Opens a runtime on a loop, once, and closes it there. Says whether it can be called.

    Args:
        host: of the runtime's agents.
        open: called on the loop: it opens the runtime.
        close: called on the loop, with the seconds that steps in progress may take.
        stop_timeout: these seconds by default; None = no limit.
        cancel_timeout: seconds that code of the application may keep the loop of a thread from
            ending.

    """

    def __init__(
        self,
        host: AgentHost,
        open: Callable[[asyncio.AbstractEventLoop], Awaitable[None]],
        close: Callable[[float | None], Awaitable[None]],
        *,
        stop_timeout: float | None,
        cancel_timeout: float,
    ) -> None:
        self._host = host
        self._open_runtime = open
        self._close_runtime = close
        self._stop_timeout = stop_timeout
        self._cancel_timeout = cancel_timeout
        self._thread: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forks = forks.count

    # -------------------------------------------------------- in a thread of its own

    def start(self) -> None:
        """Open on a loop in a thread of its own, and wait for that.

        Raises:
            UsageError: if it was opened before.

        """
        self._refuse_twice()
        self._thread = LoopThread("understudy-runtime")
        loop = self._thread.start()
        try:
            _on(loop, self._open()).result()
        except BaseException:
            self._end_thread(self._thread)
            raise

    def stop(self, timeout: float | None) -> None:
        """Close it and end the thread. As `Runtime.stop`, which raises what this raises."""
        thread, loop = self._thread, self._loop
        if thread is None:
            if loop is not None:
                raise UsageError(
                    "this runtime uses the application's event loop: leave its `async with` instead"
                )
            return
        if self._forks != forks.count:
            return  # the loop's thread is the parent's
        if loop is not None:
            self.refuse_inside_run("stop", "a run cannot stop the runtime it runs in")
            refuse_on_its_loop(loop, "stop", "call it from another thread")
        try:
            if loop is not None:
                seconds = self._stop_timeout if timeout is None else timeout
                _on(loop, self._close(seconds)).result()
        finally:
            # Also where Ctrl-C interrupts the wait: what is left is cut off, and the store is
            # closed (test_a_second_interrupt_cuts_off_what_the_first_waits_for).
            self._end_thread(thread)
            self._thread = None

    def _end_thread(self, thread: LoopThread) -> None:
        """End the loop. Code of the application that goes on keeps its thread, and is left to it.

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

    async def enter(self) -> None:
        """Open on the loop that runs.

        Raises:
            UsageError: if it was opened before.

        """
        self._refuse_twice()
        await self._open()

    async def leave(self) -> None:
        """Close it there.

        Raises:
            UsageError: on another loop; it stays open.

        """
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise UsageError(
                "this runtime was entered on another event loop: leave its `async with` on that "
                "loop (with pytest-asyncio, give the fixture and the tests the same `loop_scope`)"
            )
        await self._close(self._stop_timeout)

    # ----------------------------------------------------------------------- of both

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        await self._open_runtime(loop)
        self._loop = loop

    async def _close(self, timeout: float | None) -> None:
        try:
            await self._close_runtime(timeout)
        finally:
            self._loop = None

    def _refuse_twice(self) -> None:
        if self._loop is not None or self._host.lifetime.is_set():
            raise UsageError("a Runtime is entered once: create another one")

    # ------------------------------------------------------------ may it be called now?

    def running(self) -> asyncio.AbstractEventLoop:
        """The loop, while the runtime runs on it.

        Raises:
            ForkedRuntime: in a child process.
            LoopNotRunning: if the loop is closed.
            UsageError: if it is not open yet, or closed.

        """
        self.refuse_in_fork()
        if self._host.lifetime.is_set():
            raise UsageError("this runtime has stopped: create another one")
        if self._loop is None:
            raise UsageError("this runtime is not started: use it in `with` or `async with`")
        refuse_closed(self._loop)
        return self._loop

    def refuse_in_fork(self) -> None:
        """Raise a `ForkedRuntime` in a child process."""
        if self._forks != forks.count:
            raise ForkedRuntime

    def refuse_inside_run(self, what: str, remedy: str) -> None:
        """Raise a `WouldDeadlock` in code of a run of this runtime."""
        if any(services is self._host.services for services, _ in running_agents.get()):
            raise WouldDeadlock(what=what, remedy=remedy)


def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop)

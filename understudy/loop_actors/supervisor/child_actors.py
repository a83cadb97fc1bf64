"""The actors of a supervisor's children: started, watched and stopped one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from understudy._base.clock import Clock
from understudy._base.event_loops import call_on
from understudy.loop_actors.monitor import Down
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.child import Child
from understudy.loop_actors.supervisor.lifecycle import (
    SHUTDOWN_SECONDS,
    Sleep,
    ended_within,
    is_own_cancellation,
    shutdown_exceeded,
    start_actor,
    start_failed,
    wait_until_started,
)
from understudy.loop_actors.supervisor.ref import SupervisorRef
from understudy.loop_actors.supervisor.snapshots import ChildStatus


class ChildActors:
    """Starts, watches and stops the actors of children, only on the supervisor's loop."""

    def __init__(
        self, clock: Clock, sleep: Sleep, on_exit: Callable[[Child, BaseException | None], None]
    ) -> None:
        """`on_exit` is called when a running child ends by itself, at any await."""
        self._clock = clock
        self._sleep = sleep
        self._on_exit = on_exit
        self._on_down = self._exited  # one for all children: each bound method takes 64 bytes

    async def start(self, child: Child) -> LoopActorRef[Any]:
        """Start the child's actor and wait until its `on_start` has returned.

        Raises:
            ChildStartFailed: if it does not start; the child is stopped.

        """
        loop = asyncio.get_running_loop()
        child.status = ChildStatus.STARTING
        ended = child.ended = loop.create_future()
        try:
            ref = await start_actor(child.spec.start)
            child.actor_class = ref.actor_class
            child.subtree = ref._table.tree if isinstance(ref, SupervisorRef) else None
            child.ref = ref
            ref.monitor(_Watch(loop, self._on_down, child))
            await wait_until_started(ref, ended)
        except BaseException as error:  # BaseException too: a child must not stop its supervisor
            if is_own_cancellation(error):
                raise
            child.status = ChildStatus.STOPPED
            raise start_failed(child.spec.id, error) from error
        finally:
            child.ended = None
        child.status = ChildStatus.RUNNING
        child.running_since = self._clock.monotonic()
        if ended.done():
            # It ended between its start and this line, and `_exited` has left that to this call:
            # test_a_child_that_ends_the_moment_it_has_started_is_started_again
            self._on_exit(child, ended.result())
        else:
            child.answer()
        return ref

    async def stop(self, child: Child) -> None:
        """Stop the child's actor, wait until it has ended, and cancel its pending restart."""
        child.exit = None
        if child.pending is not None:
            child.pending.drop(child)
        if (ref := child.ref) is not None:
            child.status = ChildStatus.STOPPING
            ended = child.ended = asyncio.get_running_loop().create_future()
            try:
                await self._stop_within(_deadline(child), ref, ended)
            finally:
                child.ended = None
        child.status = ChildStatus.STOPPED

    async def _stop_within(
        self, seconds: float | None, ref: LoopActorRef[Any], ended: asyncio.Future[Any]
    ) -> None:
        """Request a stop, cancel it when the seconds have passed, and wait until it has ended."""
        if seconds != 0:
            ref.stop(block=False)
            if await ended_within(seconds, ended, self._sleep):
                return
        ref.stop_now(shutdown_exceeded(seconds))
        await ended

    def stop_now(self, child: Child, reason: BaseException, error: Exception) -> None:
        """Cancel the child's actor and its pending restart; its waiters get `error`."""
        if child.pending is not None:
            child.pending.drop(child)
        child.exit = None
        child.status = ChildStatus.STOPPED
        if child.ref is not None:
            child.ref.stop_now(reason)
        child.answer(error)

    def _exited(self, child: Child, down: Down) -> None:
        child.ref = None
        if child.ended is not None:  # the supervisor waits for this end, so it is no exit
            if not child.ended.done():
                child.ended.set_result(down.reason)
        elif child.status is ChildStatus.RUNNING:
            self._on_exit(child, down.reason)


class _Watch:
    """A watcher that notifies the supervisor on its loop that a child has ended.

    A function with the same references takes 0.3 KB more for each child.
    """

    __slots__ = ("_child", "_exited", "_loop")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        exited: Callable[[Child, Down], None],
        child: Child,
    ) -> None:
        self._loop = loop
        self._exited = exited
        self._child = child

    def __call__(self, down: Down) -> None:
        call_on(self._loop, self._exited, self._child, down)


def _deadline(child: Child) -> float | None:
    shutdown = child.spec.shutdown
    if shutdown != "default":
        return shutdown
    return None if child.subtree is not None else SHUTDOWN_SECONDS

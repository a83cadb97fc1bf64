"""The actors of a supervisor's children: started, watched and stopped, one at a time."""

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
    gone_in_time,
    is_own_cancellation,
    start_failed,
    started_by,
    too_late,
    until_started,
)
from understudy.loop_actors.supervisor.ref import SupervisorRef
from understudy.loop_actors.supervisor.snapshots import ChildStatus

__all__ = ["ChildActors"]


class ChildActors:
    """Starts, watches and stops the actors of children, on the supervisor's loop alone."""

    def __init__(
        self, clock: Clock, sleep: Sleep, exited: Callable[[Child, BaseException | None], None]
    ) -> None:
        """`exited` is told when a running child ends by itself, also while a message is handled."""
        self._clock = clock
        self._sleep = sleep
        self._tell_exit = exited

    async def start(self, child: Child) -> LoopActorRef[Any]:
        """Start the child's actor and wait until its `on_start` is through.

        Raises:
            ChildStartFailed: if it does not start; the child is stopped.

        """
        loop = asyncio.get_running_loop()
        child.status = ChildStatus.STARTING
        gone = child.gone = loop.create_future()
        try:
            ref = await started_by(child.spec.start)
            child.actor_class = ref.actor_class
            child.below = ref._table if isinstance(ref, SupervisorRef) else None
            child.ref = ref
            ref.monitor(lambda down: call_on(loop, self._exited, child, down))
            await until_started(ref, gone)
        except BaseException as error:  # whatever it is, it is the child's
            if is_own_cancellation(error):
                raise
            child.status = ChildStatus.STOPPED
            raise start_failed(child.spec.id, error) from error
        finally:
            child.gone = None
        child.status = ChildStatus.RUNNING
        child.since = self._clock.monotonic()
        if gone.done():  # it started, and ended before this line
            self._tell_exit(child, gone.result())
        else:
            child.answer()
        return ref

    async def stop(self, child: Child) -> None:
        """Stop the child's actor and wait until it is gone; cancel what was planned for it."""
        child.exit = None
        if child.pending is not None:
            child.pending.drop(child)
        if (ref := child.ref) is not None:
            child.status = ChildStatus.STOPPING
            gone = child.gone = asyncio.get_running_loop().create_future()
            try:
                await self._stop_within(_deadline(child), ref, gone)
            finally:
                child.gone = None
        child.status = ChildStatus.STOPPED

    async def _stop_within(
        self, seconds: float | None, ref: LoopActorRef[Any], gone: asyncio.Future[Any]
    ) -> None:
        """Tell it to stop, and when the seconds have passed cancel it; wait until it is gone."""
        if seconds != 0:
            ref.stop(block=False)
            if await gone_in_time(seconds, gone, self._sleep):
                return
        ref.stop_now(too_late(seconds))
        await gone

    def stop_now(self, child: Child, reason: BaseException, told: Exception) -> None:
        """Cancel the child's actor, and all that was planned for it; its askers get `told`."""
        if child.pending is not None:
            child.pending.drop(child)
        child.exit = None
        child.status = ChildStatus.STOPPED
        if child.ref is not None:
            child.ref.stop_now(reason)
        child.answer(told)

    def _exited(self, child: Child, down: Down) -> None:
        child.ref = None
        if child.gone is not None:  # the supervisor itself waits for this end
            if not child.gone.done():
                child.gone.set_result(down.reason)
        elif child.status is ChildStatus.RUNNING:
            self._tell_exit(child, down.reason)


def _deadline(child: Child) -> float | None:
    shutdown = child.spec.shutdown
    if shutdown != "default":
        return shutdown
    return None if child.below is not None else SHUTDOWN_SECONDS

"""Simple children: they have no id, no spec and no place in the order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from understudy._base.event_loops import call_on
from understudy.loop_actors.monitor import Down
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor.lifecycle import (
    SHUTDOWN_SECONDS,
    Sleep,
    gone_in_time,
    is_own_cancellation,
    start_failed,
    started_by,
    too_late,
)
from understudy.loop_actors.supervisor.spec import StartChild

__all__ = ["SimpleChildren"]


class SimpleChildren:
    """Starts simple children, forgets those that ended, stops all together. On its loop alone."""

    def __init__(self, refs: dict[str, LoopActorRef[Any]], sleep: Sleep) -> None:
        self._refs = refs
        self._sleep = sleep
        self._started = 0
        self._all_gone: asyncio.Future[None] | None = None  # who waits for their end
        self._watcher: Callable[[Down], object] | None = None  # one for all of them

    async def start(self, start: StartChild) -> LoopActorRef[Any]:
        """A new one; without waiting for its `on_start`.

        Raises:
            ChildStartFailed: if `start` raises.

        """
        self._started += 1
        try:
            ref = await started_by(start)
        except BaseException as error:  # whatever it is, it is the child's
            if is_own_cancellation(error):
                raise
            raise start_failed(f"simple-{self._started}", error) from error
        self._refs[ref.actor_urn] = ref
        if self._watcher is None:
            self._watcher = self._watcher_here()
        ref.monitor(self._watcher)
        return ref

    def _watcher_here(self) -> Callable[[Down], object]:
        loop = asyncio.get_running_loop()
        return lambda down: call_on(loop, self._exited, down)

    async def stop(self) -> None:
        """Tell all to stop, and when their time is over cancel the rest; wait until all are gone.

        They have one deadline for all of them, the default of a worker.
        """
        if not self._refs:
            return
        gone = self._all_gone = asyncio.get_running_loop().create_future()
        for ref in list(self._refs.values()):
            ref.stop(block=False)
        if not await gone_in_time(SHUTDOWN_SECONDS, gone, self._sleep):
            self.stop_now(too_late(SHUTDOWN_SECONDS))
            await gone

    def stop_now(self, reason: BaseException) -> None:
        """Cancel all, the latest first."""
        for ref in reversed(list(self._refs.values())):
            ref.stop_now(reason)

    def _exited(self, down: Down) -> None:
        self._refs.pop(down.ref.actor_urn, None)
        gone = self._all_gone
        if gone is not None and not self._refs and not gone.done():
            gone.set_result(None)

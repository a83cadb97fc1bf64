"""Simple children: temporary, without id, spec and place in the order."""

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
    ended_within,
    is_own_cancellation,
    shutdown_exceeded,
    start_actor,
    start_failed,
)
from understudy.loop_actors.supervisor.spec import StartChild


class SimpleChildren:
    """Starts simple children, removes ended ones, and stops all together; only on its loop."""

    def __init__(self, refs: dict[str, LoopActorRef[Any]], sleep: Sleep) -> None:
        self._refs = refs
        self._sleep = sleep
        self._started = 0
        self._all_ended: asyncio.Future[None] | None = None  # if `stop` waits
        self._watcher: Callable[[Down], object] | None = None  # one for all of them, to save memory

    async def start(self, start: StartChild) -> LoopActorRef[Any]:
        """Start a child without waiting for its `on_start`.

        Raises:
            ChildStartFailed: if `start` raises.

        """
        self._started += 1
        try:
            ref = await start_actor(start)
        except BaseException as error:  # BaseException too: a child must not stop its supervisor
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
        """Request a stop of all, cancel the rest at the deadline, and wait until all have ended.

        All have the same deadline: the default of a worker.
        """
        if not self._refs:
            return
        ended = self._all_ended = asyncio.get_running_loop().create_future()
        for ref in list(self._refs.values()):
            ref.stop(block=False)
        if not await ended_within(SHUTDOWN_SECONDS, ended, self._sleep):
            self.stop_now(shutdown_exceeded(SHUTDOWN_SECONDS))
            await ended

    def stop_now(self, reason: BaseException) -> None:
        """Cancel all children, the last started first."""
        for ref in reversed(list(self._refs.values())):
            ref.stop_now(reason)

    def _exited(self, down: Down) -> None:
        self._refs.pop(down.ref.actor_urn, None)
        ended = self._all_ended
        if ended is not None and not self._refs and not ended.done():
            ended.set_result(None)

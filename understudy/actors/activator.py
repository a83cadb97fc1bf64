"""`Activator`: wakes agents and puts them away, under the runtime's supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pykka

from understudy._base.event_loops import call_on
from understudy.actors.activation import Activation
from understudy.actors.agent_actor import WAKE, AgentActor
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.messages import Delete
from understudy.actors.services import RuntimeServices
from understudy.errors import JournalFailed, UnderstudyError
from understudy.journal import index_status_of
from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import loop_for_start
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.supervisor import (
    ChildSpec,
    ChildStartFailed,
    Supervisor,
    SupervisorRef,
    SupervisorTree,
)
from understudy.state.records import Snapshot
from understudy.stopping import StopReason, StopSignal

__all__ = ["Activator"]

logger = logging.getLogger(__name__)

_LAST_SECONDS = 5.0
"""What actors that have rested or were cut off have to end."""
_STARTS = 3


class Activator:
    """Who is awake, and who supervises them. Lives on the runtime's loop."""

    services: RuntimeServices[AgentSlot, Activation]
    """Set when the runtime begins."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._supervisor: SupervisorRef | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -------------------------------------------------------------------- life

    def begin(self) -> None:
        """Start the supervisor."""
        token = loop_for_start.set(self.services.loop)
        try:
            # An agent that cannot go on is quarantined by itself and never counts here (J10).
            self._supervisor = Supervisor.start(name="agents", max_restarts=1_000_000)
        finally:
            loop_for_start.reset(token)

    async def end(self) -> None:
        """Cut everything off: no drive, no task and no actor is left."""
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self.services.tasks]
        for slot in self._directory.slots():
            if slot.activation is not None and slot.activation.task is not None:
                tasks.append(slot.activation.task)
        await asyncio.sleep(0)  # what was begun just now takes its first step: only then it can end
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._supervisor is not None:
            stopped = self._supervisor.stop(block=False)
            try:
                async with asyncio.timeout(_LAST_SECONDS):
                    await stopped
            except TimeoutError:
                await self._supervisor.stop_now()

    def tree(self) -> SupervisorTree:
        """The supervisor and the actors, as they are now."""
        assert self._supervisor is not None, "a runtime that runs has one"
        return self._supervisor.tree()

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in a task that ends with the runtime at the latest. On the loop."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------- waking

    def wake(self, slot: AgentSlot) -> None:
        """Have it look into its inbox, from any thread."""
        self._directory.hold(slot)
        call_on(self.services.loop, self.wake_here, slot)  # closed: the cell was abandoned

    def wake_here(self, slot: AgentSlot) -> None:
        """The same, on the loop."""
        ref = slot.actor_ref
        if ref is not None and _told(ref):
            return
        if self.services.closing and not slot.changing:
            if ref is None:
                slot.abandon(pykka.ActorDeadError(f"agent {slot.id!r}: its runtime has stopped"))
            return
        if ref is None and not slot.changing:
            self._activate(slot)
        # else it has just died: its supervisor starts another one, which looks into the inbox

    def _activate(self, slot: AgentSlot) -> None:
        slot.changing += 1
        self.keep(self._changed(slot, self._activated(slot)))

    async def _changed(self, slot: AgentSlot, change: Coroutine[Any, Any, None]) -> None:
        """Between being awake and passive: what comes meanwhile waits in the inbox."""
        try:
            await change
        except Exception as error:
            logger.exception("agent %r could not be woken, or put away", slot.id)
            slot.refuse_all(error)
        finally:
            slot.changing -= 1
        if slot.inbox:
            self.wake_here(slot)

    async def _activated(self, slot: AgentSlot) -> None:
        assert self._supervisor is not None, "a runtime that runs has one"
        if slot.is_supervised:
            await self._supervisor.restart_child(slot.id)
            return
        start = partial(AgentActor.start, slot)
        spec = ChildSpec(slot.id, start, restart="transient", shutdown=None)
        for attempt in itertools.count(1):
            try:
                await self._supervisor.start_child(spec)
            except ChildStartFailed:  # somebody ended it before it was up: it is started again (A3)
                if attempt == _STARTS:
                    raise
            else:
                slot.is_supervised = True
                return

    def passivated(self, slot: AgentSlot, activation: Activation | None) -> None:
        """It lies passive, and what it was is in the store."""
        if not self.services.closing:
            slot.changing += 1
            self.keep(self._changed(slot, self._put_away(slot, activation)))
        elif activation is not None:
            activation.passivated(
                pykka.ActorDeadError(f"agent {slot.id!r}: its runtime has stopped")
            )

    async def _put_away(self, slot: AgentSlot, activation: Activation | None) -> None:
        assert self._supervisor is not None, "a runtime that runs has one"
        if activation is not None:
            await self._give_up(slot, activation)
        if slot.is_supervised:
            await self._supervisor.terminate_child(slot.id)  # it has ended, if not been noticed
            await self._supervisor.delete_child(slot.id)
            slot.is_supervised = False
        self._directory.drop_unless_needed(slot)

    async def _give_up(self, slot: AgentSlot, activation: Activation) -> None:
        """Write nothing to it any more; before that, compact or delete it where that is wanted."""
        store, owned = self.services.store, activation.journal.owned
        failure: BaseException | None = None
        try:
            if activation.delete_futures:
                existed = await self._deleted(slot)
                deleted, activation.delete_futures = activation.delete_futures, ()
                for future in deleted:
                    future.set(existed)
                return
            try:
                if activation.compact_futures:
                    snapshot = Snapshot(state=activation.state.to_dict())
                    owned = await store.compact(owned, snapshot, index_status_of(activation.state))
            finally:
                await store.release(owned)
        except JournalFailed as error:  # told to who wanted it; the agent is the store's anyway
            logger.warning("agent %r was not given up: %s", owned.agent_id, error)
            failure = error
        except BaseException:
            failure = pykka.ActorDeadError(f"agent {slot.id!r}: its runtime has stopped")
            raise
        finally:
            activation.passivated(failure)

    # ------------------------------------------------------------------- deleting

    async def delete(self, id: str) -> bool:
        """As `Runtime.delete`."""
        slot = self._directory.find(id)
        if slot is None:
            return await self.services.store.delete(id)
        if slot.actor_ref is not None or slot.changing or slot.inbox:
            signal = StopSignal(StopReason.USER_REQUESTED, "deleted", source="delete")
            deleted: Future[bool] = Future()
            slot.post(Delete(signal, deleted))
            with contextlib.suppress(UnderstudyError):  # it could not be read: it goes all the same
                return await deleted
        slot.changing += 1  # what comes meanwhile waits in the inbox
        try:
            return await self._deleted(slot)
        finally:
            slot.changing -= 1
            if slot.inbox:
                self.wake_here(slot)

    async def _deleted(self, slot: AgentSlot) -> bool:
        existed = await self.services.store.delete(slot.id)
        slot.forget()
        self._directory.drop(slot)
        return existed


def _told(ref: LoopActorRef[Any]) -> bool:
    try:
        ref.tell(WAKE)
    except pykka.ActorDeadError:
        return False
    return True

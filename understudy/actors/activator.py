"""`Caretaker`: wakes agents and puts them away, under the runtime's supervisor."""

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
from understudy.actors.activation import Awake
from understudy.actors.agent_actor import WAKE, AgentActor
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_slot import AgentCell
from understudy.actors.messages import Delete
from understudy.actors.services import Home
from understudy.errors import JournalFailed, UnderstudyError
from understudy.journal import standing_of
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

__all__ = ["Caretaker"]

logger = logging.getLogger(__name__)

_LAST_SECONDS = 5.0
"""What actors that have rested or were cut off have to end."""
_STARTS = 3


class Caretaker:
    """Who is awake, and who supervises them. Lives on the runtime's loop."""

    home: Home[AgentCell, Awake]
    """Set when the runtime begins."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._supervisor: SupervisorRef | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -------------------------------------------------------------------- life

    def begin(self) -> None:
        """Start the supervisor."""
        token = loop_for_start.set(self.home.loop)
        try:
            # An agent that cannot go on is quarantined by itself and never counts here (J10).
            self._supervisor = Supervisor.start(name="agents", max_restarts=1_000_000)
        finally:
            loop_for_start.reset(token)

    async def end(self) -> None:
        """Cut everything off: no drive, no task and no actor is left."""
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self.home.tasks]
        for cell in self._directory.cells():
            if cell.awake is not None and cell.awake.task is not None:
                tasks.append(cell.awake.task)
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

    def wake(self, cell: AgentCell) -> None:
        """Have it look into its inbox, from any thread."""
        self._directory.hold(cell)
        call_on(self.home.loop, self.wake_here, cell)  # closed: the cell was abandoned

    def wake_here(self, cell: AgentCell) -> None:
        """The same, on the loop."""
        ref = cell.actor_ref
        if ref is not None and _told(ref):
            return
        if self.home.closing and not cell.changing:
            if ref is None:
                cell.abandon(pykka.ActorDeadError(f"agent {cell.id!r}: its runtime has stopped"))
            return
        if ref is None and not cell.changing:
            self._activate(cell)
        # else it has just died: its supervisor starts another one, which looks into the inbox

    def _activate(self, cell: AgentCell) -> None:
        cell.changing += 1
        self.keep(self._changed(cell, self._activated(cell)))

    async def _changed(self, cell: AgentCell, change: Coroutine[Any, Any, None]) -> None:
        """Between being awake and passive: what comes meanwhile waits in the inbox."""
        try:
            await change
        except Exception as error:
            logger.exception("agent %r could not be woken, or put away", cell.id)
            cell.refuse_all(error)
        finally:
            cell.changing -= 1
        if cell.inbox:
            self.wake_here(cell)

    async def _activated(self, cell: AgentCell) -> None:
        assert self._supervisor is not None, "a runtime that runs has one"
        if cell.known_to_supervisor:
            await self._supervisor.restart_child(cell.id)
            return
        start = partial(AgentActor.start, cell)
        spec = ChildSpec(cell.id, start, restart="transient", shutdown=None)
        for attempt in itertools.count(1):
            try:
                await self._supervisor.start_child(spec)
            except ChildStartFailed:  # somebody ended it before it was up: it is started again (A3)
                if attempt == _STARTS:
                    raise
            else:
                cell.known_to_supervisor = True
                return

    def let_go(self, cell: AgentCell, awake: Awake | None) -> None:
        """It lies passive, and what it was is in the store."""
        if not self.home.closing:
            cell.changing += 1
            self.keep(self._changed(cell, self._put_away(cell, awake)))
        elif awake is not None:
            awake.rested(pykka.ActorDeadError(f"agent {cell.id!r}: its runtime has stopped"))

    async def _put_away(self, cell: AgentCell, awake: Awake | None) -> None:
        assert self._supervisor is not None, "a runtime that runs has one"
        if awake is not None:
            await self._give_up(cell, awake)
        if cell.known_to_supervisor:
            await self._supervisor.terminate_child(cell.id)  # it has ended, if not been noticed
            await self._supervisor.delete_child(cell.id)
            cell.known_to_supervisor = False
        self._directory.drop_unless_needed(cell)

    async def _give_up(self, cell: AgentCell, awake: Awake) -> None:
        """Write nothing to it any more; before that, compact or delete it where that is wanted."""
        store, owned = self.home.store, awake.journal.owned
        failure: BaseException | None = None
        try:
            if awake.delete_wanted:
                existed = await self._deleted(cell)
                deleted, awake.delete_wanted = awake.delete_wanted, ()
                for future in deleted:
                    future.set(existed)
                return
            try:
                if awake.compact_wanted:
                    snapshot = Snapshot(state=awake.state.to_dict())
                    owned = await store.compact(owned, snapshot, standing_of(awake.state))
            finally:
                await store.release(owned)
        except JournalFailed as error:  # told to who wanted it; the agent is the store's anyway
            logger.warning("agent %r was not given up: %s", owned.agent_id, error)
            failure = error
        except BaseException:
            failure = pykka.ActorDeadError(f"agent {cell.id!r}: its runtime has stopped")
            raise
        finally:
            awake.rested(failure)

    # ------------------------------------------------------------------- deleting

    async def delete(self, id: str) -> bool:
        """As `Runtime.delete`."""
        cell = self._directory.find(id)
        if cell is None:
            return await self.home.store.delete(id)
        if cell.actor_ref is not None or cell.changing or cell.inbox:
            signal = StopSignal(StopReason.USER_REQUESTED, "deleted", source="delete")
            deleted: Future[bool] = Future()
            cell.post(Delete(signal, deleted))
            with contextlib.suppress(UnderstudyError):  # it could not be read: it goes all the same
                return await deleted
        cell.changing += 1  # what comes meanwhile waits in the inbox
        try:
            return await self._deleted(cell)
        finally:
            cell.changing -= 1
            if cell.inbox:
                self.wake_here(cell)

    async def _deleted(self, cell: AgentCell) -> bool:
        existed = await self.home.store.delete(cell.id)
        cell.forget()
        self._directory.drop(cell)
        return existed


def _told(ref: LoopActorRef[Any]) -> bool:
    try:
        ref.tell(WAKE)
    except pykka.ActorDeadError:
        return False
    return True

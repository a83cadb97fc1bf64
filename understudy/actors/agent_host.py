"""`AgentHost`: the agents of one runtime, from its start to its end, in memory or stored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from understudy._base.clock import Clock, NewId
from understudy._base.worker_threads import WorkerThreads
from understudy.actors.activation import Activation, folded
from understudy.actors.activator import Activator
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_events import LoopBlocked, Status
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.dues import DueClock
from understudy.actors.export import mark_restored
from understudy.actors.loop_monitor import LoopMonitor
from understudy.actors.messages import Passivate
from understudy.actors.phase import Phase
from understudy.actors.replies import runtime_stopped
from understudy.actors.services import RuntimeServices
from understudy.actors.tree import agent_tree
from understudy.agent.agent import Agent
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.interrupts import Request
from understudy.journal import IndexStatus, Store, index_status_of
from understudy.loop_actors.future import Future
from understudy.loop_actors.monitor import Lifetime
from understudy.loop_actors.supervisor import SupervisorTree
from understudy.state.agent_state import AgentState
from understudy.state.dues import due_of, notices_of
from understudy.state.run_state import NO_NOTICES, Notices

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """One agent, as `runtime.agents()` lists it."""

    id: str
    agent: str
    """The name of its definition."""
    status: Status
    host: str | None = None
    """The runtime that owns it, where the store is shared; None if it is in no runtime's memory."""
    index_status: IndexStatus = IndexStatus.REST
    """Its status in the store's index: what it waits for, also while it is passive."""

    @property
    def standing(self) -> IndexStatus:
        """The earlier name of `index_status`."""
        return self.index_status


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request of one of the store's agents that waits for a person."""

    agent_id: str
    request: Request
    reminders: int = 0
    """How many of its reminders have come."""
    escalated_to: tuple[str, ...] = ()
    """Who else was told of it so far."""
    next_due: datetime | None = None
    """When its next reminder, its next escalation or its expiry is due; None if nothing is."""


class AgentHost:
    """The agents of one runtime. `services` is what they use of it."""

    services: RuntimeServices[AgentSlot, Activation]
    """Set when the runtime opens."""
    dues: DueClock
    """Set when the runtime opens."""

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        store: Store,
        clock: Clock,
        new_id: NewId,
        threads: WorkerThreads,
        idle_timeout: float | None,
        deps_for: Callable[[str], Any] | None,
    ) -> None:
        self.lifetime = Lifetime()
        self.directory = Directory(agents, self.lifetime)
        self.activator = Activator(self.directory)
        self.threads = threads
        self._loop_monitor: LoopMonitor | None = None
        self._make_services: Callable[
            [asyncio.AbstractEventLoop], RuntimeServices[AgentSlot, Activation]
        ]
        self._make_services = lambda loop: RuntimeServices(
            clock=clock,
            new_id=new_id,
            threads=threads,
            store=store,
            idle_timeout=idle_timeout,
            deps_for=deps_for,
            definition=self.directory.named,
            check_inbox=self.activator.check_inbox,
            release=self.activator.release,
            ref_of=self.directory.ref_of,
            tell_due=self._tell_due,
            loop=loop,
        )

    # -------------------------------------------------------------------- life cycle

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the store and start the supervisor."""
        services = self._make_services(loop)
        self.services = self.directory.services = self.activator.services = services
        await services.store.open(self._lost_lease)
        try:
            await mark_restored(services.store, services.clock)
            self.dues = DueClock(services, self.directory)
            await self.dues.refresh()
        except BaseException:
            await services.store.close()
            raise
        self.activator.open()
        self.dues.open()
        self._loop_monitor = LoopMonitor(loop, services.clock, self._loop_blocked)
        self._loop_monitor.start()

    def _tell_due(self, agent_id: str, due: datetime | None, *, is_released: bool = False) -> None:
        self.dues.tell(agent_id, due, is_released=is_released)

    def _loop_blocked(self, seconds: float, where: str) -> None:
        for slot in self.directory.slots():
            slot.log.emit(LoopBlocked(seconds=seconds, where=where))

    async def close(self, timeout: float | None) -> None:
        """Passivate all agents, then cancel what is left, then close the store."""
        self.lifetime.set()
        if self._loop_monitor is not None:
            self._loop_monitor.stop()
        self.dues.close()
        try:
            await self._passivate_all(timeout)
        finally:
            # Whatever interrupts the waiting: no agent outlives its runtime.
            try:
                await self._end_all()
            finally:
                await self.services.store.close()

    async def _passivate_all(self, timeout: float | None) -> None:
        self.services.closing = True
        passive: list[Future[bool]] = []
        for slot in self.directory.slots():
            if slot.phase is not Phase.PASSIVE:
                future: Future[bool] = Future()
                slot.post(Passivate(future))
                passive.append(future)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for future in passive:
                    with contextlib.suppress(Exception):  # it could not be read: it is passive
                        await future

    async def _end_all(self) -> None:
        await self.activator.close()
        for slot in self.directory.all_slots():
            slot.abandon(runtime_stopped(slot.id))
        self.lifetime.end(None)

    def _lost_lease(self) -> None:
        """Other runtimes may own the agents by now: write nothing more of any of them."""
        for slot in self.directory.slots():
            activation = slot.activation
            if activation is not None:
                activation.journal.fence("this runtime's lease has ended")
                if activation.task is not None:
                    activation.task.cancel()
                else:
                    self.activator.check_inbox_here(slot)

    # ------------------------------------------------------------------- agents

    async def agents(self) -> list[AgentInfo]:
        """As `Runtime.agents`."""
        infos = {}
        async for stored in self.services.store.agents():
            infos[stored.agent_id] = AgentInfo(
                id=stored.agent_id,
                agent=stored.agent,
                status=Status.PASSIVE,
                host=stored.host,
                index_status=stored.index_status,
            )
        for slot in self.directory.slots():
            before = infos.get(slot.id)
            if slot.agent is not None:
                infos[slot.id] = AgentInfo(
                    id=slot.id,
                    agent=slot.agent.name,
                    status=slot.status,
                    host=before.host if before is not None else None,
                    index_status=before.index_status if before is not None else IndexStatus.REST,
                )
        return [infos[id] for id in sorted(infos)]

    async def pending(self) -> list[PendingRequest]:
        """As `Runtime.pending`. Of agents that are not in memory it reads the store."""
        pending = []
        seen = set()
        for slot in self.directory.slots():
            if slot.activation is None or slot.activation.ledger.has_unflushed:
                continue  # no answer precedes its commit: what the store has is listed
            seen.add(slot.id)
            # A run that is cut off with a request is listed too: the person is asked anyway.
            is_suspended = not slot.phase.has_run_task
            if is_suspended or index_status_of(slot.state) is IndexStatus.WAITS:
                pending += _pending(slot.id, slot.state)
        async for stored in self.services.store.agents({IndexStatus.WAITS}):
            if stored.agent_id not in seen:
                state = await self._stored_state(stored.agent_id)
                pending += _pending(stored.agent_id, state) if state is not None else []
        return pending

    async def _stored_state(self, id: str) -> AgentState | None:
        """The state that the store has. An agent that cannot be read is logged and left out."""
        try:
            loaded = await self.services.store.load(id)
            return folded(loaded) if loaded is not None else None
        except (SchemaVersionError, StoreDamaged) as error:
            logger.error("agent %r is left out: %s", id, error)
            return None

    def tree(self) -> SupervisorTree:
        """As `Runtime.tree`."""
        tree = self.activator.tree()
        actors = (agent_tree(child, self.directory.find(child.id)) for child in tree.children)
        return replace(tree, children=tuple(actors))


def _pending(id: str, state: AgentState) -> list[PendingRequest]:
    if not state.requests:
        return []
    told = notices_of(state)
    return [_pending_request(id, r, told.get(r.id, NO_NOTICES)) for r in state.requests]


def _pending_request(id: str, request: Request, notices: Notices) -> PendingRequest:
    return PendingRequest(
        agent_id=id,
        request=request,
        reminders=notices.reminders,
        escalated_to=tuple(e.audience for e in request.escalations[: notices.escalations]),
        next_due=due_of(request, notices),
    )

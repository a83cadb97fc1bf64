"""`AgentHost`: the agents of a runtime, from its beginning to its end, awake or stored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pykka

from understudy._base.clock import Clock, NewId
from understudy._base.worker_threads import WorkerThreads
from understudy.actors.activation import Activation, folded
from understudy.actors.activator import Activator
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_events import LoopBlocked, Status
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.export import mark_restored
from understudy.actors.loop_monitor import LoopMonitor
from understudy.actors.messages import Passivate
from understudy.actors.services import RuntimeServices
from understudy.agent.agent import Agent
from understudy.errors import (
    SchemaVersionError,
    StoreDamaged,
)
from understudy.interrupts import Request
from understudy.journal import IndexStatus, Store, index_status_of
from understudy.loop_actors.future import Future
from understudy.loop_actors.monitor import Lifetime
from understudy.loop_actors.supervisor import ChildStatus, SupervisorTree
from understudy.state.agent_state import AgentState

__all__ = ["AgentHost", "AgentInfo", "PendingRequest"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """One agent, as `runtime.agents()` found it."""

    id: str
    agent: str
    status: Status
    host: str | None = None
    """The runtime that has it, where the store is shared; None if it is in no runtime's memory."""
    index_status: IndexStatus = IndexStatus.REST
    """What it waits for, also while it is passive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request of one of the store's agents that waits for a person."""

    agent_id: str
    request: Request


class AgentHost:
    """The agents of one runtime. `services` is what they see of it."""

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
        self.alive = Lifetime()
        self.directory = Directory(agents, self.alive)
        self.activator = Activator(self.directory)
        self.threads = threads
        self._watch: LoopMonitor | None = None
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
            wake=self.activator.wake,
            passivated=self.activator.passivated,
            ref_of=self.directory.ref_of,
            loop=loop,
        )

    services: RuntimeServices[AgentSlot, Activation]

    # -------------------------------------------------------------------- life

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin: open the store, start the supervisor."""
        self.services = self.directory.services = self.activator.services = self._make_services(
            loop
        )
        await self.services.store.open(self._lost_lease)
        try:
            await mark_restored(self.services.store, self.services.clock)
        except BaseException:
            await self.services.store.close()
            raise
        self.activator.begin()
        self._watch = LoopMonitor(loop, self.services.clock, self._blocked)
        self._watch.start()

    def _blocked(self, seconds: float, where: str) -> None:
        for slot in self.directory.slots():
            slot.log.tell(LoopBlocked(seconds=seconds, where=where))

    async def close(self, timeout: float | None) -> None:
        """Let every agent rest, then end all, then close the store (A5)."""
        self.alive.set()
        if self._watch is not None:
            self._watch.stop()
        try:
            await self._rest_all(timeout)
        finally:
            # Whatever interrupts the waiting: no agent outlives its runtime.
            try:
                await self._cut_off()
            finally:
                await self.services.store.close()

    async def _rest_all(self, timeout: float | None) -> None:
        self.services.closing = True
        resting: list[Future[bool]] = []
        for slot in self.directory.slots():
            if slot.changing or slot.status is not Status.PASSIVE:
                future: Future[bool] = Future()
                slot.post(Passivate(future))
                resting.append(future)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for future in resting:
                    with contextlib.suppress(Exception):  # it could not be woken: it rests
                        await future

    async def _cut_off(self) -> None:
        await self.activator.end()
        for slot in self.directory.everybody():
            slot.abandon(pykka.ActorDeadError(f"agent {slot.id!r}: its runtime has stopped"))
        self.alive.end(None)

    def _lost_lease(self) -> None:
        """Other runtimes may own the agents by now: leave all of them alone (J8)."""
        for slot in self.directory.slots():
            activation = slot.activation
            if activation is not None:
                activation.journal.fence("this runtime's lease has ended")
                if activation.task is not None:
                    activation.task.cancel()
                else:
                    self.activator.wake_here(slot)

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
        """As `Runtime.pending`: of those that are not in memory by a look into the store."""
        pending = []
        seen = set()
        for slot in self.directory.slots():
            if slot.activation is None or slot.activation.ledger.has_unflushed:
                continue  # nothing visible precedes its commit: the store knows (J16)
            seen.add(slot.id)
            stands = slot.activation.task is None  # whatever else was cut off, a person is asked
            if stands or index_status_of(slot.state) is IndexStatus.WAITS:
                pending += _pending(slot.id, slot.state)
        async for stored in self.services.store.agents({IndexStatus.WAITS}):
            if stored.agent_id not in seen:
                state = await self._look(stored.agent_id)
                pending += _pending(stored.agent_id, state) if state is not None else []
        return pending

    async def _look(self, id: str) -> AgentState | None:
        """How an agent stands by the store. One that cannot be read is told of and left out."""
        try:
            loaded = await self.services.store.load(id)
            return folded(loaded) if loaded is not None else None
        except (SchemaVersionError, StoreDamaged) as error:
            logger.error("agent %r is left out: %s", id, error)
            return None

    def tree(self) -> SupervisorTree:
        """As `Runtime.tree`."""
        tree = self.activator.tree()
        return replace(tree, children=tuple(self._with_sub_agents(c) for c in tree.children))

    def _with_sub_agents(self, child: SupervisorTree) -> SupervisorTree:
        slot = self.directory.find(child.id)
        activation = slot.activation if slot is not None else None
        return (
            child if activation is None else replace(child, children=_sub_agents(activation.state))
        )


def _pending(id: str, state: AgentState) -> list[PendingRequest]:
    return [PendingRequest(agent_id=id, request=request) for request in state.requests]


def _sub_agents(state: AgentState) -> tuple[SupervisorTree, ...]:
    """The agents that open calls run: no actors, but part of what is supervised."""
    return tuple(
        SupervisorTree(
            id=key,
            class_name=child.run.agent,
            status=ChildStatus.RUNNING,
            restarts=0,
            children=_sub_agents(child),
        )
        for key, child in list(state.children.items())
        if child.run is not None and not child.run.over
    )

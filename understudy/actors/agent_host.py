"""`Community`: the agents of a runtime, from its beginning to its end, awake or stored."""

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
from understudy.actors.activation import Awake, folded
from understudy.actors.activator import Caretaker
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_events import LoopBlocked, Status
from understudy.actors.agent_slot import AgentCell
from understudy.actors.export import mark_restored
from understudy.actors.loop_monitor import LoopWatch
from understudy.actors.messages import Rest
from understudy.actors.services import Home
from understudy.agent.agent import Agent
from understudy.errors import (
    SchemaVersionError,
    StoreDamaged,
)
from understudy.interrupts import Request
from understudy.journal import Standing, Store, standing_of
from understudy.loop_actors.future import Future
from understudy.loop_actors.monitor import Lifetime
from understudy.loop_actors.supervisor import ChildStatus, SupervisorTree
from understudy.state.agent_state import AgentState

__all__ = ["AgentInfo", "Community", "PendingRequest"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """One agent, as `runtime.agents()` found it."""

    id: str
    agent: str
    status: Status
    host: str | None = None
    """The runtime that has it, where the store is shared; None if it is in no runtime's memory."""
    standing: Standing = Standing.REST
    """What it waits for, also while it is passive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request of one of the store's agents that waits for a person."""

    agent_id: str
    request: Request


class Community:
    """The agents of one runtime. `home` is what they see of it."""

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
        self.caretaker = Caretaker(self.directory)
        self.threads = threads
        self._watch: LoopWatch | None = None
        self._make_home: Callable[[asyncio.AbstractEventLoop], Home[AgentCell, Awake]]
        self._make_home = lambda loop: Home(
            clock=clock,
            new_id=new_id,
            threads=threads,
            store=store,
            idle_timeout=idle_timeout,
            deps_for=deps_for,
            definition=self.directory.named,
            wake=self.caretaker.wake,
            let_go=self.caretaker.let_go,
            ref_of=self.directory.ref_of,
            loop=loop,
        )

    home: Home[AgentCell, Awake]

    # -------------------------------------------------------------------- life

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin: open the store, start the supervisor."""
        self.home = self.directory.home = self.caretaker.home = self._make_home(loop)
        await self.home.store.open(self._lost_lease)
        try:
            await mark_restored(self.home.store, self.home.clock)
        except BaseException:
            await self.home.store.close()
            raise
        self.caretaker.begin()
        self._watch = LoopWatch(loop, self.home.clock, self._blocked)
        self._watch.start()

    def _blocked(self, seconds: float, where: str) -> None:
        for cell in self.directory.cells():
            cell.log.tell(LoopBlocked(seconds=seconds, where=where))

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
                await self.home.store.close()

    async def _rest_all(self, timeout: float | None) -> None:
        self.home.closing = True
        resting: list[Future[bool]] = []
        for cell in self.directory.cells():
            if cell.changing or cell.status is not Status.PASSIVE:
                future: Future[bool] = Future()
                cell.post(Rest(future))
                resting.append(future)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for future in resting:
                    with contextlib.suppress(Exception):  # it could not be woken: it rests
                        await future

    async def _cut_off(self) -> None:
        await self.caretaker.end()
        for cell in self.directory.everybody():
            cell.abandon(pykka.ActorDeadError(f"agent {cell.id!r}: its runtime has stopped"))
        self.alive.end(None)

    def _lost_lease(self) -> None:
        """Other runtimes may own the agents by now: leave all of them alone (J8)."""
        for cell in self.directory.cells():
            awake = cell.awake
            if awake is not None:
                awake.journal.fence("this runtime's lease has ended")
                if awake.task is not None:
                    awake.task.cancel()
                else:
                    self.caretaker.wake_here(cell)

    # ------------------------------------------------------------------- agents

    async def agents(self) -> list[AgentInfo]:
        """As `Runtime.agents`."""
        infos = {}
        async for stored in self.home.store.agents():
            infos[stored.agent_id] = AgentInfo(
                id=stored.agent_id,
                agent=stored.agent,
                status=Status.PASSIVE,
                host=stored.host,
                standing=stored.standing,
            )
        for cell in self.directory.cells():
            before = infos.get(cell.id)
            if cell.agent is not None:
                infos[cell.id] = AgentInfo(
                    id=cell.id,
                    agent=cell.agent.name,
                    status=cell.status,
                    host=before.host if before is not None else None,
                    standing=before.standing if before is not None else Standing.REST,
                )
        return [infos[id] for id in sorted(infos)]

    async def pending(self) -> list[PendingRequest]:
        """As `Runtime.pending`: of those that are not in memory by a look into the store."""
        pending = []
        seen = set()
        for cell in self.directory.cells():
            if cell.awake is None or cell.awake.ledger.behind:
                continue  # nothing visible precedes its commit: the store knows (J16)
            seen.add(cell.id)
            stands = cell.awake.task is None  # whatever else was cut off, a person is asked
            if stands or standing_of(cell.state) is Standing.WAITS:
                pending += _pending(cell.id, cell.state)
        async for stored in self.home.store.agents({Standing.WAITS}):
            if stored.agent_id not in seen:
                state = await self._look(stored.agent_id)
                pending += _pending(stored.agent_id, state) if state is not None else []
        return pending

    async def _look(self, id: str) -> AgentState | None:
        """How an agent stands by the store. One that cannot be read is told of and left out."""
        try:
            loaded = await self.home.store.load(id)
            return folded(loaded) if loaded is not None else None
        except (SchemaVersionError, StoreDamaged) as error:
            logger.error("agent %r is left out: %s", id, error)
            return None

    def tree(self) -> SupervisorTree:
        """As `Runtime.tree`."""
        tree = self.caretaker.tree()
        return replace(tree, children=tuple(self._with_sub_agents(c) for c in tree.children))

    def _with_sub_agents(self, child: SupervisorTree) -> SupervisorTree:
        cell = self.directory.find(child.id)
        awake = cell.awake if cell is not None else None
        return child if awake is None else replace(child, children=_sub_agents(awake.state))


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

"""`Community`: the agents of a runtime, by id: who is awake, who supervises them, who is stored."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pykka

from understudy.actors.agent_actor import WAKE, AgentActor
from understudy.actors.agent_events import LoopBlocked, Status
from understudy.actors.agent_messages import Delete, Rest
from understudy.actors.agent_ref import AgentRef
from understudy.actors.awake import Awake, folded
from understudy.actors.cell import AgentCell
from understudy.actors.future import Future
from understudy.actors.home import Home
from understudy.actors.ids import checked_id
from understudy.actors.loop_actor import loop_for_start
from understudy.actors.loop_watch import LoopWatch
from understudy.actors.monitor import Lifetime
from understudy.actors.portable import mark_restored
from understudy.actors.ref import LoopActorRef
from understudy.actors.supervisor import (
    ChildSpec,
    ChildStartFailed,
    ChildStatus,
    Supervisor,
    SupervisorRef,
    SupervisorTree,
)
from understudy.agent import Agent
from understudy.clock import Clock, NewId
from understudy.errors import (
    JournalFailed,
    OtherAgent,
    SchemaVersionError,
    StoreDamaged,
    UnderstudyError,
    UsageError,
)
from understudy.interrupts import Request
from understudy.journal import Standing, Store, standing_of
from understudy.loops import call_on
from understudy.records import Snapshot
from understudy.state import AgentState
from understudy.stopping import StopReason, StopSignal
from understudy.threads import WorkerThreads

__all__ = ["AgentInfo", "Community", "PendingRequest"]

logger = logging.getLogger(__name__)

_LAST_SECONDS = 5.0
"""What actors that have rested or were cut off have to end."""
_STARTS = 3


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
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            self._define(agent)
        self.alive = Lifetime()
        self._lock = threading.RLock()
        self._cells: dict[str, AgentCell] = {}
        """Those that must be kept: awake, or with something that is in no store."""
        self._known: weakref.WeakValueDictionary[str, AgentCell] = weakref.WeakValueDictionary()
        """Those that somebody holds, by a ref or a subscription: there is one for each id."""
        self._refs: weakref.WeakValueDictionary[str, AgentRef] = weakref.WeakValueDictionary()
        self._supervisor: SupervisorRef | None = None
        self._watch: LoopWatch | None = None
        self._activations: set[asyncio.Task[None]] = set()
        self._make_home: Callable[[asyncio.AbstractEventLoop], Home[AgentCell, Awake]]
        self._make_home = lambda loop: Home(
            clock=clock,
            new_id=new_id,
            threads=threads,
            store=store,
            idle_timeout=idle_timeout,
            deps_for=deps_for,
            definition=self._named,
            wake=self._wake,
            let_go=self._let_go,
            ref_of=self._ref_of,
            loop=loop,
        )
        self.threads = threads

    home: Home[AgentCell, Awake]

    # -------------------------------------------------------------------- life

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin: open the store, start the supervisor."""
        self.home = self._make_home(loop)
        await self.home.store.open(self._lost_lease)
        try:
            await mark_restored(self.home.store, self.home.clock)
        except BaseException:
            await self.home.store.close()
            raise
        token = loop_for_start.set(loop)
        try:
            # An agent that cannot go on is quarantined by itself and never counts here (J10).
            self._supervisor = Supervisor.start(name="agents", max_restarts=1_000_000)
        finally:
            loop_for_start.reset(token)
        self._watch = LoopWatch(loop, self.home.clock, self._blocked)
        self._watch.start()

    def _blocked(self, seconds: float, where: str) -> None:
        for cell in self.cells():
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
        for cell in list(self._cells.values()):
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
        tasks: list[asyncio.Task[Any]] = [*self._activations, *self.home.tasks]
        for cell in self._cells.values():
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
        with self._lock:
            cells = {*self._cells.values(), *self._known.values()}
        for cell in cells:
            cell.abandon(pykka.ActorDeadError(f"agent {cell.id!r}: its runtime has stopped"))
        self.alive.end(None)

    def _lost_lease(self) -> None:
        """Other runtimes may own the agents by now: leave all of them alone (J8)."""
        for cell in list(self._cells.values()):
            awake = cell.awake
            if awake is not None:
                awake.journal.fence("this runtime's lease has ended")
                if awake.task is not None:
                    awake.task.cancel()
                else:
                    self._wake_here(cell)

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in a task that ends with the runtime at the latest. On the loop."""
        task = asyncio.ensure_future(work)
        self._activations.add(task)
        task.add_done_callback(self._activations.discard)
        return task

    # ------------------------------------------------------------------- agents

    def spawn(
        self,
        agent: str | Agent,
        id: str | None,
        *,
        deps: Any,
        values: Mapping[str, Any] | None,
    ) -> AgentRef:
        """As `Runtime.spawn`."""
        id = self.home.new_id() if id is None else checked_id(id)
        if values:
            AgentState(values=values)  # they are checked before anything begins
        with self._lock:
            definition = agent if isinstance(agent, Agent) else self._named(agent)
            cell = self._cell(id)
            if cell is None:
                self._define(definition)
                cell = self._known[id] = AgentCell(
                    id, definition, self.home, deps=deps, values=values
                )
            elif cell.agent is None:
                cell.agent, cell.values = self._define(definition), values
            elif cell.agent is not definition:
                raise OtherAgent(agent_id=id, agent=cell.agent.name, wanted=definition.name)
            if deps is not None:
                cell.deps = deps
            self._cells[id] = cell  # until the store has it; deps are in no store
            return self._ref_of(cell)

    def get(self, id: str) -> AgentRef:
        """As `Runtime.get`."""
        id = checked_id(id)
        with self._lock:
            cell = self._cell(id)
            if cell is None:
                cell = self._known[id] = AgentCell(id, None, self.home)
            return self._ref_of(cell)

    def _cell(self, id: str) -> AgentCell | None:
        cell = self._cells.get(id)
        return cell if cell is not None else self._known.get(id)

    def _ref_of(self, cell: AgentCell) -> AgentRef:
        with self._lock:
            ref = self._refs.get(cell.id)
            if ref is None or ref._cell is not cell:
                ref = self._refs[cell.id] = AgentRef(cell, self.alive)
            return ref

    def is_awake(self, id: str) -> bool:
        """Whether the agent is in this runtime's memory."""
        cell = self._cells.get(id)
        return cell is not None and cell.awake is not None

    def cells(self) -> list[AgentCell]:
        """Those that are in memory."""
        with self._lock:
            return list(self._cells.values())

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
        for cell in self.cells():
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
        for cell in self.cells():
            if cell.awake is None or cell.awake.ledger.behind:
                continue  # nothing visible precedes its commit: the store knows (J16)
            seen.add(cell.id)
            if standing_of(cell.state) is Standing.WAITS:
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

    async def delete(self, id: str) -> bool:
        """As `Runtime.delete`."""
        with self._lock:
            cell = self._cell(id)
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
                self._wake_here(cell)

    async def _deleted(self, cell: AgentCell) -> bool:
        existed = await self.home.store.delete(cell.id)
        cell.forget()
        with self._lock:
            self._cells.pop(cell.id, None)
        return existed

    def tree(self) -> SupervisorTree:
        """As `Runtime.tree`."""
        assert self._supervisor is not None, "a runtime that runs has one"
        tree = self._supervisor.tree()
        return replace(tree, children=tuple(self._with_sub_agents(c) for c in tree.children))

    def _with_sub_agents(self, child: SupervisorTree) -> SupervisorTree:
        cell = self._cells.get(child.id)
        awake = cell.awake if cell is not None else None
        return child if awake is None else replace(child, children=_sub_agents(awake.state))

    def _define(self, agent: Agent) -> Agent:
        if not isinstance(agent, Agent):
            raise UsageError(f"Runtime(agents=[...]) takes agents, not {agent!r}")
        before = self._agents.setdefault(agent.name, agent)
        if before is not agent:
            raise UsageError(f"Two different agents are named {agent.name!r}: rename one")
        return agent

    def _named(self, name: str) -> Agent:
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(map(repr, self._agents)) or "none"
            raise UsageError(
                f"No agent is named {name!r}; there are: {known}. Give it to "
                "Runtime(agents=[...]); a stored agent of that name stays untouched till then"
            )
        return agent

    # ------------------------------------------------------------------- waking

    def _wake(self, cell: AgentCell) -> None:
        with self._lock:  # its ref may be gone by now: the next `get` must find this very cell
            self._cells.setdefault(cell.id, cell)
        call_on(self.home.loop, self._wake_here, cell)  # closed: the cell was abandoned

    def _wake_here(self, cell: AgentCell) -> None:
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
            self._wake_here(cell)

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

    def _let_go(self, cell: AgentCell, awake: Awake | None) -> None:
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
        with self._lock:  # what comes meanwhile is in the inbox, or keeps the cell after this
            kept = bool(cell.inbox) or cell.deps is not None or cell.waiting is not None
            if not kept and self._cells.get(cell.id) is cell:  # a subscriber holds it himself
                del self._cells[cell.id]

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


def _told(ref: LoopActorRef[Any]) -> bool:
    try:
        ref.tell(WAKE)
    except pykka.ActorDeadError:
        return False
    return True

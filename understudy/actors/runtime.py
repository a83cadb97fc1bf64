"""`Runtime`: the home of agents. One event loop, a tree of supervisors, and the agents by id."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pykka

from understudy.actors.agent_actor import WAKE, AgentActor, Rest
from understudy.actors.agent_events import Status
from understudy.actors.agent_ref import AgentRef
from understudy.actors.cell import AgentCell, running_agents
from understudy.actors.future import Future, refuse_on_a_loop
from understudy.actors.loop_actor import loop_for_start
from understudy.actors.loop_thread import LoopThread
from understudy.actors.monitor import Lifetime
from understudy.actors.ref import LoopActorRef
from understudy.actors.supervisor import ChildSpec, Supervisor, SupervisorRef, SupervisorTree
from understudy.agent import Agent
from understudy.clock import Clock, NewId, SystemClock, new_random_id
from understudy.errors import UsageError, WouldDeadlock
from understudy.interrupts import Request
from understudy.threads import WorkerThreads

__all__ = ["AgentInfo", "PendingRequest", "Runtime", "RuntimeStatus"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

IDLE_TIMEOUT = 300.0
_LAST_SECONDS = 5.0
"""What actors that have rested or were cut off have to end."""
_ID = re.compile(r"[^/]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """One agent, as `runtime.agents()` found it."""

    id: str
    agent: str
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request of one of the runtime's agents that waits for a person."""

    agent_id: str
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """How the runtime is."""

    agents: int
    running: int
    abandoned_threads: int
    """Plain tools that nobody waits for any more and that still run."""


class Runtime:
    """Spawns agents, supervises them, and finds them by id.

    `with Runtime(...)` starts an event loop in a thread of its own; `async with Runtime(...)` lives
    on the loop that runs there, so that async tools may use its connections.

    Args:
        agents: definitions that can be spawned by name.
        store: `"memory:"`: what agents record is kept while the process lives.
        deps_for: gives `deps` to an agent by its id, where none were given to `spawn`.
        idle_timeout: seconds after which an idle agent is put out of memory; None = never (A5).
        stop_timeout: seconds that steps in progress have when the runtime stops; None waits.
        max_threads: of the pool in which plain tools and hooks run.
        clock, new_id: where time and ids come from.

    Raises:
        UsageError: naming what is wrong.

    """

    def __init__(
        self,
        agents: Iterable[Agent] = (),
        *,
        store: str = "memory:",
        deps_for: Callable[[str], Any] | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT,
        max_threads: int = 64,
        stop_timeout: float | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
    ) -> None:
        if store != "memory:":
            raise UsageError(f"store is 'memory:', the one that there is so far; not {store!r}")
        if idle_timeout is not None and (
            not isinstance(idle_timeout, (int, float)) or idle_timeout <= 0
        ):
            raise UsageError(f"idle_timeout is seconds above 0, or None; not {idle_timeout!r}")
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            self._define(agent)
        self._deps_for = deps_for
        self._idle_timeout = idle_timeout
        self._stop_timeout = stop_timeout
        self._threads = WorkerThreads(max_threads)
        self._clock = clock or SystemClock()
        self._new_id = new_id or new_random_id
        self._lock = threading.RLock()
        self._cells: dict[str, AgentCell] = {}
        self._refs: dict[str, AgentRef] = {}
        self._alive = Lifetime()
        self._thread: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._supervisor: SupervisorRef | None = None
        self._activations: set[asyncio.Task[None]] = set()

    # -------------------------------------------------------------------- life

    def __enter__(self) -> Self:
        self._refuse_twice()
        self._thread = LoopThread("understudy-runtime")
        loop = self._thread.start()
        try:
            self._on(loop, self._open()).result()
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._refuse_twice()
        await self._open()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(self._stop_timeout)

    def stop(self, timeout: float | None = None) -> None:
        """Stop all agents, each after the step in progress is recorded, then the loop (A5).

        Whoever still waits gets an `ActorDeadError`. Inside `async with` leave the block instead.

        Args:
            timeout: seconds for the steps in progress; then they are cut off, as by a crash.

        """
        if running_agents.get():
            raise WouldDeadlock(what="stop", remedy="a run cannot stop the runtime it runs in")
        thread, loop = self._thread, self._loop
        if thread is None:
            if loop is not None:
                raise UsageError("this runtime lives on the host's loop: leave its `async with`")
            return
        if loop is not None:
            refuse_on_a_loop("stop", "call it from a thread")
            seconds = self._stop_timeout if timeout is None else timeout
            self._on(loop, self._close(seconds)).result()
        thread.stop()
        self._thread = None

    def _refuse_twice(self) -> None:
        if self._loop is not None or self._alive.is_set():
            raise UsageError("a Runtime is entered once: make another one")

    async def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        token = loop_for_start.set(self._loop)
        try:
            # An agent that cannot go on is quarantined by itself and never counts here (J10).
            self._supervisor = Supervisor.start(name="agents", max_restarts=1_000_000)
        finally:
            loop_for_start.reset(token)

    async def _close(self, timeout: float | None) -> None:
        self._alive.set()
        try:
            await self._rest_all(timeout)
        finally:
            # Whatever interrupts the waiting: no agent outlives its runtime.
            await self._cut_off()

    async def _rest_all(self, timeout: float | None) -> None:
        resting: list[Future[bool]] = []
        for cell in list(self._cells.values()):
            cell.closing = True
            if cell.activated and cell.status is not Status.PASSIVE:
                future: Future[bool] = Future()
                cell.post(Rest(future))
                resting.append(future)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for future in resting:
                    await future

    async def _cut_off(self) -> None:
        tasks = [*self._activations]
        tasks += [cell.task for cell in self._cells.values() if cell.task is not None]
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
        for cell in self._cells.values():
            cell.abandon(pykka.ActorDeadError(f"agent {cell.id!r}: its runtime has stopped"))
        self._alive.end(None)
        self._loop = None

    # ------------------------------------------------------------------- agents

    def spawn(
        self,
        agent: str | Agent,
        id: str | None = None,
        *,
        deps: Any = None,
        values: Mapping[str, Any] | None = None,
    ) -> AgentRef:
        """The ref of a new agent, or of the one that has this id already. No waiting, no I/O.

        Args:
            agent: a definition or the name of one.
            id: without `/`; a new one by default.
            deps: handed to its tools; never stored.
            values: what a new agent's state begins with: `{key}` in instructions reads them.

        Raises:
            UsageError: for an unknown name, a bad id, or an id that another definition has.

        """
        loop = self._running_loop()
        id = self._new_id() if id is None else id
        if not isinstance(id, str) or not _ID.fullmatch(id):
            raise UsageError(f"An agent's id is text without '/', not {id!r}")
        with self._lock:
            definition = agent if isinstance(agent, Agent) else self._named(agent)
            ref = self._refs.get(id)
            if ref is not None:
                before = self._cells[id].agent
                if before is not definition:
                    raise UsageError(
                        f"Agent {id!r} is a {before.name!r} already, not this {definition.name!r}: "
                        "use another id, or runtime.get(id)"
                    )
                if deps is not None:
                    self._cells[id].deps = deps
                return ref
            self._define(definition)
            cell = AgentCell(
                id,
                definition,
                self._clock,
                self._new_id,
                self._threads,
                self._idle_timeout,
                self._deps_for,
                deps,
                values,
                wake=partial(self._wake, loop),
            )
            ref = AgentRef(cell, self._alive)
            self._cells[id], self._refs[id] = cell, ref
            return ref

    def get(self, id: str) -> AgentRef:
        """The ref of the agent of this id.

        Raises:
            UsageError: if there is none.

        """
        ref = self._refs.get(id)
        if ref is None:
            raise UsageError(f"There is no agent {id!r}: spawn(agent, id={id!r}) makes it")
        return ref

    def agents(self) -> Future[list[AgentInfo]]:
        """All agents, in the order in which they were spawned."""
        with self._lock:
            infos = [
                AgentInfo(id=cell.id, agent=cell.agent.name, status=cell.status)
                for cell in self._cells.values()
            ]
        return _settled(infos)

    def pending(self) -> Future[list[PendingRequest]]:
        """What persons are asked now, across all agents (I10)."""
        return self._call(self._pending)

    async def _pending(self) -> list[PendingRequest]:
        return [
            PendingRequest(agent_id=cell.id, request=request)
            for cell in self._cells.values()
            for request in cell.state.requests
        ]

    def tree(self) -> SupervisorTree:
        """The supervisors and actors as they are now; `print` it."""
        self._running_loop()
        assert self._supervisor is not None, "a runtime that runs has one"
        return self._supervisor.tree()

    def status(self) -> RuntimeStatus:
        """How the runtime is, now."""
        cells = list(self._cells.values())
        return RuntimeStatus(
            agents=len(cells),
            running=sum(cell.status is Status.RUNNING for cell in cells),
            abandoned_threads=self._threads.abandoned,
        )

    # -------------------------------------------------------------------- inside

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
            raise UsageError(f"No agent is named {name!r}; there are: {known}")
        return agent

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._alive.is_set():
            raise UsageError("this runtime has stopped: make another one")
        if self._loop is None:
            raise UsageError("this runtime does not run: use it in `with` or `async with`")
        return self._loop

    def _wake(self, loop: asyncio.AbstractEventLoop, cell: AgentCell) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the cell was abandoned
            if asyncio._get_running_loop() is loop:
                self._wake_here(cell)
            else:
                loop.call_soon_threadsafe(self._wake_here, cell)

    def _wake_here(self, cell: AgentCell) -> None:
        if self._alive.is_set() and not cell.activated:
            cell.abandon(pykka.ActorDeadError(f"agent {cell.id!r}: its runtime has stopped"))
            return
        ref = cell.actor_ref
        if ref is not None and _told(ref):
            return
        if ref is None or cell.status is Status.PASSIVE:
            self._activate(cell)
        # else it has just died: its supervisor starts another one, which looks into the inbox

    def _activate(self, cell: AgentCell) -> None:
        if cell.activating:
            return
        cell.activating = True
        task = asyncio.ensure_future(self._activated(cell))
        self._activations.add(task)
        task.add_done_callback(self._activations.discard)

    async def _activated(self, cell: AgentCell) -> None:
        assert self._supervisor is not None, "a runtime that runs has one"
        try:
            if cell.activated:
                await self._supervisor.restart_child(cell.id)
            else:
                start = partial(AgentActor.start, cell)
                spec = ChildSpec(cell.id, start, restart="transient", shutdown=None)
                cell.activated = True
                await self._supervisor.start_child(spec)
        except Exception as error:
            logger.exception("agent %r could not be woken", cell.id)
            waiting, cell.inbox = list(cell.inbox), type(cell.inbox)()
            for message in waiting:
                message.future.set_exception((type(error), error, error.__traceback__))
            return
        finally:
            cell.activating = False
        if cell.inbox:
            self._wake_here(cell)

    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run it on the loop; the future brings what it returns."""
        future: Future[T] = Future()

        async def go() -> None:
            try:
                future.set(await function())
            except Exception as error:
                future.set_exception((type(error), error, error.__traceback__))

        loop = self._running_loop()
        loop.call_soon_threadsafe(lambda: self._keep(asyncio.ensure_future(go())))
        return future

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._activations.add(task)
        task.add_done_callback(self._activations.discard)

    def _on(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop)


def _told(ref: LoopActorRef[Any]) -> bool:
    try:
        ref.tell(WAKE)
    except pykka.ActorDeadError:
        return False
    return True


def _settled(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set(value)
    return future

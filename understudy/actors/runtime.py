"""`Runtime`: the home of agents. One event loop, a tree of supervisors, and the agents by id."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from understudy._base.clock import Clock, NewId, SystemClock, new_random_id
from understudy._base.worker_threads import WorkerThreads
from understudy.actors.agent_directory import checked_id
from understudy.actors.agent_events import Status
from understudy.actors.agent_host import AgentHost, AgentInfo, PendingRequest
from understudy.actors.agent_ref import AgentRef
from understudy.actors.agent_slot import running_agents
from understudy.actors.export import export, import_
from understudy.actors.recovery import recover
from understudy.agent.agent import Agent
from understudy.errors import ForkedRuntime, UsageError, WouldDeadlock
from understudy.journal import Store
from understudy.journal.opening import Durability, open_store
from understudy.loop_actors.future import Future, refuse, refuse_on_a_loop
from understudy.loop_actors.loop_thread import LoopThread
from understudy.loop_actors.supervisor import SupervisorTree

__all__ = ["Runtime", "RuntimeStatus"]

T = TypeVar("T")

IDLE_TIMEOUT = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """How the runtime is."""

    agents: int
    """In memory: awake, or spawned with deps, or not in the store yet."""
    running: int
    abandoned_threads: int
    """Plain tools that nobody waits for any more and that still run."""


class Runtime:
    """Spawns agents, supervises them, and finds them by id.

    `with Runtime(...)` starts an event loop in a thread of its own; `async with Runtime(...)` lives
    on the loop that runs there, so that async tools may use its connections.

    Args:
        agents: definitions that can be spawned by name.
        store: where agents are kept: `"memory:"` while the process lives, `"sqlite:///path"` for
            one runtime, `"postgresql://..."` for many; or a `Store` of your own.
        durability: what a recorded fact survives. `"full"`: a power loss. `"normal"` and `"off"`:
            the end of the process, but not of the machine.
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
        store: str | Store = "memory:",
        durability: Durability = "full",
        deps_for: Callable[[str], Any] | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT,
        max_threads: int = 64,
        stop_timeout: float | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
    ) -> None:
        if idle_timeout is not None and (
            not isinstance(idle_timeout, (int, float)) or idle_timeout <= 0
        ):
            raise UsageError(f"idle_timeout is seconds above 0, or None; not {idle_timeout!r}")
        self._agent_host = AgentHost(
            agents,
            store=open_store(store, durability=durability),
            clock=clock or SystemClock(),
            new_id=new_id or new_random_id,
            threads=WorkerThreads(max_threads),
            idle_timeout=idle_timeout,
            deps_for=deps_for,
        )
        self._stop_timeout = stop_timeout
        self._thread: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

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
        if self._process != os.getpid():
            return  # the loop's thread is the parent's
        if loop is not None:
            refuse_on_a_loop("stop", "call it from a thread")
            seconds = self._stop_timeout if timeout is None else timeout
            self._on(loop, self._close(seconds)).result()
        thread.stop()
        self._thread = None

    def _refuse_twice(self) -> None:
        if self._loop is not None or self._agent_host.alive.is_set():
            raise UsageError("a Runtime is entered once: make another one")

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        await self._agent_host.open(loop)
        self._loop = loop

    async def _close(self, timeout: float | None) -> None:
        try:
            await self._agent_host.close(timeout)
        finally:
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
            UsageError: for an unknown name, a bad id, or an id that another definition has. Where
                only the store knows that, the first future of the ref brings it.

        """
        self._running_loop()
        return self._agent_host.directory.spawn(agent, id, deps=deps, values=values)

    def get(self, id: str) -> AgentRef:
        """The ref of the agent of this id, in memory or in the store. No waiting, no I/O.

        If there is none, the first future of the ref brings an `UnknownAgent`.

        Raises:
            UsageError: for what is no id.

        """
        self._running_loop()
        return self._agent_host.directory.get(id)

    def agents(self) -> Future[list[AgentInfo]]:
        """All agents, in memory and in the store, by id."""
        return self._call(self._agent_host.agents)

    def pending(self) -> Future[list[PendingRequest]]:
        """What persons are asked now, across all agents, awake or not (I10)."""
        return self._call(self._agent_host.pending)

    def recover(self, *, at_once: int = 32) -> Future[list[AgentRef]]:
        """Go on with every run that was cut off, and start what is queued (J10).

        Agents that wait for a person are left alone: see `pending()`. Those that were cut off
        before without having got further come last, one by one.

        Args:
            at_once: how many are driven at a time until they get further.

        Returns:
            Their refs, as soon as it is known which they are; `await ref.outcome()` waits.

        """
        if not isinstance(at_once, int) or isinstance(at_once, bool) or at_once < 1:
            raise UsageError(f"recover(at_once=) is a number from 1 on, not {at_once!r}")
        return self._call(lambda: recover(self._agent_host, at_once))

    def delete(self, id: str) -> Future[bool]:
        """Delete an agent and all that it recorded; a run that goes on is cancelled first.

        Its id may be used again; nothing of the old agent reaches the new one (J7). The future
        brings whether there was such an agent.
        """
        checked_id(id)
        return self._call(lambda: self._agent_host.activator.delete(id))

    def compact(self, id: str) -> Future[None]:
        """As `ref.compact()`."""
        return self.get(id).compact()

    def export(self, id: str) -> Future[dict[str, Any]]:
        """All that an agent recorded, as JSON-able data for `import_`. It is not changed."""
        checked_id(id)
        return self._call(lambda: export(self._agent_host.services.store, id))

    def import_(self, data: Mapping[str, Any], id: str | None = None) -> Future[AgentRef]:
        """Put an exported agent into this store, in a new incarnation.

        Whatever stood open in it may have gone on elsewhere: every call that was started and is
        not finished is in doubt, and what a person was asked is asked anew (J5, J7).

        Args:
            data: what `export` gave.
            id: another id than it had.

        Raises:
            UsageError: if there is an agent of this id, or the data is no export.

        """
        if id is not None:
            checked_id(id)

        async def imported() -> AgentRef:
            services = self._agent_host.services
            return self.get(await import_(services.store, data, id, services.clock))

        return self._call(imported)

    def tree(self) -> SupervisorTree:
        """The supervisors and actors as they are now, with the sub-agents of each; `print` it."""
        self._running_loop()
        return self._agent_host.tree()

    def status(self) -> RuntimeStatus:
        """How the runtime is, now."""
        slots = self._agent_host.directory.slots()
        return RuntimeStatus(
            agents=len(slots),
            running=sum(slot.status is Status.RUNNING for slot in slots),
            abandoned_threads=self._agent_host.threads.abandoned,
        )

    # -------------------------------------------------------------------- inside

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._process != os.getpid():
            raise ForkedRuntime
        if self._agent_host.alive.is_set():
            raise UsageError("this runtime has stopped: make another one")
        if self._loop is None:
            raise UsageError("this runtime does not run: use it in `with` or `async with`")
        return self._loop

    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run it on the loop; the future brings what it returns."""
        future: Future[T] = Future()

        async def go() -> None:
            try:
                if self._agent_host.alive.is_set():
                    raise gone
                value = await function()
            except Exception as error:
                refuse(future, error)
            else:
                future.set(value)

        gone = UsageError("the runtime stopped before it answered")
        loop = self._running_loop()

        def begin() -> None:
            self._agent_host.activator.keep(go()).add_done_callback(lambda _: refuse(future, gone))

        loop.call_soon_threadsafe(begin)
        return future

    def _on(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop)

"""`SharedReads`: reads agents from the store for all who ask, without a read for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from understudy.actors.agent.run_outcomes import compacted, earlier_outcomes, ended_outcome
from understudy.actors.agent.services import StartTask
from understudy.agent.agent import Agent
from understudy.journal import Loaded, StoreReads
from understudy.outcomes import Outcome
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import Snapshot

T = TypeVar("T")
KEPT = 128
"""Runs of an agent whose ends are remembered while a caller looks at it. They are more than the
posted calls of one agent that its owner has in hand, so a caller that hears of the beginning of a
run finds its end."""


class SharedReads:
    """Callers who ask while something is read share one read, which begins when that has ended.

    So what a hundred waiters cost is about two reads, and each is told what was so after it asked.
    While a caller looks at an agent its fold goes on where the last read has ended: so many runs,
    each with a waiter, cost no fold of all of them each. Lives on the runtime's loop.

    Args:
        store: what is read.
        start_task: starts a task that ends with the runtime at the latest.

    """

    def __init__(self, store: StoreReads, start_task: StartTask) -> None:
        self._store = store
        self._start_task = start_task
        self._agents: dict[str, _AgentReads] = {}
        """The agents that callers look at, by id."""

    @contextmanager
    def looking(self, agent_id: str) -> Iterator[None]:
        """A caller looks at the agent, again and again: keep what is read of it meanwhile."""
        self.keep(agent_id)
        try:
            yield
        finally:
            self.let_go(agent_id)

    def keep(self, agent_id: str) -> None:
        """Keep what is read of the agent from now on, until `let_go` is called as often."""
        reads = self._agents.get(agent_id)
        if reads is None:
            reads = self._agents[agent_id] = _AgentReads(self._store, self._start_task, agent_id)
        reads.callers += 1

    def let_go(self, agent_id: str) -> None:
        """Undo one `keep`."""
        reads = self._agents[agent_id]
        reads.callers -= 1
        if not reads.callers:
            del self._agents[agent_id]

    async def latest(self, agent_id: str) -> tuple[Loaded, AgentState] | None:
        """The agent, and the state that its records fold to; None if there is none.

        Only while `looking`. The state is that of all who ask: it must not be changed.
        """
        return await self._agents[agent_id].latest.read()

    async def earlier_outcome(
        self, agent_id: str, agent: Agent, run_id: str, incarnation: int
    ) -> Outcome:
        """The outcome of a run that later runs came after. Only while `looking`.

        Raises:
            UnknownAgent, UsageError: as `run_outcomes.earlier_outcome`.

        """
        return await self._agents[agent_id].earlier_outcome(agent, run_id, incarnation)


class _AgentReads:
    """The reads of one agent, and what they have brought so far."""

    def __init__(self, store: StoreReads, start_task: StartTask, agent_id: str) -> None:
        self.callers: int = 0
        self.latest: _Line[tuple[Loaded, AgentState] | None] = _Line(start_task, self._read_latest)
        self._store = store
        self._start_task = start_task
        self._agent_id = agent_id
        self._found: tuple[Loaded, AgentState] | None = None
        self._ended: dict[str, AgentState] = {}
        """The states right after the ends of runs, by the ids of the runs."""
        self._earlier: dict[int, _Line[dict[str, Outcome]]] = {}
        """The reads of all records of the agent, by its incarnation."""

    async def _read_latest(self, _: set[str]) -> tuple[Loaded, AgentState] | None:
        if self.callers:  # else those who have asked are gone
            self._found = await self._newer()
        return self._found

    async def _newer(self) -> tuple[Loaded, AgentState] | None:
        if self._found is not None:
            before, state = self._found
            loaded = await self._store.load(self._agent_id, before.agent.last_seq)
            if loaded is None:
                return None
            is_same = loaded.agent.incarnation == before.agent.incarnation
            if is_same and not (loaded.records and isinstance(loaded.records[0], Snapshot)):
                return loaded, self._folded(loaded, state)
            if not is_same:
                self._ended.clear()
        whole = await self._store.load_latest(self._agent_id)
        if whole is None:
            return None
        checkpoint = whole.checkpoint
        state = checkpoint.state if checkpoint is not None else AgentState()
        return whole, self._folded(whole, state)

    def _folded(self, loaded: Loaded, before: AgentState) -> AgentState:
        """The state after these records. Remembers the runs that end in them."""
        if not loaded.records:
            return before
        state = before.copied()
        with loaded.as_damage():
            for record in loaded.records:
                apply(state, record)
                run = state.run
                if run is not None and run.over and run.run_id not in self._ended:
                    self._ended[run.run_id] = state.copied()
                    if len(self._ended) > KEPT:
                        del self._ended[next(iter(self._ended))]
        return state

    async def earlier_outcome(self, agent: Agent, run_id: str, incarnation: int) -> Outcome:
        found = self._found
        is_same = found is not None and found[0].agent.incarnation == incarnation
        if is_same and run_id in self._ended:
            return ended_outcome(agent, self._ended[run_id])
        read = partial(
            earlier_outcomes, self._store, self._agent_id, agent, incarnation=incarnation
        )
        line = self._earlier.setdefault(incarnation, _Line(self._start_task, read))
        outcomes = await line.read(run_id)
        if run_id not in outcomes:
            raise compacted(run_id)
        return outcomes[run_id]


class _Line(Generic[T]):
    """One read at a time, for all who have asked before it begins.

    Args:
        start_task: as of `SharedReads`.
        read: gets the ids of the runs that are asked for.

    """

    def __init__(
        self, start_task: StartTask, read: Callable[[set[str]], Coroutine[Any, Any, T]]
    ) -> None:
        self._start_task = start_task
        self._read = read
        self._now: asyncio.Task[Any] | None = None
        self._next: asyncio.Task[Any] | None = None
        self._wanted: set[str] = set()

    async def read(self, run_id: str = "") -> T:
        """The result of a read that begins after this call."""
        self._wanted.add(run_id)
        if self._next is None:
            self._next = self._start_task(self._read_behind(self._now), "reading an agent")
        found, error = await asyncio.shield(self._next)
        if error is not None:
            raise error
        return found  # type: ignore[no-any-return]

    async def _read_behind(self, before: asyncio.Task[Any] | None) -> tuple[Any, Exception | None]:
        if before is not None:
            await asyncio.wait([before])
        self._now, self._next = self._next, None
        wanted, self._wanted = self._wanted, set()
        try:
            return await self._read(wanted), None
        except Exception as error:  # raised to all who wait
            return None, error

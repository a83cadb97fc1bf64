"""`SharedReads`: reads agents from the store for all who ask, without a read for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
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
"""Runs whose ends are remembered while a caller looks at their agent: more than an owner has in
hand of what is posted to one agent, so who is told that a run has begun finds its end."""


class SharedReads:
    """Those who ask while something is read share one read, which begins when that has ended.

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
        self._followed: dict[str, _Followed] = {}
        """By agent."""
        self._latest: dict[str, _Line[tuple[Loaded, AgentState] | None]] = {}
        """By agent."""
        self._earlier: dict[tuple[str, int], _Line[dict[str, Outcome]]] = {}
        """By agent and incarnation."""

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
        self._followed.setdefault(agent_id, _Followed()).count += 1

    def let_go(self, agent_id: str) -> None:
        """See `keep`."""
        followed = self._followed[agent_id]
        followed.count -= 1
        if not followed.count:
            del self._followed[agent_id]

    async def latest(self, agent_id: str) -> tuple[Loaded, AgentState] | None:
        """The agent, and the state that its records fold to; None if there is none.

        Only while `looking`. The state is that of all who ask: it must not be changed.
        """

        async def read(_: set[str]) -> tuple[Loaded, AgentState] | None:
            followed = self._followed.get(agent_id)
            if followed is None:
                return None  # those who have asked are gone
            followed.found = await self._newer(agent_id, followed)
            return followed.found

        return await self._in_line(self._latest, agent_id, read)

    async def _newer(self, agent_id: str, followed: _Followed) -> tuple[Loaded, AgentState] | None:
        if followed.found is not None:
            before, state = followed.found
            loaded = await self._store.load(agent_id, before.agent.last_seq)
            if loaded is None:
                return None
            is_same = loaded.agent.incarnation == before.agent.incarnation
            if is_same and not (loaded.records and isinstance(loaded.records[0], Snapshot)):
                return loaded, followed.folded(loaded, state)
            if not is_same:
                followed.ended.clear()
        whole = await self._store.load_latest(agent_id)
        if whole is None:
            return None
        checkpoint = whole.checkpoint
        state = checkpoint.state if checkpoint is not None else AgentState()
        return whole, followed.folded(whole, state)

    async def earlier_outcome(
        self, agent_id: str, agent: Agent, run_id: str, incarnation: int
    ) -> Outcome:
        """As of `run_outcomes`."""
        followed = self._followed.get(agent_id)
        if (
            followed is not None
            and followed.found is not None
            and followed.found[0].agent.incarnation == incarnation
            and run_id in followed.ended
        ):
            return ended_outcome(agent, followed.ended[run_id])

        async def read(run_ids: set[str]) -> dict[str, Outcome]:
            return await earlier_outcomes(self._store, agent_id, agent, run_ids, incarnation)

        found = await self._in_line(self._earlier, (agent_id, incarnation), read, run_id)
        if run_id not in found:
            raise compacted(run_id)
        return found[run_id]

    async def _in_line(
        self,
        lines: dict[Any, _Line[T]],
        key: object,
        read: Callable[[set[str]], Coroutine[Any, Any, T]],
        run_id: str = "",
    ) -> T:
        line = lines.get(key)
        if line is None:
            line = lines[key] = _Line(self._start_task, read)
        try:
            return await line.read(run_id)
        finally:
            if not line.is_used and lines.get(key) is line:
                del lines[key]


class _Followed:
    """What was read so far of an agent that a caller looks at."""

    def __init__(self) -> None:
        self.count = 0
        self.found: tuple[Loaded, AgentState] | None = None
        self.ended: dict[str, AgentState] = {}
        """The states right after the ends of runs, by their ids."""

    def folded(self, loaded: Loaded, before: AgentState) -> AgentState:
        """The state after these records; remembers the ends of runs among them."""
        if not loaded.records:
            return before
        state = before.copied()
        with loaded.as_damage():
            for record in loaded.records:
                apply(state, record)
                run = state.run
                if run is not None and run.over and run.run_id not in self.ended:
                    self.ended[run.run_id] = state.copied()
                    if len(self.ended) > KEPT:
                        del self.ended[next(iter(self.ended))]
        return state


class _Line(Generic[T]):
    """One read at a time."""

    def __init__(
        self, start_task: StartTask, read: Callable[[set[str]], Coroutine[Any, Any, T]]
    ) -> None:
        self._start_task = start_task
        self._read = read
        self._now: asyncio.Task[Any] | None = None
        self._next: asyncio.Task[Any] | None = None
        self._wanted: set[str] = set()
        self._waiting = 0

    @property
    def is_used(self) -> bool:
        return self._waiting > 0

    async def read(self, run_id: str) -> T:
        """What a read that begins from now on brings."""
        self._wanted.add(run_id)
        if self._next is None:
            self._next = self._start_task(self._read_behind(self._now), "reading an agent")
        self._waiting += 1
        try:
            found, error = await asyncio.shield(self._next)
        finally:
            self._waiting -= 1
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

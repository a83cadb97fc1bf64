"""`SharedReads`: reads agents from the store for all who ask, without a read for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from understudy.actors.activation import folded
from understudy.actors.run_outcomes import compacted, earlier_outcomes
from understudy.actors.services import StartTask
from understudy.agent.agent import Agent
from understudy.journal import Loaded, Readable, load_latest
from understudy.outcomes import Outcome
from understudy.state.agent_state import AgentState

T = TypeVar("T")


class SharedReads:
    """Those who ask while something is read share one read, which begins when that has ended.

    So what a hundred waiters cost is about two reads, and each is told what was so after it asked.
    Lives on the runtime's loop.

    Args:
        store: what is read.
        start_task: starts a task that ends with the runtime at the latest.

    """

    def __init__(self, store: Readable, start_task: StartTask) -> None:
        self._store = store
        self._start_task = start_task
        self._latest: dict[str, _Line[tuple[Loaded, AgentState] | None]] = {}
        """By agent."""
        self._earlier: dict[tuple[str, int], _Line[dict[str, Outcome]]] = {}
        """By agent and incarnation."""

    async def latest(self, agent_id: str) -> tuple[Loaded, AgentState] | None:
        """As of `load_latest`, with the state that it folds to; None if there is no such agent.

        The state is the caller's own.
        """

        async def read(_: set[str]) -> tuple[Loaded, AgentState] | None:
            loaded = await load_latest(self._store, agent_id)
            return None if loaded is None else (loaded, folded(loaded))

        found = await self._in_line(self._latest, agent_id, read)
        return None if found is None else (found[0], found[1].copied())

    async def earlier_outcome(
        self, agent_id: str, agent: Agent, run_id: str, incarnation: int
    ) -> Outcome:
        """As of `run_outcomes`."""

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

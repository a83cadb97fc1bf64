"""`SharedReads`: reads an agent from the store for all who ask, without a read for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator

from understudy._base.pieces import each, in_pieces
from understudy.errors import UnknownAgent, UsageError
from understudy.journal import Loaded, StoredAgent, StoreReads
from understudy.journal.loaded import size_of
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import Record

KEPT = 128
"""Runs of an agent whose ends are remembered while a caller looks at it. They are more than the
posted calls of one agent that its owner has in hand, so a caller that hears of the beginning of a
run finds its end."""


class SharedReads:
    """Callers who ask while an agent is read share one read, which begins when that has ended.

    So what a hundred waiters cost is about two reads, and each is told what was so after it asked.
    The fold goes on where the last read has ended: so many runs, each with a waiter, cost no fold
    of all of them each. It is kept while a caller looks at the agent. Lives on the runtime's loop.

    Args:
        store: what is read.
        agent_id: of the agent.

    """

    def __init__(self, store: StoreReads, agent_id: str) -> None:
        self.callers: int = 0
        self._store = store
        self._agent_id = agent_id
        self._reading = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        """The number of the last caller whose question a read has answered."""
        self._found: tuple[StoredAgent, AgentState] | None = None
        self._error: Exception | None = None
        self._wanted: set[str | int] = set()
        """The ends of runs, and the records, that may have come before the first read: all records
        are read for them."""
        self._kept: dict[str | int, AgentState] = {}
        """The states right after the ends of runs, by the ids of the runs, and after records, by
        their numbers."""

    async def latest(self) -> tuple[StoredAgent, AgentState] | None:
        """The agent, and the state that its records fold to; None if there is no agent.

        The state is that of all who ask: it must not be changed.
        """
        self._asked += 1
        number = self._asked
        async with self._reading:
            if self._answered < number:
                await asyncio.sleep(0)  # one change wakes all who wait: they share this read
                asked, self._error = self._asked, None
                try:
                    self._found = await self._newer()
                except Exception as error:  # raised to all who have asked
                    self._error = error
                self._answered = asked
            if self._error is not None:
                raise self._error
            return self._found

    async def after(self, what: str | int, incarnation: int) -> AgentState:
        """The state right after the end of a run that later runs came after, or after a record.

        Ask for the `latest` one first. A record that is not in the store yet is the status of what
        is there.

        Args:
            what: the id of the run, or the number of the record.
            incarnation: of the agent that had the run.

        Raises:
            UnknownAgent: if that agent is deleted, whether or not there is another one of its id.
            UsageError: if these records are compacted away.

        """
        found = self._found
        is_newest = isinstance(what, int) and found is not None and found[0].last_seq <= what
        if not is_newest and what not in self._kept:
            self._wanted.add(what)
            found = await self.latest()
        if found is None or found[0].incarnation != incarnation:
            raise UnknownAgent(agent_id=self._agent_id)
        if is_newest:
            return found[1]
        if what not in self._kept:
            raise UsageError(
                f"The run {what!r} of this message is over, and its records are compacted away: "
                "its reply is in the history of ref.state()"
            )
        return self._kept[what]

    async def _newer(self) -> tuple[StoredAgent, AgentState] | None:
        wanted = frozenset(self._wanted)
        row, state = (None, AgentState()) if wanted or self._found is None else self._found
        loaded = None if row is None else await self._store.load(self._agent_id, row.last_seq)
        if loaded is None or row is None or loaded.agent.incarnation != row.incarnation:
            load = self._store.load if wanted else self._store.load_latest
            loaded = await load(self._agent_id)
            if loaded is None:
                return None
            state = AgentState() if loaded.checkpoint is None else loaded.checkpoint.state
        if self._found is not None and self._found[0].incarnation != loaded.agent.incarnation:
            self._kept.clear()
        self._wanted -= wanted
        if loaded.records:
            state = state.copied()
        await in_pieces(self._folding(loaded, state, wanted))
        return loaded.agent, state

    def _folding(
        self, loaded: Loaded, state: AgentState, wanted: Collection[str | int]
    ) -> Generator[None, None, None]:
        """The work of folding what was read, for `in_pieces`: callers wait for it meanwhile."""

        def fold(numbered: tuple[int, Record]) -> None:
            seq, record = numbered
            apply(state, record)
            run = state.run
            if seq in wanted:
                self._kept[seq] = state.copied()
            if run is None or not run.over or run.run_id in self._kept:
                return
            if not wanted or run.run_id in wanted:
                self._kept[run.run_id] = state.copied()
                if not wanted and len(self._kept) > KEPT:
                    del self._kept[next(iter(self._kept))]

        with loaded.as_damage():
            numbered = enumerate(loaded.records, loaded.first_seq)
            yield from each(numbered, fold, size=lambda item: size_of(item[1]))

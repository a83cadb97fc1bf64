"""`Watch`: tells when other hosts have changed agents of a store that hosts share.

One query, every now and then, is for all agents that are watched. A message between hosts may get
lost, a poll does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from understudy._base.lookout import Lookout
from understudy.actors.agent.services import StartTask
from understudy.journal import StoredAgent, StoreReads

POLL = 0.25
"""Seconds between two looks at the store."""

OnRow: TypeAlias = Callable[[StoredAgent | None], None]
"""A function that gets an agent's row in the index at each look; None if there is no such agent."""


class Watch:
    """Looks at the rows of agents. Lives on the runtime's loop.

    Args:
        store: where they are kept.
        start_task: starts a task that ends with the runtime at the latest.

    """

    def __init__(self, store: StoreReads, start_task: StartTask) -> None:
        self._store = store
        self._watched: set[tuple[str, OnRow]] = set()
        self._lookout = Lookout("what other hosts do", self._period, self._look, start_task)
        self.hints: int = 0
        """The number of hints that other hosts have given."""

    def add(self, agent_id: str, on_row: OnRow) -> None:
        """Call a function with the agent's row at each look from now on, until `remove`."""
        self._watched.add((agent_id, on_row))
        self._lookout.begin()

    def remove(self, agent_id: str, on_row: OnRow) -> None:
        """Stop calling the function for the agent's row."""
        self._watched.discard((agent_id, on_row))

    def look_now(self) -> None:
        """Look at once, instead of at the next look."""
        self.hints += 1
        self._lookout.hint()

    async def changed(self, agent: StoredAgent, hints: int) -> None:
        """Return once the agent's row is no longer this row.

        Args:
            agent: as it was read.
            hints: `hints`, from before it was read.

        """
        changed = asyncio.get_running_loop().create_future()

        def on_row(row: StoredAgent | None) -> None:
            if _progress(row) != _progress(agent) and not changed.done():
                changed.set_result(None)

        self.add(agent.agent_id, on_row)
        if hints != self.hints:
            # Race: this against a hint that came while the row was read: it was not watched then
            # (test_a_hint_that_comes_while_the_store_is_read_is_not_lost).
            self._lookout.hint()
        try:
            await changed
        finally:
            self.remove(agent.agent_id, on_row)

    def _period(self) -> float | None:
        return POLL if self._watched else None

    async def _look(self, is_hinted: bool) -> None:
        watched = list(self._watched)
        if watched:
            found = await self._store.find_agents({agent_id for agent_id, _ in watched})
            rows = {row.agent_id: row for row in found}
            for agent_id, on_row in watched:
                on_row(rows.get(agent_id))


def _progress(agent: StoredAgent | None) -> tuple[object, ...]:
    """The parts of a row that change with each record, owner and incarnation."""
    if agent is None:
        return ()
    return agent.incarnation, agent.epoch, agent.last_seq, agent.host

"""`RecordedEvents`: the recorded events of an agent, stored ones first, then those to come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from understudy.actors.agent.events import (
    AgentEvent,
    RecordView,
    StoredEvents,
    agent_events_of,
    position_of,
)
from understudy.actors.agent.stored_agents import events_in
from understudy.actors.reads.listing import Call
from understudy.errors import UnknownAgent
from understudy.journal import StoreReads
from understudy.journal.parts import PART
from understudy.loop_actors.future import Future
from understudy.loop_actors.stream import Stream

POLL = 0.5
"""Seconds between two looks into the store."""


class RecordedEvents(Stream[AgentEvent]):
    """The recorded events of one agent, which runs in another process.

    The store is read again and again, each time behind the last record of the read before: nothing
    is left out, and nothing comes twice. Once it is closed, it ends behind what is there then.

    Args:
        call: calls a coroutine function on the loop that reads.
        store: is read.
        agent_id: of the agent.
        after: the number or the position of the last event that the reader has.
        view: what is brought of a record.

    """

    def __init__(
        self,
        call: Call,
        store: StoreReads,
        agent_id: str,
        after: int | str,
        view: RecordView = agent_events_of,
    ) -> None:
        self._call = call
        self._store = store
        self._agent_id = agent_id
        self._begin = position_of(after)
        self._view = view
        self._incarnation: int | None = None
        self._is_behind = True
        self._is_closed = False

    @property
    def is_reading(self) -> bool:
        """Whether the reads have not yet brought everything that is stored."""
        return self._is_behind

    def close(self) -> None:
        """End the iteration. What is recorded until now can still be read."""
        self._is_closed = True

    def _steps(self) -> Iterator[AgentEvent | Future[StoredEvents]]:
        after = self._begin.seq
        is_last = False
        while not is_last:
            was_closed = self._is_closed
            reading: Future[StoredEvents] = self._call(partial(self._read, after))
            yield reading
            found = reading.get()
            is_last = was_closed and not found.more
            after = max(after, found.last)
            yield from (event for event in found.events if not self._begin.has(event))

    async def _read(self, after: int) -> StoredEvents:
        """The recorded events after a number, read from the store.

        Raises:
            UnknownAgent: if there is no such agent, or it is deleted.

        """
        if not self._is_behind:
            await asyncio.sleep(POLL)
        loaded = await self._store.load_part(self._agent_id, after, PART)
        if loaded is None or self._incarnation not in (None, loaded.agent.incarnation):
            raise UnknownAgent(agent_id=self._agent_id)
        self._incarnation = loaded.agent.incarnation
        found = await events_in(loaded, after, self._view)
        self._is_behind = found.more
        return found

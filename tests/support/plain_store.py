"""A store of an application, which has what a store must have, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection

from understudy.journal import (
    IndexEntry,
    IndexStatus,
    JournalledAgent,
    Loaded,
    LostAttempt,
    MemoryStore,
    Owned,
    OwnedJournal,
    Store,
    StoredAgent,
)
from understudy.models.messages import Messages
from understudy.state.records import Record

__all__ = ["PlainStore"]


class PlainStore(Store):
    """Keeps all in a `MemoryStore`, of which it has the abstract methods alone."""

    def __init__(self) -> None:
        self._kept = MemoryStore()

    async def open(self, on_lost: Callable[[], None]) -> None:
        await self._kept.open(on_lost)

    async def close(self) -> None:
        await self._kept.close()

    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        return await self._kept.claim(agent_id, agent)

    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        return await self._kept.release(owned, lost)

    def journal(self, owned: Owned, agent: JournalledAgent) -> OwnedJournal:
        return self._kept.journal(owned, agent)

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        return await self._kept.load(agent_id, after)

    def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        return self._kept.agents(index_statuses)

    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Messages | None = None
    ) -> Owned:
        return await self._kept.compact(owned, snapshot, entry, messages)

    async def delete(self, agent_id: str, by: str | None = None) -> bool:
        return await self._kept.delete(agent_id, by)

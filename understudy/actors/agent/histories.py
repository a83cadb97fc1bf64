"""`Histories`: the histories of agents in pages, from the store alone."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from understudy._base.pieces import ITEMS, turn
from understudy.actors.agent.stored_agents import unknown_agent
from understudy.history import HistoryEntry, HistoryPage, HistoryReader, history_of
from understudy.journal import StoreReads

_KEPT = 32
"""The most pages of histories behind which a reader is kept."""
_MORE = 20
"""The number of records that a read has beyond the entries of a page: some records have none."""
_AT_ONCE = 2 * ITEMS
"""The most records that are read of a history at once."""


class _Mark(NamedTuple):
    """The place where a page of a history has ended, and what the next page needs to know."""

    incarnation: int
    seq: int
    """The number of the last record that was read."""
    reader: HistoryReader
    """The reader, with what the records up to `seq` tell of the records that follow."""


class Histories:
    """Reads the histories of a store's agents, and activates none of them.

    A page tells of runs and calls that began long before it, so all records before it count. A
    reader is kept behind each of the newest pages: the page that follows reads its own records.
    """

    def __init__(self, store: StoreReads) -> None:
        self._store = store
        self._marks: OrderedDict[tuple[str, int], _Mark] = OrderedDict()

    async def page(self, id: str, after: int, limit: int, before: int | None = None) -> HistoryPage:
        """A page of an agent's history: the entries after a number, or of the records before one.

        Raises:
            UnknownAgent: if there is no agent of this id.

        """
        if before is not None:
            return await self._page_before(id, before, limit)
        mark = self._marks.get((id, after))
        while True:
            page = await self._page_after(id, after, limit, mark)
            if page is not None:
                return page
            mark = None

    async def _page_after(
        self, id: str, after: int, limit: int, mark: _Mark | None
    ) -> HistoryPage | None:
        """The page after a number; None if its records were deleted or compacted since the mark."""
        incarnation, seq, reader = (None, 0, HistoryReader()) if mark is None else mark
        reader = reader.copy()
        entries: list[HistoryEntry] = []
        while True:
            wanted = max(after - seq, 0) + max(limit - len(entries), 0)
            count = min(wanted + _MORE, _AT_ONCE)
            loaded = await self._store.load_part(id, seq, count)
            if loaded is None:
                raise await unknown_agent(self._store, id)
            if incarnation not in (None, loaded.agent.incarnation) or loaded.agent.floor > seq > 0:
                return None
            incarnation = loaded.agent.incarnation
            for number, record in enumerate(loaded.records, loaded.first_seq):
                # Behind the last entry of the page, each record may be the first of the next one.
                ended = reader.copy() if len(entries) >= limit else None
                found = list(reader.read(number, record, (loaded.agent.agent,)))
                if ended is not None and found:
                    self._keep(id, entries[-1].seq, _Mark(incarnation, seq, ended))
                    return HistoryPage(entries=tuple(entries), next=entries[-1].seq)
                entries += found if number > after else []
                seq = number
            if seq >= loaded.agent.last_seq or not loaded.records:
                newest = entries[-1].seq if entries else after
                self._keep(id, newest, _Mark(incarnation, seq, reader))
                return HistoryPage(entries=tuple(entries), next=None)
            await turn()  # a store in memory reads without one

    def _keep(self, id: str, after: int, mark: _Mark) -> None:
        self._marks[id, after] = mark
        self._marks.move_to_end((id, after))
        if len(self._marks) > _KEPT:
            self._marks.popitem(last=False)

    async def _page_before(self, id: str, before: int, limit: int) -> HistoryPage:
        """The entries of the last `limit` records below a number, of however many there are."""
        stored = await self._store.find_agent(id)
        if stored is None:
            raise await unknown_agent(self._store, id)
        end = min(before, stored.last_seq + 1)
        first = max(end - limit, 1)
        # As many records before these tell when what ends here began, and in which run.
        start = max(first - limit, 1)
        loaded = await self._store.load_part(id, start - 1, max(end - start, 0))
        if loaded is None:
            raise await unknown_agent(self._store, id)
        entries = history_of(loaded.records, loaded.agent.agent, first_seq=loaded.first_seq)
        page = tuple(entry for entry in entries if first <= entry.seq < end)
        return HistoryPage(entries=page, next=first if first > loaded.agent.floor + 1 else None)

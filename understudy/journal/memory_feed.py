"""`MemoryFeed`: the feed of a store in memory."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from itertools import count, islice
from uuid import uuid4

from understudy.journal.feed import FeedKey, FeedPage, StoredFeedRow, told_record
from understudy.state.records import Record


class MemoryFeed:
    """Keeps the rows in a queue. Not thread-safe."""

    def __init__(self) -> None:
        self._id = uuid4().hex
        self._rows: deque[StoredFeedRow] = deque()
        self._numbers = count(1)
        self._floor = self._newest = 0

    def add(self, agent_id: str, agent: str, seq: int, record: Record) -> None:
        """Add a record, if the feed tells of it."""
        told = told_record(record)
        if told is not None:
            self._add(agent_id, agent, seq, record.at, told)

    def add_deletion(self, agent_id: str, agent: str, at: datetime) -> None:
        """Add that the agent was deleted."""
        self._add(agent_id, agent, None, at, None)

    def _add(
        self, agent_id: str, agent: str, seq: int | None, at: datetime | None, kept: Record | None
    ) -> None:
        self._newest = next(self._numbers)
        self._rows.append(
            StoredFeedRow(
                key=(0, self._newest), agent_id=agent_id, agent=agent, seq=seq, at=at, kept=kept
            )
        )

    def trim(self, before: datetime, keep: int) -> None:
        """Remove old rows; see `Backend.trim_feed`."""
        expired = [row.key[1] for row in self._rows if row.at is not None and row.at < before]
        last = max([self._newest - keep, *expired[-1:]])
        while self._rows and self._rows[0].key[1] <= last:
            self._floor = self._rows.popleft().key[1]

    def read(self, after: FeedKey | None, limit: int) -> FeedPage:
        """Rows of the feed behind a key; see `Backend.read_feed`."""
        rows = [] if after is None else (row for row in self._rows if row.key > after)
        end = (0, self._newest) if after is None else after
        last = next((row for row in reversed(self._rows) if row.key <= end), None)
        return FeedPage(
            feed=self._id,
            floor=(0, self._floor),
            end=end,
            mark=last.mark if last is not None and last.key == end else "",
            rows=list(islice(rows, limit)),
        )

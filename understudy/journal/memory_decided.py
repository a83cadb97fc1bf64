"""`MemoryDecided`: what was decided on requests, in a store in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import count, islice

from understudy.interrupts import DecisionRecord
from understudy.journal.contracts import Owned, time_number
from understudy.journal.decided import (
    DecidedKey,
    DecidedQuery,
    DecidedRequest,
    StoredDecided,
    decided_request,
    persons_of,
)

MOST_DECIDED = 10_000
"""The decisions that a store in memory keeps: the last ones. A database keeps all."""


class MemoryDecided:
    """The decisions, as plain objects. Not thread-safe."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._keys: list[DecidedKey] = []
        """The keys of the decisions, oldest first."""
        self._by_no: dict[int, tuple[DecidedRequest, tuple[str, ...]]] = {}

    def add(self, owned: Owned, record: DecisionRecord) -> None:
        """Add a decision on a request of an agent."""
        no = next(self._numbers)
        self._by_no[no] = decided_request(owned, no, record), persons_of(record)
        insort(self._keys, (time_number(record.at), no))
        if len(self._keys) > MOST_DECIDED:
            del self._by_no[self._keys.pop(0)[1]]

    def leave(self, agent_id: str) -> None:
        """The agent is deleted: forget what was shown and written."""
        for no, (decided, persons) in self._by_no.items():
            if decided.agent_id == agent_id:
                self._by_no[no] = decided.without_content(), persons

    def list(
        self, query: DecidedQuery, after: DecidedKey | None, limit: int
    ) -> list[StoredDecided]:
        """Up to `limit` decisions behind a key, the newest first; see `Backend.list_decided`."""
        return list(islice(self._found(query, after), limit))

    def count(self, query: DecidedQuery) -> int:
        """The number of decisions that `list` would list; see `Backend.count_decided`."""
        return sum(1 for _ in self._found(query, None))

    def _found(self, query: DecidedQuery, after: DecidedKey | None) -> Iterator[StoredDecided]:
        start = len(self._keys) if after is None else bisect_left(self._keys, after)
        for place in range(start - 1, -1, -1):
            key = self._keys[place]
            decided, persons = self._by_no[key[1]]
            if (
                (query.person is None or query.person in persons)
                and query.tool in (None, decided.tool_name)
                and query.agent in (None, decided.agent)
                and query.agent_id in (None, decided.agent_id)
                and query.type in (None, decided.type)
                and query.origin in (None, decided.origin)
                and (query.since is None or query.since <= decided.at)
                and (query.until is None or decided.at < query.until)
            ):
                yield StoredDecided(key, decided)

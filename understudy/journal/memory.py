"""A journal in memory: for tests, and to look at what a run recorded."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.records import Record

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Keeps records in a list. `replay(journal.records)` gives the state they add up to."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, records: Sequence[Record]) -> None:
        self.records.extend(records)

    @property
    def behind(self) -> bool:
        return False

    async def durable(self) -> None:
        return

"""The history of an agent as the pages read it: its newest records first, and never all at once."""

from __future__ import annotations

from collections.abc import AsyncIterator

from understudy.history import HistoryEntry, HistoryPage
from understudy.web.visit import Visit

NEWEST = 1 << 53
"""Above the number of each record."""
STEP = 500
"""Records of one read, where entries are looked for."""


def asked_before(visit: Visit) -> int:
    """The number below which the records are that a page shows."""
    return visit.number("before", NEWEST, least=1)


def is_newest(visit: Visit) -> bool:
    """Whether a page shows the newest records: not those before a number."""
    return visit.asked("before") is None


async def page_before(visit: Visit, before: int, limit: int | None = None) -> HistoryPage:
    """The entries of so many records below a number; by default of those of a step."""
    return await visit.wait(visit.watched.history(before=before, limit=limit or STEP))


async def entries_back(visit: Visit) -> AsyncIterator[HistoryEntry]:
    """The entries, newest first."""
    before: int | None = NEWEST
    while before is not None:
        page = await page_before(visit, before)
        for entry in reversed(page.entries):
            yield entry
        before = page.next

"""The history of an agent as the pages read it: newest records first, and never all at once."""

from __future__ import annotations

from collections.abc import AsyncIterator

from understudy.history import HistoryEntry, HistoryPage
from understudy.web.visit import Visit

NEWEST = 1 << 53
"""A number above the number of any record."""
STEP = 500
"""The number of records of one read in a search for entries."""


def asked_before(visit: Visit) -> int:
    """The number below which the records of a page are."""
    return visit.number("before", NEWEST, least=1)


def is_newest(visit: Visit) -> bool:
    """Whether a page shows the newest records, and not the records before a number."""
    return visit.asked("before") is None


async def page_before(visit: Visit, before: int, limit: int | None = None) -> HistoryPage:
    """The entries of a number of records below a number; by default of one step."""
    return await visit.wait(visit.watched.history(before=before, limit=limit or STEP))


async def entries_back(visit: Visit) -> AsyncIterator[HistoryEntry]:
    """The entries, newest first."""
    before: int | None = NEWEST
    while before is not None:
        page = await page_before(visit, before)
        for entry in reversed(page.entries):
            yield entry
        before = page.next

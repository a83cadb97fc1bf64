"""The conversation of an agent, as rows for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from understudy._base.lookout import Hints
from understudy.display import Row
from understudy.display.rows import merged
from understudy.display.table import request_id
from understudy.web.visit import Visit

PAGE = 200
"""The maximum rows of a page. The newest page is shown first."""


async def conversation(visit: Visit) -> dict[str, Any]:
    """The rows of the conversation, oldest first, the newest page of them; or what has changed."""
    after = visit.number("after", 0)
    if visit.asked("after") is not None:
        update = await visit.wait(visit.watched.display(after=after, limit=visit.limit(PAGE)))
        return {"id": visit.agent_id, **update.to_dict()}
    if visit.rows is not None:
        return page_of(visit, visit.rows)
    update = await visit.wait(visit.watched.display())
    return {**page_of(visit, update.rows), "seq": update.seq, "reset": True, "more": False}


async def follow(visit: Visit, hints: Hints) -> None:
    """Keep the rows of a live page up to date, with text that is being written, and give hints."""
    subscription = visit.watched.display_events()
    try:
        async for update in subscription:
            visit.rows = merged(visit.rows or (), update)
            hints.give()
    finally:
        subscription.close()


def page_of(visit: Visit, rows: Sequence[Row]) -> dict[str, Any]:
    """A page of rows, counted from the newest; or the page with the requested row."""
    page, found = visit.number("page", 0), None
    looks_for = any(visit.asked(name) for name in ("call", "request", "run", "at"))
    if looks_for:
        place = place_of(visit, rows)
        if place is not None:
            page, found = (len(rows) - 1 - place) // PAGE, rows[place].id
    stop = max(len(rows) - page * PAGE, 0)
    shown = rows[max(stop - PAGE, 0) : stop]
    return {
        "id": visit.agent_id,
        "rows": [row.to_dict() for row in shown],
        "earlier": page + 1 if stop > PAGE else None,
        "later": page - 1 if page else None,
        "page": page,
        "found": found,
        "is_missing": looks_for and found is None,
    }


def place_of(visit: Visit, rows: Sequence[Row]) -> int | None:
    """The index of the row that the address asks for; None if there is no such row.

    The address has the key of a call, the id of a request, the id of a run (for its first row), or
    the number of a record (for the first row of it or after it).
    """
    call, request = visit.asked("call"), visit.asked("request")
    run, at = visit.asked("run"), visit.number("at", 0)
    for place, row in enumerate(rows):
        if call is not None:
            is_it = row.detail.get("call_key") == call
        elif request is not None:
            is_it = row.id == request_id(request)
        elif run is not None:
            is_it = row.run_id == run
        else:
            is_it = row.position[0] >= at
        if is_it:
            return place
    return None


async def last_rows(visit: Visit, count: int = 6) -> list[dict[str, Any]]:
    """The last rows with a message."""
    update = await visit.wait(visit.watched.display())
    said = [row for row in update.rows if row.kind in ("user", "text") and row.text.strip()]
    return [row.to_dict() for row in said[-count:]]

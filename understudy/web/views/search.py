"""A search in requests and conversations, as the user may see them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import urlencode

from starlette.datastructures import URL
from starlette.responses import RedirectResponse, Response

from understudy.actors import Page, SearchHit
from understudy.display import Row
from understudy.errors import UsageError
from understudy.journal.search_words import SearchQuery, query_of
from understudy.web.marks import hexed
from understudy.web.views.conversation import PAGE
from understudy.web.visit import SECONDS, Visit

LOOKED_THROUGH = 200
"""The number of hits that are read at once if values are hidden from the user."""


async def search(visit: Visit) -> dict[str, Any]:
    """Requests and parts of conversations that have all words of a text, newest first, in pages."""
    text, where = visit.asked("text") or "", visit.asked("where")
    query = query_of(text, where)
    hits, after, behind = await _found(visit, query, text, where)
    return {
        "hits": [hit.to_dict() for hit in hits],
        "next": after,
        "behind": behind,
        "filters": {"text": text, "where": where},
    }


async def search_page(visit: Visit) -> dict[str, Any]:
    """The hits for a page, which has its form even if the store has no search."""
    filters = {"text": visit.asked("text") or "", "where": visit.asked("where")}
    empty: dict[str, Any] = {"hits": [], "next": None, "behind": 0, "filters": filters}
    if not filters["text"]:
        return {**empty, "problem": None}
    try:
        found = await search(visit)
    except UsageError as error:
        return {**empty, "problem": str(error)}
    return {**found, "problem": None}


def found_link(visit: Visit, hit: dict[str, Any]) -> str:
    """The URL of the row of a hit of a conversation."""
    query = {"seq": hit["seq"], "row": hit["row"]}
    if hit["tool_call_id"]:
        query["call"] = hit["tool_call_id"]
    return visit.agent_link(hit["agent_id"], f"/found?{urlencode(query)}")


def pieces(hit: dict[str, Any]) -> list[tuple[Any, bool]]:
    """The parts of a snippet, each with whether it matches the search."""
    text, marks = hit["snippet"], hit["marks"]
    if not isinstance(text, str) or not isinstance(marks, list):  # the application hides it
        return [(text, False)]
    found: list[tuple[Any, bool]] = []
    last = 0
    for start, end in marks:
        found += [(text[last:start], False), (text[start:end], True)]
        last = end
    return [*found, (text[last:], False)]


async def _found(
    visit: Visit, query: SearchQuery, text: str, where: str | None
) -> tuple[Sequence[SearchHit], str | None, int]:
    """A page of hits, the `after` of the next page, and the number of agents not indexed yet."""
    after, limit = visit.asked("after"), visit.limit(30)
    looked = partial(visit.source.search, text, where=cast("Any", where))
    if not visit.site.redaction.is_on:
        page = await visit.wait(looked(after=after, limit=limit))
        return page, page.after, _behind(page)
    # No answer reveals whether something hidden has the words: not by a hit, not by a shorter page,
    # and not by a place in the list (test_a_search_finds_nothing_that_is_hidden).
    seen: list[SearchHit] = []
    async with asyncio.timeout(SECONDS):
        while True:
            page = await looked(after=after, limit=LOOKED_THROUGH)
            seen += await asyncio.to_thread(_seen, visit, query, page)
            after = page.after
            if after is None or len(seen) > limit:
                break
    return seen[:limit], seen[limit - 1].cursor if len(seen) > limit else None, _behind(page)


def _behind(page: Page[SearchHit]) -> int:
    return getattr(page, "behind", 0)


def _seen(visit: Visit, query: SearchQuery, hits: Sequence[SearchHit]) -> list[SearchHit]:
    shown = (hit.seen_as(query, seen_content(visit, hit.where, hit.content)) for hit in hits)
    return [hit for hit in shown if hit is not None]


def seen_content(visit: Visit, where: str, content: Any) -> Any:
    """The content of a hit without the parts that any page hides from the user.

    Args:
        visit: the visit of the user.
        where: `"request"` or `"conversation"`.
        content: a request, or a row of a conversation, as plain data.

    """
    if where == "request":  # as in the inbox and on its own page
        return visit.redacted(visit.redacted(content, "requests", 0), "request")
    return visit.redacted(content, "rows", 0)


# ---------------------------------------------------------------------- from a hit to its row


async def to_row(visit: Visit) -> Response:
    """Lead to the row of the conversation for a hit, on its present page."""
    rows = (await visit.wait(visit.watched.display())).rows
    row = _row_of(rows, visit.number("seq", 0), visit.number("row", 0), visit.asked("call"))
    target = URL(visit.agent_link(visit.agent_id))
    if row is None:  # the row was compacted, or the agent replaced, meanwhile
        return RedirectResponse(str(target), 303)
    behind = len(rows) - 1 - [each.id for each in rows].index(row.id)
    if behind >= PAGE:
        target = target.include_query_params(page=behind // PAGE)
    return RedirectResponse(f"{target}#row-{hexed(row.id)}", 303)


def _row_of(rows: Sequence[Row], seq: int, number: int, call: str | None) -> Row | None:
    """The row for a text of a record: found by the id of a call, else by its number."""
    if call is not None:  # a provider may use an id again in a later run
        calls = [row for row in rows if row.detail.get("tool_call_id") == call]
        before = [row for row in calls if row.position[0] <= seq]
        return (before or calls)[-1] if calls else None
    said = [row for row in rows if row.position[0] == seq and row.kind in ("user", "text", "call")]
    return said[min(number, len(said) - 1)] if said else None

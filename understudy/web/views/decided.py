"""The decisions on the requests of all agents, with filters, newest first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

from starlette.responses import Response, StreamingResponse

from understudy._base.points_in_time import read_time
from understudy._base.request_summary import summary
from understudy.actors.reads.listing import Listing
from understudy.journal.decided import DecidedRequest
from understudy.web.visit import Visit

PAGE = 200
"""The number of decisions in each read of an answer with all decisions."""


async def decided(visit: Visit) -> dict[str, Any]:
    """The decisions on the requests of all agents, in pages, newest first."""
    page = await visit.wait(_listing(visit, visit.asked("after"), visit.limit(50)))
    return {
        "decisions": [_row(visit, each, at) for at, each in enumerate(page)],
        "next": page.after,
        "filters": {
            name: visit.asked(name)
            for name in ("person", "tool", "agent", "agent_id", "type", "origin", "from", "to")
        },
    }


async def decided_lines(visit: Visit) -> Response:
    """All decisions that fit the filters, as JSON lines, newest first."""
    page = await visit.wait(_listing(visit, visit.asked("after"), PAGE))  # a refusal comes here

    async def lines() -> AsyncIterator[str]:
        found = page
        while True:
            for at, each in enumerate(found):
                row = visit.redacted(_row(visit, each, at), "decisions", at)
                yield f"{json.dumps(row, ensure_ascii=False, separators=(',', ':'))}\n"
            if found.after is None:
                return
            found = await visit.wait(_listing(visit, found.after, PAGE))

    headers = {"Content-Disposition": 'attachment; filename="decisions.jsonl"'}
    return StreamingResponse(lines(), media_type="application/jsonl", headers=headers)


def _listing(visit: Visit, after: str | None, limit: int) -> Listing[DecidedRequest]:
    first, last = visit.asked("from"), visit.asked("to")
    return visit.source.decided(
        person=visit.asked("person"),
        tool=visit.asked("tool"),
        agent=visit.asked("agent"),
        agent_id=visit.asked("agent_id"),
        type=cast("Any", visit.asked("type")),
        origin=cast("Any", visit.asked("origin")),
        since=None if first is None else read_time(first, what="`from`"),
        until=None if last is None else read_time(last, what="`to`", is_end=True),
        after=after,
        limit=limit,
    )


def _row(visit: Visit, decided: DecidedRequest, at: int) -> dict[str, Any]:
    """A decision as plain data. Values are hidden before they become the text of its summary."""
    row = decided.to_dict()
    if row["request"] is None:
        return {**row, "summary": ""}
    return {**row, "summary": summary(visit.redacted(row["request"], "decisions", at, "request"))}

"""Everything that needs a person, over all agents, each with its next action."""

from __future__ import annotations

import time
from typing import Any

from understudy._base.request_summary import details, headline, summary, summary_of_doubt
from understudy.actors.reads.attention import Attention
from understudy.errors import StoreError
from understudy.web.visit import Visit

AGES = 5.0
"""Seconds for which the count in the bar of the pages is reused."""


ASKED = (
    "agent_id",
    "agent",
    "agent_path",
    "id",
    "kind",
    "tool_name",
    "source",
    "created_at",
    "expires_at",
    "reminders",
    "escalated_to",
)
"""The facts about an overdue request."""


async def attention(visit: Visit) -> dict[str, Any]:
    """Everything that needs a person: the number of each kind, and the first of each."""
    found = await visit.wait(visit.source.attention())
    _note(visit, found)
    data = found.to_dict()
    for at, row in enumerate(data["doubts"]["rows"]):
        seen = visit.redacted(row, "doubts", "rows", at)
        row["summary"] = summary_of_doubt(seen["arguments"], seen["reason"])
    overdue = data["overdue"]
    overdue["rows"] = [
        {name: row[name] for name in ASKED} | {"title": headline(seen), "summary": details(seen)}
        for at, row in enumerate(overdue["rows"])
        for seen in [visit.redacted(row, "overdue", "rows", at)]
    ]
    for at, row in enumerate(data["expired"]["rows"]):
        row["summary"] = ""
        if row["request"] is not None:
            seen = visit.redacted(row["request"], "expired", "rows", at, "request")
            row["summary"] = summary(seen)
    return data


async def count_attention(visit: Visit) -> int | None:
    """The number of things that need a person, for the bar of the pages; None if the store does not
    say.

    The same count is reused for some seconds, because each page of each person has it.
    """
    seen = visit.site.attention
    if seen is None or time.monotonic() - seen[0] > AGES:
        try:
            _note(visit, await visit.wait(visit.source.attention(limit=0)))
        except (StoreError, TimeoutError):  # the page itself will report the problem
            visit.site.attention = None
            return None
        seen = visit.site.attention
    return None if seen is None else seen[1]


def _note(visit: Visit, found: Attention) -> None:
    visit.site.attention = time.monotonic(), found.count


async def recover(visit: Visit) -> None:
    """Continue every run that was cut off."""
    await visit.wait(visit.runtime.recover(by=visit.user.by))

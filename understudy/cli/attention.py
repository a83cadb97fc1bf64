"""The command that lists what needs a person: `attention`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column
from understudy.cli.text import ago

KINDS = {
    "frozen": ("frozen", "see `understudy thaw`"),
    "quarantined": ("quarantined", "see `understudy retry`"),
    "doubts": ("in doubt", "see `understudy doubts`"),
    "overdue": ("overdue", "see `understudy pending --order expiring`"),
    "failed": ("failed", "see `understudy retry`"),
    "expired": ("expired", "see `understudy decisions --origin expiry`"),
    "hosts": ("host gone", "see `understudy recover`"),
    "notices": ("not told", "see `understudy notify list --state failed`"),
}
"""The kinds in words, each with what can be done next."""


def attention(*, where: Where, out: ListOutput) -> None:
    """List everything that needs a person: quarantined, in doubt, overdue, failed, expired,
    frozen.
    """
    with where.looking() as source:
        found = source.attention()
    if out.is_json:
        out.document(found)
        return
    rows = list(rows_of(found))
    columns = [
        Column("WHAT", "what", "bold"),
        Column("ABOUT", "about"),
        Column("TOOL", "tool", optional=True),
        Column("AGE", "age"),
        Column("NEXT", "next", wide=True),
    ]
    out.rows("attention", rows, columns, empty="nothing needs a person")
    if out.is_data:
        return
    for name, (what, _) in KINDS.items():
        left = found[name]["count"] - len(found[name]["rows"])
        if left > 0:
            out.say(f"and {left} more {what}", "yellow")


def rows_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of all kinds, each with what can be done next."""
    now = datetime.fromisoformat(found["at"])
    return [
        {
            "what": what,
            "about": about_of(row),
            "tool": row.get("tool_name"),
            "age": ago(_time(row), now),
            "next": way_on,
        }
        for name, (what, way_on) in KINDS.items()
        for row in found[name]["rows"]
    ]


def about_of(row: dict[str, Any]) -> str:
    """The agent, or the host, that a row is about."""
    if "why" in row:  # a freeze of the whole store
        return "the whole store"
    return str(row.get("agent_id") or row.get("id") or row.get("name"))


def _time(row: dict[str, Any]) -> str | None:
    """The time since which the row's state holds."""
    for name in ("status_at", "since", "created_at", "at"):
        if row.get(name):
            return str(row[name])
    return None

"""Which requests a list has by what is written beside them, in SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from understudy.journal.contracts import time_number
from understudy.journal.notes import NotesQuery
from understudy.state.request_notes import SNOOZE_BREAKS

# The row of a request on which persons have voted has the number of the votes behind its id.
OF_REQUEST = "(k.id = {0}.request OR substr(k.id, 1, length({0}.request) + 1) = {0}.request || '/')"
"""Whether the ask `k` is of the request of a note."""
_LIVE = "n.agent = k.agent AND n.incarnation = a.incarnation AND n.ended_at IS NULL"
NOTED = f"EXISTS (SELECT 1 FROM request_notes n WHERE {_LIVE})"  # noqa: S608 - of a constant
"""Whether there are notes beside open requests of the agent `a` of an ask `k`."""
_STANDS = f"""
    {_LIVE} AND {OF_REQUEST.format("n")} AND n.until > %s AND NOT EXISTS (
        SELECT 1 FROM request_notes m WHERE m.agent = n.agent AND m.ended_at IS NULL
        AND m.incarnation = n.incarnation AND m.request = n.request AND m.slot = n.slot
        AND m.no > n.no)"""  # noqa: S608 - of constants
_OWNED = f"SELECT 1 FROM request_notes n WHERE n.slot IN ('take', 'assign') AND {_STANDS}"  # noqa: S608
_SNOOZED = f"SELECT 1 FROM request_notes n WHERE n.kind = 'snooze' AND {_STANDS}"  # noqa: S608


def notes_where(query: NotesQuery | None) -> Iterator[tuple[str, list[Any]]]:
    """The conditions of a list of the asks `k` of agents `a`, each with its values."""
    if query is None or query.is_any:
        return
    assert query.now is not None, "who lists says when"
    now = time_number(query.now)
    is_viewer = f"n.person IN ({', '.join(['%s'] * len(query.viewer))})"
    if query.mine:
        yield f"EXISTS ({_OWNED} AND {is_viewer})", [now, *query.viewer]
    if query.unassigned:
        yield f"NOT EXISTS ({_OWNED} AND n.person <> '')", [now]
    if query.hides_snoozed:
        soon = time_number(query.now + SNOOZE_BREAKS)
        hidden = f"EXISTS ({_SNOOZED} AND {is_viewer})"
        yield f"(k.expires_at <= %s OR NOT {hidden})", [soon, now, *query.viewer]

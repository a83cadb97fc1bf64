"""`Queue`: the requests of the inbox that fit its filters, in an order, as links keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from understudy._base.json_values import shown
from understudy._base.request_summary import headline
from understudy.actors import PendingCounts, PendingPlace, PendingRequest
from understudy.interrupts import Request
from understudy.login.problems import refused
from understudy.web.views import together
from understudy.web.visit import Visit

MAX_LOOKED_THROUGH = 5_000
"""The most requests that a search looks through where values are hidden from the user."""
WITHIN: Mapping[int, str] = {1800: "30 minutes", 3600: "the hour", 4 * 3600: "4 hours"}
"""Seconds within which requests expire that the inbox counts, in words."""
FILTERS = ("kind", "tool", "agent", "within", "search", "order", "of")
"""Parameters of a query that say which requests are listed."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Which requests are listed, and in which order."""

    kind: str | None = None
    tool: str | None = None
    agent: str | None = None
    within: int | None = None
    search: str | None = None
    order: str = "oldest"
    of: str | None = None
    """Whose: see `together.OF`."""

    @property
    def query(self) -> dict[str, str]:
        """Its parameters in the query of a link."""
        return {
            name: str(value)
            for name, value in asdict(self).items()
            if value is not None and (name, value) != ("order", "oldest")
        }

    @property
    def is_whole(self) -> bool:
        """Whether it has all requests that wait."""
        return not any(name != "order" for name in self.query)

    @property
    def filters(self) -> dict[str, Any]:
        """Its parts by their names."""
        return asdict(self)

    @property
    def groups(self) -> dict[str, Any]:
        """As `PendingCounts.total` takes them."""
        return {name: getattr(self, name) for name in ("kind", "tool", "agent", "within")}


def queue_of(visit: Visit) -> Queue:
    """The queue that the query of a visit names.

    Raises:
        Refused: for a time or an order that is not offered.

    """
    within, order = visit.asked("within"), visit.asked("order") or "oldest"
    if within is not None and (not within.isascii() or not within.isdecimal() or len(within) > 9):
        raise refused(400, "UsageError", f"`within` must be seconds, got {shown(within)}")
    if order not in ("oldest", "expiring"):
        raise refused(400, "UsageError", f"`order` must be oldest or expiring, got {shown(order)}")
    return Queue(
        visit.asked("kind"),
        visit.asked("tool"),
        visit.asked("agent"),
        None if within is None else int(within),
        (visit.asked("search") or "").strip() or None,
        order,
        visit.asked("of"),
    )


def _asked(visit: Visit, queue: Queue) -> dict[str, Any]:
    """The queue as the arguments of `pending`, for the user."""
    given = {name: value for name, value in queue.filters.items() if name != "of"}
    return {**given, **together.filters(visit)}


async def page_of(
    visit: Visit, queue: Queue, limit: int
) -> tuple[list[PendingRequest], str | None]:
    """A page of the requests of a queue, and the `after` of the next page.

    Where values are hidden from the user, a search by the store would tell them: what is found by a
    hidden value is not seen. So the user's own view of each request is searched.
    """
    found: list[PendingRequest] = []
    after, looked = visit.asked("after"), 0
    is_own = visit.site.redaction.is_on and queue.search is not None
    filters = _asked(visit, queue) | ({"search": None} if is_own else {})
    while True:
        page = await visit.wait(
            visit.source.pending(**filters, after=after, limit=limit - len(found))
        )
        looked += len(page)
        found += [each for each in page if not is_own or _is_seen(visit, each, queue.search or "")]
        after = page.after
        if after is None or len(found) >= limit or looked >= MAX_LOOKED_THROUGH:
            return found, after


def _is_seen(visit: Visit, pending: PendingRequest, search: str) -> bool:
    row = visit.redacted(pending.to_dict(), "requests", 0)
    names = (headline(row), row["tool_name"], row["agent"], row["agent_id"], row["source"])
    text = " ".join(str(each) for each in names).casefold()
    return all(word in text or word == row["id"] for word in search.casefold().split())


async def counts_of(visit: Visit, queue: Queue) -> dict[str, Any]:
    """How many requests fit each value of each filter, beside the other filters.

    A search where values are hidden from the user is not counted: see `page_of`.
    """
    is_own = visit.site.redaction.is_on and queue.search is not None
    search = None if is_own else queue.search
    counts: PendingCounts = await visit.wait(
        visit.source.count_pending(within=queue.within, search=search, **together.filters(visit))
    )
    groups = queue.groups
    return {
        "total": None if is_own else counts.total(**groups),
        "all": counts.total(),
        "kinds": counts.by("kind", **_without(groups, "kind")),
        "tools": counts.by("tool", **_without(groups, "tool")),
        "agents": counts.by("agent", **_without(groups, "agent")),
        "within": {
            str(seconds): counts.total(**{**groups, "within": seconds}) for seconds in WITHIN
        },
    }


def _without(groups: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in groups.items() if key != name}


async def place_in(
    visit: Visit, queue: Queue, request: Request, *, is_pending: bool = True
) -> dict[str, Any] | None:
    """Where a request stands in a queue; None where that would tell what is hidden."""
    if visit.site.redaction.is_on and queue.search is not None:
        return None
    place: PendingPlace = await visit.wait(
        visit.source.pending_place(visit.agent_id, request, **_asked(visit, queue))
    )
    counts = await visit.wait(
        visit.source.count_pending(
            within=queue.within, search=queue.search, **together.filters(visit)
        )
    )
    return {
        "before": place.before,
        "is_in": is_pending,
        "total": counts.total(**queue.groups),
        "previous": place.previous,
        "next": place.next,
    }

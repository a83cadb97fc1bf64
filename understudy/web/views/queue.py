"""`Queue`: the requests of the inbox that fit filters, in an order. Links carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from understudy._base.json_values import shown
from understudy._base.request_summary import headline
from understudy.actors import PendingCounts, PendingPlace, PendingRequest
from understudy.interrupts import Request
from understudy.journal.asks import folded
from understudy.journal.lists import AskQuery
from understudy.login.problems import refused
from understudy.web.views import together
from understudy.web.visit import Visit

MAX_LOOKED_THROUGH = 5_000
"""The maximum number of requests that a search reads if values are hidden from the user."""
WITHIN: Mapping[int, str] = {1800: "30 minutes", 3600: "the hour", 4 * 3600: "4 hours"}
"""The spans of expiry that the inbox counts, in words, by seconds."""


def query_of(filters: Mapping[str, Any]) -> dict[str, str]:
    """The parameters in the query of a link that list requests by these filters."""
    return {
        name: str(value)
        for name, value in filters.items()
        if value not in (None, "") and (name, value) != ("order", "oldest")
    }


@dataclass(frozen=True, slots=True)
class Queue:
    """The filters and the order of a list of requests."""

    kind: str | None = None
    tool: str | None = None
    agent: str | None = None
    within: int | None = None
    search: str | None = None
    order: str = "oldest"
    of: str | None = None
    """The owners of the listed requests: see `together.OF`."""

    @property
    def query(self) -> dict[str, str]:
        """The queue as parameters in the query of a link."""
        return query_of(self.filters)

    @property
    def is_whole(self) -> bool:
        """Whether it has all waiting requests."""
        return not any(name != "order" for name in self.query)

    @property
    def filters(self) -> dict[str, Any]:
        """The filters by name."""
        return asdict(self)

    @property
    def groups(self) -> dict[str, Any]:
        """The filters in the form of `PendingCounts.total`."""
        return {name: getattr(self, name) for name in ("kind", "tool", "agent", "within")}


def queue_of(visit: Visit) -> Queue:
    """The queue that the query of a visit names.

    Raises:
        Refused: for an unknown time or order.

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


def _hides(visit: Visit, queue: Queue) -> bool:
    """Whether the hits of a search in the store would reveal hidden values to the user."""
    return visit.site.redaction.is_on and queue.search is not None


async def _counts(visit: Visit, queue: Queue, search: str | None) -> PendingCounts:
    return await visit.wait(
        visit.source.count_pending(within=queue.within, search=search, **together.filters(visit))
    )


def _asked(visit: Visit, queue: Queue) -> dict[str, Any]:
    """The queue as the arguments of `pending`, for the user."""
    given = {name: value for name, value in queue.filters.items() if name != "of"}
    return {**given, **together.filters(visit)}


async def page_of(
    visit: Visit, queue: Queue, limit: int
) -> tuple[list[PendingRequest], str | None]:
    """A page of the requests of a queue, and the `after` of the next page.

    If values are hidden from the user, a search by the store would reveal them by its hits. So the
    user's own view of each request is searched.
    """
    found: list[PendingRequest] = []
    after, looked = visit.asked("after"), 0
    is_own = _hides(visit, queue)
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
    words = folded(f"{headline(row)} {row['tool_name']} {row['source']}")
    query = AskQuery(words=tuple(folded(search).split()))
    return query.has_words(words, row["id"], str(row["agent_id"]), str(row["agent"]))


async def counts_of(visit: Visit, queue: Queue) -> dict[str, Any]:
    """The number of requests for each value of each filter, with the other filters applied.

    A search is not counted if values are hidden from the user: see `page_of`.
    """
    is_own = _hides(visit, queue)
    counts = await _counts(visit, queue, None if is_own else queue.search)
    groups = queue.groups
    return {
        "total": None if is_own else counts.total(**groups),
        "all": counts.total(),
        "kinds": counts.by("kind", **groups),
        "tools": counts.by("tool", **groups),
        "agents": counts.by("agent", **groups),
        "within": {
            str(seconds): counts.total(**{**groups, "within": seconds}) for seconds in WITHIN
        },
    }


async def around(visit: Visit, queue: Queue, request: Request) -> PendingPlace | None:
    """The requests around a request in a queue; None if they would reveal hidden values."""
    if _hides(visit, queue):
        return None
    return await visit.wait(
        visit.source.pending_place(visit.agent_id, request, **_asked(visit, queue))
    )


async def place_in(
    visit: Visit, queue: Queue, request: Request, *, is_pending: bool
) -> dict[str, Any] | None:
    """The place of a request in a queue, for its page; None as for `around`."""
    place = await around(visit, queue, request)
    if place is None:
        return None
    counts = await _counts(visit, queue, queue.search)
    return {
        "before": place.before,
        "is_in": is_pending,
        "total": counts.total(**queue.groups),
        "previous": place.previous,
        "next": place.next,
    }

"""`Feed`: the events of all agents of a store, as one stream without a gap."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

from understudy._base.json_values import checked_seconds, shown, text_of
from understudy._base.log_fields import log_extra
from understudy._base.lookout import Hints
from understudy._base.points_in_time import time_text
from understudy.actors.agent.events import (
    EventsDropped,
    Gap,
    LoopBlocked,
    SelfRunsBounded,
    StatusChanged,
    agent_events_of,
    event_to_dict,
)
from understudy.actors.reads.listing import Call, Cursors
from understudy.errors import SchemaVersionError, StoreDamaged, UsageError
from understudy.events import Event
from understudy.interrupts import DecisionOrigin, DecisionType
from understudy.journal.feed import FeedKey, FeedPage, StoredFeedRow
from understudy.loop_actors.future import Future
from understudy.loop_actors.stream import Stream
from understudy.state import records as r

logger: logging.Logger = logging.getLogger(__name__)

PAGE = 500
POLL = 0.25
"""Seconds between two looks at a store to which other processes write. A reader hears at once of
rows that this process writes, and a moment later of rows that other hosts announce (see
`LiveEvents`)."""
SOON = 0.01
"""Seconds until the next look while rows are held up. The pause doubles from look to look, up to
the pause of any other look."""
LONGEST_WAIT = 5.0
"""Seconds between two looks at a store to which no other process writes."""

Start = Literal["now", "oldest"]

_CURSOR = (str, int, int, int, str)
"""The types of the values in a cursor, which are those of a `_Place`."""


class _Place(NamedTuple):
    """A place in the feed: behind a row, and behind some events of the next row."""

    feed: str
    xid: int
    no: int
    part: int = 0
    mark: str = ""
    """The mark of the row of the last event that was emitted. It is empty at the floor."""

    @property
    def key(self) -> FeedKey:
        """The key of the feed row at this place."""
        return self.xid, self.no

    def is_in(self, page: FeedPage) -> bool:
        """Whether this place is in the feed that the page behind it was read from.

        It is not if rows behind it were removed. It is not if the row before it is another row: a
        server that lacks its last commits (a standby that took over, a restored copy) gives their
        numbers to other rows
        (test_a_cursor_from_behind_a_restored_copy_of_a_server_gets_a_gap).
        """
        if page.feed != self.feed or self.key < page.floor:
            return False
        if self.part:
            return bool(page.rows) and page.rows[0].mark == self.mark
        return self.key == page.floor or (page.mark == self.mark and page.mark != "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDecided:
    """A decision on a request is recorded."""

    agent_path: tuple[str, ...]
    """The names of the agents from the outermost to the agent that asked."""
    request_id: str
    """The id of the request."""
    decision: DecisionType
    """The type of the decision."""
    by: str | None
    """The name of the person who decided; None if nobody was named."""
    origin: DecisionOrigin = "person"
    """The source of the decision; `expiry` if nobody decided in time."""
    by_grant: str | None = None
    """The id of the grant that made the decision; None without a grant."""
    kind: Literal["request_decided"] = "request_decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsWithdrawn:
    """A new message withdrew requests. Nobody needs to answer them any more."""

    agent_path: tuple[str, ...]
    """The names of the agents from the outermost to the agent that asked."""
    request_ids: tuple[str, ...]
    """The ids of the requests."""
    kind: Literal["requests_withdrawn"] = "requests_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeleted:
    """An agent and all its records were deleted."""

    kind: Literal["agent_deleted"] = "agent_deleted"


FedEvent = (
    Event
    | StatusChanged
    | SelfRunsBounded
    | RequestDecided
    | RequestsWithdrawn
    | AgentDeleted
    | Gap
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent:
    """One event of one agent, in the feed of all agents."""

    cursor: str
    """The cursor of this event: `runtime.events(after=event.cursor)` goes on behind it."""
    agent_id: str
    """The id of the agent. It is empty for a `Gap`."""
    agent: str
    """The name of the agent's definition."""
    seq: int | None
    """The number of the event's record. None for a deletion and for a `Gap`."""
    event: FedEvent
    """The event itself."""
    at: datetime | None
    """The time at which the event was recorded."""

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON. A value that JSON lacks becomes text."""
        return {
            "agent_id": self.agent_id,
            "agent": self.agent,
            "seq": self.seq,
            "at": time_text(self.at),
            "event": event_to_dict(self.event),
            "cursor": self.cursor,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How long a store keeps its feed.

    Args:
        seconds: events older than this are removed.
        events: of more than this many, the oldest are removed.

    Raises:
        UsageError: if one of them is not above 0.

    """

    seconds: float = 7 * 86_400.0
    events: int = 100_000

    def __post_init__(self) -> None:
        checked_seconds(self.seconds, what="FeedOptions(seconds=...)")
        events = self.events
        if not isinstance(events, int) or isinstance(events, bool) or not 1 <= events < 1 << 62:
            raise UsageError(f"FeedOptions(events=...) must be at least 1, got {shown(events)}")

    def before(self, now: datetime) -> datetime:
        """Return the time before which events are removed."""
        try:
            return now - timedelta(seconds=self.seconds)
        except OverflowError:
            return datetime.min.replace(tzinfo=now.tzinfo)


def checked_feed(feed: object) -> FeedOptions | bool | None:
    """The `feed` argument of `Runtime`, checked.

    Raises:
        UsageError: if the argument has another type.

    """
    if feed is None or isinstance(feed, (bool, FeedOptions)):
        return feed
    raise UsageError(f"`feed` must be True, False, None or FeedOptions(...), got {shown(feed)}")


ReadFeed = Callable[[FeedKey | None, int], Coroutine[Any, Any, FeedPage | None]]
"""A function that reads a page of the feed behind a key, with at most so many rows; None: the feed
is off."""
_Read = tuple[list[FeedEvent], _Place, _Place | None]
"""Some events, the place behind them, and the place where a loop until now ends."""


class Feed(Stream[FeedEvent]):
    """The events of all agents, to iterate with `async for`, or with `for` in a thread.

    The iteration ends when the runtime stops. A second loop over the same feed continues after the
    last event of the first loop.

    Args:
        call: calls a coroutine function on the loop that reads.
        read: reads a page of the feed.
        after: the cursor of the last event that the reader has.
        start: where the feed begins without a cursor.
        has_ended: returns whether the runtime has stopped.
        hints: signals new rows that this process has written; None = no signals.
        is_alone: whether no other process writes to the store.

    """

    def __init__(
        self,
        call: Call,
        read: ReadFeed,
        *,
        after: str | None,
        start: Start,
        has_ended: Callable[[], bool],
        hints: Hints | None = None,
        is_alone: bool = False,
    ) -> None:
        if start not in ("now", "oldest"):
            raise UsageError(f"`start` must be 'now' or 'oldest', got {shown(start)}")
        self._cursors = Cursors("events", None, *_CURSOR)
        self._place = self._place_of(after)
        self._call = call
        self._read_rows = read
        self._has_ended = has_ended
        self._hints = Hints() if hints is None else hints
        self._is_alone = is_alone
        self._start = start
        # Asked at once: what happens from now on is told.
        self._begun: Future[_Place] = call(self._begin)
        self._follows = True
        self._pause = SOON
        self._last: str | None = None
        """The cursor of the last event that a loop over this feed has brought."""

    async def _begin(self) -> _Place:
        """The place in the feed where the reader begins."""
        bounds = await self._bounds()
        if self._place is not None:
            return self._place
        if self._start == "oldest":
            return _Place(bounds.feed, *bounds.floor)
        return _Place(bounds.feed, *bounds.end, mark=bounds.mark)

    async def _bounds(self) -> FeedPage:
        """The bounds of the feed as the store has it, as a page without rows.

        Raises:
            UsageError: if the feed is off.
            StoreDamaged: if the feed ends before it begins.

        """
        page = await self._read_rows(None, 0)
        if page is None:
            raise UsageError(
                "the feed of this store is off: turn it on by Runtime(feed=True), which tells what "
                "happens from then on"
            )
        if page.floor > page.end:
            what = f"it was removed up to {page.floor}, and ends at {page.end}"
            raise StoreDamaged(what="the feed", cause=what)
        return page

    def until_now(self) -> Feed:
        """Return the same feed, ending after the newest event at the time when its loop begins."""
        found = copy(self)
        found._follows = False
        return found

    def position(self) -> Future[str]:
        """Return the cursor before the first event. Once this future settles, no event is
        missed.
        """
        return self._begun.map(self._cursors.cursor)

    def _steps(self) -> Iterator[FeedEvent | Future[Any]]:
        yield self._begun
        place, end = self._place_of(self._last) or self._begun.get(), None
        while not self._is_over(place, end):
            before = place
            reading: Future[_Read] = self._call(partial(self._read, place, end))
            yield reading
            try:
                events, place, end = reading.get()
            except Exception:
                if self._has_ended():
                    return
                raise
            for event in events:
                self._last = event.cursor
                yield event
            if place is before and not self._follows:
                return

    def _is_over(self, place: _Place, end: _Place | None) -> bool:
        # The last row may be removed before it is read. So a loop ends where nothing is read, too.
        # A page may have rows and no events
        # (test_a_loop_until_now_goes_on_behind_rows_that_tell_nothing).
        is_behind = end is not None and place.feed == end.feed and place.key >= end.key
        return self._has_ended() or is_behind

    def _place_of(self, cursor: object) -> _Place | None:
        key = self._cursors.key(cursor)
        return None if key is None else _Place(*key)

    async def _read(self, place: _Place, end: _Place | None) -> _Read:
        """The next events, or none after some time; the place behind them; the place of the end."""
        if end is None and not self._follows:
            bounds = await self._bounds()
            end = _Place(bounds.feed, *bounds.end)
        count = self._hints.count
        page = await self._read_page(place)
        if not page.rows and place.is_in(page) and self._follows:
            await self._hints.wait(self._seconds_until_next(page), count)
            page = await self._read_page(place)
        events: list[FeedEvent] = []
        if not place.is_in(page):
            place = _Place(page.feed, *page.floor)
            gap = Gap(floor=page.floor[1])
            events.append(self._event(place, gap))
            page = await self._read_page(place)
        for row in page.rows:
            found = list(_events_of(row))
            behind = _Place(page.feed, *row.key, mark=row.mark)
            for part, event in enumerate(found[place.part :], place.part + 1):
                ahead = _Place(page.feed, *place.key, part, row.mark)
                events.append(self._event(behind if part == len(found) else ahead, event, row))
            place = behind
        return events, place, end

    def _seconds_until_next(self, page: FeedPage) -> float:
        """The most seconds until the next look, after a look that has brought nothing."""
        seconds = LONGEST_WAIT if self._is_alone else POLL
        if not page.is_held_up:
            self._pause = SOON
            return seconds
        # Race: this against transactions that began before the one of these rows. Of its commit
        # somebody tells, of their end nobody
        # (test_what_an_open_transaction_holds_up_comes_soon_after_its_end).
        seconds = min(self._pause, seconds)
        self._pause = 2 * seconds
        return seconds

    async def _read_page(self, place: _Place) -> FeedPage:
        page = await self._read_rows(place.key, PAGE)
        if page is None:
            raise UsageError("the feed of this store was turned off")
        return page

    def _event(self, place: _Place, event: FedEvent, row: StoredFeedRow | None = None) -> FeedEvent:
        return FeedEvent(
            cursor=self._cursors.cursor(place),
            agent_id="" if row is None else row.agent_id,
            agent="" if row is None else row.agent,
            seq=None if row is None else row.seq,
            event=event,
            at=None if row is None else row.at,
        )


def _events_of(row: StoredFeedRow) -> Iterator[FedEvent]:
    try:
        yield from _read(row)
    except (SchemaVersionError, StoreDamaged) as error:
        logger.error(
            "an event of agent %r is left out: %s",
            row.agent_id,
            text_of(error),
            extra=log_extra(row.agent_id),
        )


def _read(row: StoredFeedRow) -> Iterator[FedEvent]:
    record = row.record()
    if record is None:
        yield AgentDeleted()
        return
    path = (row.agent, *(each.name for each in r.agents_inside(record)))
    inner = r.innermost(record)
    if isinstance(inner, r.Decided):
        yield RequestDecided(
            agent_path=path,
            request_id=inner.request_id,
            decision=inner.decision.type,
            by=inner.decision.by,
            origin=inner.decision.origin,
            by_grant=inner.decision.by_grant,
        )
    elif isinstance(inner, r.Withdrawn):
        yield RequestsWithdrawn(agent_path=path, request_ids=inner.request_ids)
    else:
        for found in agent_events_of(row.seq or 0, inner, row.agent_id, path):
            assert not isinstance(found.event, EventsDropped | LoopBlocked), "not of a record"
            yield found.event

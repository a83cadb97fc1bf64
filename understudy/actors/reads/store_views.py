"""`StoreViews`: the reads of all agents of a store that a `Runtime` and an `Observer` have."""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypedDict, TypeVar, Unpack, get_args

from understudy._base import security_log
from understudy._base.authors import checked_author
from understudy._base.clock import Clock
from understudy._base.json_values import checked_flag, shown, text_of
from understudy._base.points_in_time import checked_time
from understudy._base.request_timing import Seconds, checked_delay
from understudy.actors.agent.directory import Directory, checked_id
from understudy.actors.agent.events import Status
from understudy.actors.agent.stored_agents import (
    AgentInfo,
    PendingCounts,
    PendingGroup,
    PendingPlace,
    PendingRequest,
    info_of,
    pending_request,
    spawned_agent,
)
from understudy.actors.reads.attention import DAY, FIRST, SOON, WEEK, Attention, Trouble
from understudy.actors.reads.export import export
from understudy.actors.reads.feed import Feed, Start
from understudy.actors.reads.listing import (
    MAX_LIMIT,
    PAGE,
    Cursors,
    Listing,
    Page,
    checked_limit,
    checked_name,
)
from understudy.agent.decisions import why_impossible
from understudy.approvals import Caller
from understudy.errors import (
    SchemaVersionError,
    SearchOff,
    StoreDamaged,
    StoreUnavailable,
    UsageError,
)
from understudy.interrupts import DecisionType, Request
from understudy.journal import StoreReads
from understudy.journal.asks import StoredAsk, folded
from understudy.journal.contracts import IndexStatus, StoredAgent, time_number
from understudy.journal.decided import DecidedBy, DecidedQuery, DecidedRequest, StoredDecided
from understudy.journal.lists import (
    NEVER,
    AgentKey,
    AgentQuery,
    AskedAt,
    AskOrder,
    AskQuery,
    key_of,
)
from understudy.journal.memory_index import MemoryIndex
from understudy.journal.notes import NotesQuery
from understudy.journal.notices import STATES, NoticeState, StoredNotice
from understudy.journal.usage import DayUsage, day_usage, days
from understudy.loop_actors.future import Future, refuse, settle_in_task
from understudy.state.doubts import Doubt
from understudy.state.request_notes import (
    RequestNote,
    RequestNotes,
    checked_request_id,
    notes_of,
    viewer_keys,
)
from understudy.state.reviews import Review
from understudy.state.waits import Wait
from understudy.tools import Tool
from understudy.trust.delegations import checked_party
from understudy.trust.freezes import Freeze

if TYPE_CHECKING:
    from understudy.actors.reads.search import SearchHit
    from understudy.journal.feed import FeedKey, FeedPage
    from understudy.journal.search_words import Where

T = TypeVar("T")
R = TypeVar("R")
logger: logging.Logger = logging.getLogger(__name__)

OTHER = "other"
"""The `version` of open runs that were begun by definitions which are not known here."""
LATE = 5.0
"""Seconds that a page of a list may take beyond the patience of its store. That is for outages that
are known at once: a database that hangs, or the commits of many agents, would hold it longer."""
DAYS = timedelta(days=29)
"""The time before today that `usage` tells of by default."""
MOST_FAILED_NOTICES = 1_000
"""The most given-up notices that are counted."""
MOST_WORDS = 20
"""The most words of a search."""
LONGEST_SEARCH = 2000
"""The most characters of a search. SQLite does not compare with long text."""
URGENCIES: tuple[int, ...] = (1800, 3600, 4 * 3600)
"""The limits, in seconds, that group requests by how soon they expire."""
_STATUSES = [status for status in Status if status is not Status.PASSIVE]


Viewer: TypeAlias = str | tuple[str, str] | Caller
"""A person who looks: the name of a login; or issuer and subject of an identity provider."""


class PendingFilters(TypedDict, total=False):
    """The filters of `pending`, by name."""

    tool: str | None
    agent: str | None
    kind: str | None
    search: str | None
    viewer: Viewer | None
    mine: bool
    unassigned: bool
    snoozed: bool


class StoreViews(ABC):
    """The calls that read the agents of a store. They activate and load no agent."""

    _closed_too_soon: ClassVar[str]
    """The error text of a call that was made in time and could not be answered any more."""
    _directory: Directory
    """The directory of the agents in memory and the definitions. An observer's is empty."""
    _store: StoreReads
    """The store that is read."""
    _clock: Clock
    """The clock by which the agents live."""

    # ------------------------------------------------------------------- looking

    def agents(
        self,
        *,
        status: Status | str | None = None,
        agent: str | None = None,
        prefix: str = "",
        updated_since: datetime | None = None,
        version: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[AgentInfo]:
        """Return the agents of the store, and the agents that are spawned here, sorted by id.

        `await` it, or `.get()` it, for a page: a list with `after`, the cursor of the next page.
        `async for` goes over all agents in pages. An agent whose row in the index is damaged is
        listed with its `damage`.

        Args:
            status: only agents with this status.
            agent: only agents with a definition of this name.
            prefix: only agents whose ids begin with this text.
            updated_since: only agents whose status has changed since this time, sorted by the
                time of the change. The time needs a time zone. An agent that changes while you
                read the pages comes again.
            version: only agents with an open run that was begun by the definition with this
                fingerprint; or `"other"`: by no definition of this runtime. These agents hold
                up a roll-out.
            after: the `after` of the page before, with the same filters.
            limit: the number of agents in a page, at most 10,000; None = all.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        since = (
            None if updated_since is None else checked_time(updated_since, what="`updated_since`")
        )
        query = AgentQuery(
            status=_status_word(status),
            agent=checked_name("`agent`", agent),
            prefix=checked_name("`prefix`", prefix) or "",
            updated_since=since,
            version=None if version == OTHER else checked_name("`version`", version),
            not_versions=self._versions() if version == OTHER else None,
        )
        cursors = Cursors("agents", query, *((str,) if since is None else (int, str)))

        def rows(key: tuple[Any, ...] | None, count: int) -> Awaitable[Sequence[StoredAgent]]:
            return self._page_of_agents(query, None if key is None else (0, *key)[-2:], count)

        key_of = partial(_agent_key, query=query)
        return self._listed(cursors, rows, self._info, key_of, after=after, limit=limit)

    def pending(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        kind: str | None = None,
        within: Seconds | None = None,
        search: str | None = None,
        viewer: Viewer | None = None,
        mine: bool = False,
        unassigned: bool = False,
        snoozed: bool = False,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[PendingRequest]:
        """Return the requests of all agents that wait for a person. No agent is activated or
        loaded.

        `await` it, or `.get()` it, for a page: a list with `after`, the cursor of the next page.
        `async for` goes over all requests in pages. The description of a tool is included if its
        definition is known: at a runtime, not at an observer.

        Args:
            tool: only requests about a tool of this name.
            agent: only requests of agents with a definition of this name.
            kind: only requests of this kind: see `Request.kind`.
            within: only requests that have expired, or will expire in this time: seconds or a
                timedelta.
            search: only requests with each of these words, or parts of words, in the title, in
                the name of the tool or the definition, or in an id.
            viewer: the person who looks: the name of a login; or issuer and subject of an
                identity provider. Requests that the person has snoozed are left out, unless
                they expire within the hour. None = no request is left out.
            mine: only requests that the viewer has taken or was assigned.
            unassigned: only requests that nobody has taken or was assigned.
            snoozed: include requests that the viewer has snoozed.
            order: the `"oldest"` first; or the first `"expiring"`, with requests that never
                expire last.
            after: the `after` of the page before, with the same filters and order.
            limit: the number of requests in a page, at most 10,000; None = all.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        query = self._pending_query(
            order,
            tool=tool,
            agent=agent,
            kind=kind,
            search=search,
            viewer=viewer,
            mine=mine,
            unassigned=unassigned,
            snoozed=snoozed,
        )
        span = None if within is None else checked_delay(within, what="pending(within=...)")
        item = self._pending_request
        return self._asks("pending", query, item, after, limit, self._with_notes, span)

    def notes(self, id: str, request_id: str) -> Future[RequestNotes]:
        """Return the notes beside a request: the claim, the assignment and the comments.

        Empty if there is no such request. Notes are kept for 30 days after the end of the request.

        Args:
            id: the id of the agent.
            request_id: the id of its request.

        Raises:
            UsageError: for a bad id.

        """
        checked_id(id)
        checked_request_id(request_id, what="`request_id`")

        async def found() -> RequestNotes:
            kept = await self._store.notes([(id, request_id)], texts=True)
            return notes_of((each.note for each in kept), self._clock.now())

        return self._call(found)

    def _pending_query(
        self, order: AskOrder = "oldest", **filters: Unpack[PendingFilters]
    ) -> AskQuery:
        beside = self._beside(
            filters.get("viewer"),
            mine=filters.get("mine", False),
            unassigned=filters.get("unassigned", False),
            snoozed=filters.get("snoozed", False),
        )
        return AskQuery(
            checked_name("`tool`", filters.get("tool")),
            checked_name("`agent`", filters.get("agent")),
            order,
            notes=beside,
            request_kind=checked_name("`kind`", filters.get("kind")),
            words=_words(filters.get("search")),
        )

    def _beside(
        self, viewer: object, *, mine: bool, unassigned: bool, snoozed: bool
    ) -> NotesQuery | None:
        for name, given in (("mine", mine), ("unassigned", unassigned), ("snoozed", snoozed)):
            checked_flag(given, what=f"pending({name}=...)")
        if mine and viewer is None:
            raise UsageError("pending(mine=True) needs the person who looks: give viewer=")
        if viewer is None and not unassigned:
            return None
        keys = () if viewer is None else viewer_keys(checked_party(viewer, what="`viewer`"))
        if "notes" not in self._store.keeps:
            if mine:
                raise UsageError(f"`mine` cannot be used with {self._store!r}: it keeps no notes")
            return None
        return NotesQuery(viewer=keys, mine=mine, unassigned=unassigned, snoozed=snoozed)

    async def _with_notes(self, asks: Sequence[StoredAsk], found: Page[PendingRequest]) -> None:
        """Add to the requests what is written beside them. Nothing is read where nothing is."""
        noted = {ask.agent_id for ask in asks if ask.noted}
        wanted = [(each.agent_id, each.request.id) for each in found if each.agent_id in noted]
        if not wanted:
            return
        notes: dict[tuple[str, str], list[RequestNote | None]] = {}
        for stored in await self._store.notes(wanted, texts=False):
            notes.setdefault(stored[:2], []).append(stored.note)
        now = self._clock.now()
        for at, each in enumerate(found):
            beside = notes.get((each.agent_id, each.request.id))
            if beside is not None:
                found[at] = replace(each, notes=notes_of(beside, now))

    def pending_place(
        self,
        agent_id: str,
        request: Request,
        *,
        order: AskOrder = "oldest",
        within: Seconds | None = None,
        **filters: Unpack[PendingFilters],
    ) -> Future[PendingPlace]:
        """Return the place of a request in the list that `pending` makes with these filters.

        If the request is decided and no longer in the list, the place shows what was around it. No
        agent is activated or loaded.

        Args:
            agent_id: the id of the outermost agent, which is asked for the decision.
            request: the request.
            order: as of `pending`.
            within: as of `pending`.
            filters: the other filters of `pending`.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        checked_id(agent_id)
        query = self._pending_query(order, **filters)
        _check_order(order)
        span = None if within is None else checked_delay(within, what="pending_place(within=...)")
        at = request.created_at if order == "oldest" else request.expires_at
        of = AskedAt(agent_id, request.id, NEVER if at is None else time_number(at))

        async def find() -> PendingPlace:
            await self._ready()
            now = self._clock.now()
            found = await self._store.find_place(_at(query, now, span), of)
            return PendingPlace(before=found.before, previous=found.previous, next=found.next)

        return self._call(find)

    def count_pending(
        self,
        *,
        within: Seconds | None = None,
        search: str | None = None,
        viewer: Viewer | None = None,
        mine: bool = False,
        unassigned: bool = False,
        snoozed: bool = False,
    ) -> Future[PendingCounts]:
        """Count the requests of all agents that wait for a person, in groups of like requests.

        No agent is activated or loaded.

        Args:
            within: seconds or a timedelta: also count by this time to the expiry.
            search: as of `pending`.
            viewer: as of `pending`.
            mine: as of `pending`.
            unassigned: as of `pending`.
            snoozed: as of `pending`.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        query = self._pending_query(
            search=search, viewer=viewer, mine=mine, unassigned=unassigned, snoozed=snoozed
        )
        span = None if within is None else checked_delay(within, what="count_pending(within=...)")
        seconds = sorted({*URGENCIES, *(() if span is None else (span.total_seconds(),))})

        async def count() -> PendingCounts:
            await self._ready()
            now = self._clock.now()
            times = [now + timedelta(seconds=each) for each in seconds]
            return PendingCounts(
                tuple(
                    PendingGroup(
                        kind=each.request_kind,
                        tool=each.tool,
                        agent=each.agent,
                        within=(*seconds, None)[each.time],
                        count=each.size,
                    )
                    for each in await self._store.count_asks(_at(query, now), times)
                )
            )

        return self._call(count)

    def waiting(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[Wait]:
        """Return the sleeps of tools, and their waits for answers from outside, of all agents.

        It is a list in pages, with the arguments of `pending`. No agent is activated or loaded.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        query = AskQuery(tool, agent, order, "wait")
        return self._asks("waiting", query, StoredAsk.wait, after, limit)

    def doubts(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[Doubt]:
        """Return the calls in doubt of all agents. A person is asked, or only the model was told.

        It is a list in pages, with the arguments of `pending`. With `order="expiring"`, doubts that
        end by themselves first come first. No agent is activated or loaded. A doubt with a
        `request_id` is answered, as any request. `ref.settle(doubt.call_key, how=...)` settles a
        doubt without one.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        query = AskQuery(tool, agent, order, "doubt")
        return self._asks("doubts", query, StoredAsk.doubt, after, limit)

    def reviews(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[Review]:
        """Return the calls that persons let run alone by breaking the glass, and that need a
        review.

        It is a list in pages, with the arguments of `pending`. No agent is activated or loaded.
        `runtime.get(review.agent_id).close_review(review.id, by=...)` closes a review.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        query = AskQuery(tool, agent, order, "review")
        return self._asks("reviews", query, StoredAsk.review, after, limit)

    def decided(
        self,
        *,
        person: str | None = None,
        tool: str | None = None,
        agent: str | None = None,
        agent_id: str | None = None,
        type: DecisionType | None = None,
        origin: DecidedBy | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[DecidedRequest]:
        """Return the decisions on the requests of all agents, the newest first.

        It is a list in pages, as `pending`. No agent is activated or loaded. It has the decisions
        made in this store, also of compacted agents. Of a deleted agent it has who decided what,
        when and about which tool, without arguments and notes. It has no decisions of an imported
        agent from before the import.

        Args:
            person: only decisions that the person with this id or login made, voted on, or gave
                the grant for.
            tool: only decisions about a tool of this name.
            agent: only decisions for agents with a definition of this name.
            agent_id: only decisions for the agent with this id.
            type: only decisions of this type: `"approve"`, `"edit"`, `"reject"`, `"respond"` or
                `"dismiss"`.
            origin: only decisions of this origin: one `"person"`; several persons by `"votes"`;
                a `"grant"` that let the call through or denied it; `"expiry"`, if nobody
                answered in time; or `"executor"`, if the program that executes the call gave it
                up.
            since: only decisions from this time on.
            until: only decisions before this time.
            after: the `after` of the page before, with the same filters.
            limit: the number of decisions in a page, at most 10,000; None = all.

        Raises:
            UsageError: if an argument is wrong; the error names the argument. If the store
                keeps no decisions, the list raises it.

        """
        for name, given in (("person", person), ("tool", tool), ("agent", agent)):
            checked_name(f"`{name}`", given)
        checked_name("`agent_id`", agent_id)
        for name, given, known in (
            ("type", type, get_args(DecisionType)),
            ("origin", origin, get_args(DecidedBy)),
        ):
            if given is not None and given not in known:
                words = ", ".join(map(repr, known))
                raise UsageError(f"`{name}` must be one of {words}, got {shown(given)}")
        first = None if since is None else checked_time(since, what="`since`")
        last = None if until is None else checked_time(until, what="`until`")
        query = DecidedQuery(person, tool, agent, agent_id, type, origin, first, last)
        return self._listed(
            Cursors("decided", query, int, int),
            partial(self._store.list_decided, query),
            StoredDecided.decided,
            lambda stored: stored.key,
            after=after,
            limit=limit,
            what=lambda _: "a decision",
        )

    def usage(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> Future[list[DayUsage]]:
        """Return what requests to models have used, by day, definition and model, in this order.

        It has everything that runtimes with `usage=True` have counted, for all agents, also deleted
        agents. Days are in UTC.

        Args:
            since: the first day; by default the last 30 days are returned.
            until: the last day, as a time within it; by default today.

        Raises:
            UsageError: if a time has no time zone. By the future: if the store keeps no usage.

        """
        first = None if since is None else checked_time(since, what="`since`")
        last = None if until is None else checked_time(until, what="`until`")

        async def read() -> list[DayUsage]:
            await self._ready()
            end = self._clock.now() if last is None else last
            begin = end - DAYS if first is None else first
            return [day_usage(each) for each in await self._store.read_usage(*days(begin, end))]

        return self._call(read)

    def attention(self, limit: int = FIRST) -> Future[Attention]:
        """Return everything that needs a person: the number of each kind, and the first of each
        kind.

        No agent is activated or loaded.

        Args:
            limit: the number of rows of each kind, at most 10,000; 0 for the counts alone.

        Raises:
            UsageError: if `limit` is neither 0 nor the size of a page.

        """
        if limit != 0:
            checked_limit(limit)
        return self._call(lambda: self._attention(limit))

    async def _attention(self, limit: int) -> Attention:
        await self._ready()
        store, now = self._store, self._clock.now()
        day, soon = now - DAY, now + SOON
        counts = await store.count_troubles(day, soon)
        quarantined: list[AgentInfo] = []
        failed: list[AgentInfo] = []
        if counts.quarantined and limit:
            async for stored in store.agents({IndexStatus.QUARANTINED}):
                if len(quarantined) < limit:
                    quarantined.append(self._info(stored))
        if counts.failed and limit:
            failed = await self._failed(day, min(limit, counts.failed))
        doubts = await self.doubts(limit=limit) if counts.doubts and limit else []
        overdue: Sequence[PendingRequest] = ()
        if counts.overdue and limit:
            late = AskQuery(order="expiring", late_by=soon)
            overdue = await self._asks("overdue", late, self._pending_request, None, limit)
        expired, of_day, of_week = await self._expired(now, limit)
        hosts = await store.gone_hosts(MAX_LIMIT)
        given_up = await store.notices(("failed",), None, MOST_FAILED_NOTICES)
        frozen = [each for each in await self._frozen() if each.what == "store"]
        return Attention(
            at=now,
            frozen=Trouble(len(frozen), tuple(frozen[:limit])),
            quarantined=Trouble(counts.quarantined, tuple(quarantined)),
            doubts=Trouble(counts.doubts, tuple(doubts)),
            overdue=Trouble(counts.overdue, tuple(overdue)),
            failed=Trouble(counts.failed, tuple(failed)),
            expired=Trouble(of_day, tuple(expired)),
            expired_in_week=of_week,
            hosts=Trouble(len(hosts), tuple(hosts[:limit])),
            notices=Trouble(len(given_up), tuple(given_up[:limit])),
        )

    async def _failed(self, since: datetime, limit: int) -> list[AgentInfo]:
        """The agents whose runs have failed since a time, without quarantined agents."""
        found: list[AgentInfo] = []
        async for info in self.agents(status=Status.FAILED, updated_since=since, limit=PAGE):
            if info.index_status is not IndexStatus.QUARANTINED:
                found.append(info)
            if len(found) == limit:
                break
        return found

    async def _expired(
        self, now: datetime, limit: int
    ) -> tuple[Sequence[DecidedRequest], int, int]:
        """The requests that expired within a day, with their number, and the number in a week."""
        if "decided" not in self._store.keeps:
            return (), 0, 0
        week = DecidedQuery(origin="expiry", since=now - WEEK)
        of_week = await self._store.count_decided(week)
        of_day = await self._store.count_decided(week._replace(since=now - DAY)) if of_week else 0
        if not of_day or not limit:
            return (), of_day, of_week
        found = await self.decided(origin="expiry", since=now - DAY, limit=limit)
        return found, of_day, of_week

    def search(
        self,
        text: str,
        *,
        where: Where | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[SearchHit]:
        """Search for texts that have all these words, in requests and conversations, the newest
        first.

        Letters and digits count; everything else divides words. A `*` after a word stands for any
        ending. Case and accents do not count. No agent is activated or loaded. A page that is read
        with a `limit` is a `SearchPage`: it says whether the index is `behind`.

        Args:
            text: the words.
            where: only in `"requests"`, or only in `"conversations"`.
            after: the `after` of the page before, or the `cursor` of a hit, of the same search.
            limit: the number of hits in a page, at most 10,000; None = all.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.
            SearchOff: by the future, if the store has no index: see `Runtime(search=True)`.

        """
        from understudy.actors.reads.search import SearchPage, hit_of
        from understudy.journal.search_words import query_of

        query = query_of(text, where)
        cursors = Cursors("search", [query.words, where], int)

        async def empty() -> Page[SearchHit]:
            return SearchPage(behind=await self._searchable())

        return self._listed(
            cursors,
            lambda key, count: self._store.search(query, key and key[0], count),
            lambda stored: hit_of(stored, query, cursors.cursor((stored.no,))),
            lambda stored: (stored.no,),
            after=after,
            limit=limit,
            what=lambda stored: f"a request of agent {shown(stored.agent_id)}",
            empty=empty,
        )

    @property
    def has_search(self) -> bool:
        """Whether this process keeps an index for the search: `Runtime(search=True)`.

        Runtimes of the store may keep it up elsewhere.
        """
        return False

    async def _searchable(self) -> int:
        """Let the index of the search catch up. Returns the number of agents that it lacks.

        Raises:
            SearchOff: if the store has no index.

        """
        await self._keep_searchable()
        state = await self._store.search_state()
        if not state.is_on:
            raise SearchOff
        return state.behind

    async def _keep_searchable(self) -> None:
        """Let the index of the search catch up, if this object has to keep it up."""
        return

    def notices(
        self,
        *,
        state: NoticeState | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[StoredNotice]:
        """Return what people were told about requests, or are to be told, by channel; newest first.

        It is a list in pages, as `pending`. Empty if no runtime of the store has `notify`. A notice
        is kept for some days after it is over.

        Args:
            state: only notices in this state: `"new"`, `"done"`, `"dropped"` or `"failed"`.
            after: the `after` of the page before, with the same state.
            limit: the number of notices in a page, at most 10,000; None = all.

        Raises:
            UsageError: if an argument is wrong; the error names the argument.

        """
        if state is not None and state not in STATES:
            known = ", ".join(map(repr, STATES))
            raise UsageError(f"`state` must be one of {known}, got {shown(state)}")
        states = STATES if state is None else (state,)
        return self._listed(
            Cursors("notices", (state,), int),
            lambda key, count: self._store.notices(states, key and key[0], count),
            lambda notice: notice,
            lambda notice: (notice.no,),
            after=after,
            limit=limit,
        )

    def count(self) -> Future[dict[Status, int]]:
        """Count the agents of the store by status. No agent counts as `PASSIVE`: see
        `AgentInfo`.
        """

        async def count() -> dict[Status, int]:
            await self._ready()
            found = dict(await self._store.count_agents())
            counts: dict[Status, int] = {status: found.pop(status.value, 0) for status in _STATUSES}
            for word in found:  # damaged: as the list shows these agents
                async for stored in self._with_status(word):
                    counts[self._info(stored).status] += 1
            return counts

        return self._call(count)

    def now(self) -> Future[datetime]:
        """Return the time of the store in UTC. Requests expire by this time.

        It is the time of the runtime's clock. By default, and for an observer, that is the clock of
        the machine. If hosts share the store it is the clock of the server; the machine's clock may
        differ by minutes.
        """

        async def now() -> datetime:
            return self._clock.now()

        return self._call(now)

    def export(self, id: str, *, by: str | None = None) -> Future[dict[str, Any]]:
        """Return all records of an agent, as JSON-able data for `import_`. The agent is not
        changed.

        The future raises `UnknownAgent` if there is no such agent.

        Args:
            id: the id of the agent.
            by: the person who exports it. It is not recorded with the agent, but in the
                security log.

        """
        checked_id(id)
        checked_author(by, what="export(by=...)")
        security_log.note("act", "export", who=by, agent=id)
        return self._call(lambda: export(self._store, id))

    def _feed(self, after: str | None, start: Start) -> Feed:
        """The feed of the store."""
        self._running_loop()
        store = self._store
        return Feed(
            self._call,
            self._read_feed,
            after=after,
            start=start,
            has_ended=self._has_ended,
            hints=store.feed_hint,
            is_alone=store.is_alone,
        )

    async def _read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        page = await self._store.read_feed(after, limit)
        for row in () if page is None else page.rows:
            await self._has_emitted(row.agent_id, row.seq)
        return page

    async def _has_emitted(self, agent_id: str, seq: int | None) -> None:
        """Return once an agent's events up to a record are emitted, if it is in memory here."""
        slot = self._directory.find(agent_id)
        if slot is not None and seq is not None:
            await slot.has_emitted(seq)

    # ---------------------------------------------------------------------- tools

    def tool_of(self, request: Request) -> Tool | None:
        """Return the tool that a request is about; None if its definition is not known here.

        The tool's `parameters` are the JSON schema of a form. Its `revalidate` checks the input.
        """
        self._running_loop()
        return self._tool_of(request.agent_path[0], request)

    def why_impossible(self, request: Request) -> str | None:
        """Return why nobody can let the call of a request run, with the remedy: its tool is gone.

        None if the call can run, or if its definition is not known here.
        """
        self._running_loop()
        definition = self._directory.definition_of(request.agent_path[0], request.agent_id)
        return None if definition is None else why_impossible(definition, request)

    def _tool_of(self, agent: str, request: Request) -> Tool | None:
        definition = self._directory.definition_of(agent, request.agent_id)
        for name in request.agent_path[1:]:
            child = None if definition is None else definition.children.get(name)
            definition = None if child is None else child.definition
        return None if definition is None else definition.tool_of(request.tool_name)

    # ------------------------------------------------------------------ the lists

    def _listed(
        self,
        cursors: Cursors,
        rows: Callable[[Any, int], Awaitable[Sequence[R]]],
        item: Callable[[R], T],
        key_of: Callable[[R], tuple[Any, ...] | None],
        *,
        after: str | None,
        limit: int | None,
        what: Callable[[R], str] = str,
        empty: Callable[[], Awaitable[Page[T]]] | None = None,
        finish: Callable[[Sequence[R], Page[T]], Awaitable[None]] | None = None,
    ) -> Listing[T]:
        """A list whose pages come in time, or raise `StoreUnavailable`.

        A row that cannot be read is logged, and not listed.

        Args:
            cursors: of the list.
            rows: reads so many rows behind a key.
            item: what is listed of a row.
            key_of: the key of a row; None where a damaged row has none.
            after, limit: as of `pending`.
            what: names a row, for the log.
            empty: makes a page without items, before the rows are read.
            finish: adds to a page what is read for all of it together.

        """
        checked_limit(limit)
        cursors.key(after)
        seconds = None if self._store.patience is None else self._store.patience + LATE

        async def read(after: str | None, limit: int) -> Page[T]:
            await self._ready()
            page = Page[T]() if empty is None else await empty()
            found = await rows(cursors.key(after), limit + 1)
            for row in found[:limit]:
                try:
                    page.append(item(row))
                except (SchemaVersionError, StoreDamaged) as error:
                    logger.error("%s is left out: %s", what(row), text_of(error))
            if finish is not None:
                await finish(found[:limit], page)
            behind = key_of(found[limit - 1]) if len(found) > limit else None
            page.after = None if behind is None else cursors.cursor(behind)
            return page

        async def in_time(after: str | None, limit: int) -> Page[T]:
            try:
                async with asyncio.timeout(seconds) as limited:
                    return await read(after, limit)
            except TimeoutError:
                if not limited.expired():
                    raise
                why = f"a list got no answer for {seconds:g} s"
                raise StoreUnavailable(cause=why) from None

        return Listing(self._call, in_time, after=after, limit=limit, loop=self._running_loop())

    def _asks(
        self,
        name: str,
        query: AskQuery,
        item: Callable[[StoredAsk], T],
        after: str | None,
        limit: int | None,
        finish: Callable[[Sequence[StoredAsk], Page[T]], Awaitable[None]] | None = None,
        within: timedelta | None = None,
    ) -> Listing[T]:
        """A list of asks, each shown as `item` makes it.

        The cursor of a list that is bounded by a time is a cursor of the span: the time moves.

        Args:
            name: of the list.
            query: which asks, and in which order.
            item: what is listed of each.
            after, limit: as of `pending`.
            finish: as of `_listed`.
            within: only what expires in this span.

        """
        _check_order(query.order)
        checked_name("`tool`", query.tool)
        checked_name("`agent`", query.agent)
        return self._listed(
            Cursors(name, [query, within], int, int),
            lambda key, count: self._store.list_asks(
                _at(query, self._clock.now(), within), key, count
            ),
            item,
            partial(key_of, order=query.order),
            after=after,
            limit=limit,
            what=lambda ask: f"a {query.kind} of agent {shown(ask.agent_id)}",
            finish=finish,
        )

    def _pending_request(self, ask: StoredAsk) -> PendingRequest:
        asked = ask.requested()
        return pending_request(ask, asked, self._tool_of(ask.agent, asked.request))

    async def _ready(self) -> None:
        """Wait until the store's index says what callers know already."""
        for slot in self._directory.slots():
            # Race: this against the commit of an agent that has just come to rest. Who has seen its
            # status finds in the list what it waits for
            # (test_a_list_has_what_an_agent_waits_for_once_its_status_says_so).
            await slot.rest_is_durable()

    def _info(self, stored: StoredAgent) -> AgentInfo:
        return info_of(stored, is_active=self._directory.is_active(stored.agent_id))

    async def _page_of_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> Sequence[StoredAgent]:
        """A page of the agents of the store, with agents that are only spawned here so far."""
        found = await self._store.list_agents(query, after, limit)
        for stored in found:
            await self._has_emitted(stored.agent_id, stored.last_seq)
        spawned = MemoryIndex()
        rows = (
            spawned_agent(slot.id, slot.agent.name)
            for slot in self._directory.slots()
            if slot.agent is not None and slot.activation is None
        )
        for row in sorted(rows, key=lambda row: row.agent_id):
            spawned.put(row, ())
        listed = {stored.agent_id for stored in found}
        last = found[-1].agent_id if len(found) == limit else None
        here = {
            row.agent_id: row
            for row in spawned.list_agents(query, after, sys.maxsize)
            if row.agent_id not in listed and (last is None or row.agent_id < last)
        }
        # Without a filter, an agent that is not listed is not stored either: it is not looked up.
        if here and (query.status is not None or query.agent is not None):
            for stored in await self._store.find_agents(here):
                del here[stored.agent_id]
        if not here:
            return found
        return sorted([*found, *here.values()], key=lambda row: row.agent_id)[:limit]

    async def _with_status(self, word: str) -> AsyncIterator[StoredAgent]:
        query = AgentQuery(status=word)
        after: AgentKey | None = None
        while found := await self._page_of_agents(query, after, MAX_LIMIT):
            for stored in found:
                yield stored
            after = (0, found[-1].agent_id)

    # -------------------------------------------------------------------- inside

    @abstractmethod
    async def _frozen(self) -> Collection[Freeze]:
        """The freezes that stand now."""

    @abstractmethod
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """The loop on which this object reads. Raises a `UsageError` if it does not run."""

    def _versions(self) -> tuple[str, ...]:
        """The fingerprints of the definitions that are known here, sorted."""
        return tuple(sorted(self._directory.fingerprints()))

    @abstractmethod
    def _has_ended(self) -> bool:
        """Whether this object answers no calls any more."""

    @abstractmethod
    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in a task that ends with this object at the latest, on the loop."""

    def _call(
        self, function: Callable[[], Coroutine[Any, Any, T]], future: Future[T] | None = None
    ) -> Future[T]:
        """Call a function on the loop; the future, a new or the given one, gets its result."""
        try:
            loop = self._running_loop()
        except UsageError as error:
            if future is None:
                raise
            refuse(future, error)
            return future
        answer: Future[T] = Future(loop) if future is None else future
        gone = partial(UsageError, self._closed_too_soon)

        async def work() -> T:
            if self._has_ended():
                raise gone()
            return await function()

        def told(error: BaseException) -> Exception:
            return error if isinstance(error, Exception) else RuntimeError(shown(error))

        def begin() -> None:
            settle_in_task(answer, work, self._start_task, told=told, gone=gone)

        loop.call_soon_threadsafe(begin)
        return answer


def _agent_key(stored: StoredAgent, query: AgentQuery) -> tuple[int | str, ...]:
    if query.updated_since is None:
        return (stored.agent_id,)
    assert stored.status_at is not None, "listed by when its status changed"
    return time_number(stored.status_at), stored.agent_id


def _at(query: AskQuery, now: datetime, within: timedelta | None = None) -> AskQuery:
    """The query for the store at a time."""
    beside = None if query.notes is None else replace(query.notes, now=now)
    return query._replace(notes=beside, until=None if within is None else now + within)


def _check_order(order: object) -> None:
    if order not in ("oldest", "expiring"):
        raise UsageError(f"`order` must be 'oldest' or 'expiring', got {shown(order)}")


def _words(search: object) -> tuple[str, ...]:
    """The words of a search, folded.

    Raises:
        UsageError: if it is no text, or has more characters or words than a search takes.

    """
    text = checked_name("`search`", search) or ""
    if len(text) > LONGEST_SEARCH:
        raise UsageError(
            f"`search` has {len(text):,} characters: at most {LONGEST_SEARCH:,} are searched"
        )
    words = tuple(folded(text).split())
    if len(words) > MOST_WORDS:
        raise UsageError(f"`search` has {len(words)} words: at most {MOST_WORDS} are searched")
    return words


def _status_word(status: object) -> str | None:
    """The word for a status, as a store keeps it.

    Raises:
        UsageError: if it is none that a stored agent can have.

    """
    if status is None:
        return None
    for known in _STATUSES:
        if status == known:
            return str(known.value)
    there = ", ".join(repr(known.value) for known in _STATUSES)
    remedy = f"`status` must be one of {there}, or the `Status` of it"
    if status == Status.PASSIVE:
        remedy += "; whether an agent is in memory is `is_active`"
    raise UsageError(f"{remedy}, got {shown(status)}")

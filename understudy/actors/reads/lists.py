"""`Lists`: the lists of the agents of a store and of what they ask, in pages."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from understudy._base.json_values import digest, is_storable_text, shown, text_of
from understudy._base.points_in_time import checked_time
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.events import Status
from understudy.actors.agent.stored_agents import (
    AgentInfo,
    PendingRequest,
    info_of,
    pending_request,
    spawned_agent,
)
from understudy.agent.decisions import why_impossible
from understudy.errors import SchemaVersionError, StoreDamaged, UsageError
from understudy.interrupts import Request
from understudy.journal import StoreReads
from understudy.journal.asks import StoredAsk
from understudy.journal.contracts import StoredAgent, time_number
from understudy.journal.lists import (
    AgentKey,
    AgentQuery,
    AskOrder,
    AskQuery,
    key_of,
)
from understudy.loop_actors.future import Future, LazyFuture, refuse_on_its_loop
from understudy.state.doubts import Doubt
from understudy.state.records import Requested
from understudy.state.waits import Wait
from understudy.tools import Tool

T = TypeVar("T")

MAX_LIMIT = 10_000
"""Items of a page."""
PAGE = 500
"""Items that are read at a time where all are wanted."""


class Page(list[T]):
    """Some items of a list, in order."""

    after: str | None
    """The cursor behind its last item, for the next page; None if there is nothing more now."""

    def __init__(self, items: Iterable[T] = (), after: str | None = None) -> None:
        super().__init__(items)
        self.after = after


ReadPage = Callable[[str | None, int], Coroutine[Any, Any, Page[T]]]
"""Reads the page behind a cursor, with at most so many items."""


class Calls(Protocol):
    """Calls a coroutine function on the loop of a runtime."""

    def __call__(
        self, function: Callable[[], Coroutine[Any, Any, T]], future: Future[T] | None = None
    ) -> Future[T]: ...


class Listing(LazyFuture[Page[T]], Generic[T]):
    """What a list holds: `await` it, or `.get()` it, for a page; or iterate over all of it.

    Nothing is read before that. Without a `limit` the page has everything from `after` on.
    `async for`, and `for` in a thread, go over everything from `after` on. They read `limit` items
    at a time, so they take the memory of one page.
    """

    def __init__(
        self,
        call: Calls,
        read: ReadPage[T],
        *,
        after: str | None,
        limit: int | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        async def first() -> Page[T]:
            if limit is not None:
                return await read(after, limit)
            found = Page[T]()
            page = await read(after, PAGE)
            while page.after is not None:
                found += page
                page = await read(page.after, PAGE)
            found += page
            return found

        super().__init__(lambda: call(first, self), loop)
        self._call = call
        self._read = read
        self._after = after
        self._page_size = PAGE if limit is None else limit

    async def __aiter__(self) -> AsyncIterator[T]:
        after = self._after
        while True:
            page = await self._read_page(after)
            for item in page:
                yield item
            if page.after is None:
                return
            after = page.after

    # Pykka's futures have an `__iter__` that is their `__await__`.
    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        after = self._after
        while True:
            refuse_on_its_loop(self._loop, "for", "use `async for` instead")
            page = self._read_page(after).get()
            yield from page
            if page.after is None:
                return
            after = page.after

    def _read_page(self, after: str | None) -> Future[Page[T]]:
        return self._call(lambda: self._read(after, self._page_size))


def checked_limit(limit: object) -> int | None:
    """The size of a page.

    Raises:
        UsageError: if it cannot be one.

    """
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise UsageError(
            f"`limit` must be an integer from 1 to {MAX_LIMIT:,}, got {shown(limit)}; for more, "
            "pass the `after` of a page on to the next one, or use `async for`"
        )
    return limit


def checked_name(what: str, given: object) -> str | None:
    """A text to look for.

    Raises:
        UsageError: if it is none.

    """
    if given is None or (isinstance(given, str) and _is_comparable(given)):
        return given
    raise UsageError(f"{what} must be text without NUL, got {shown(given)}")


class Cursors:
    """The cursors of one list: opaque texts that name the list, its filters, and a place in it.

    Args:
        name: of the list.
        filters: what else makes it another list.

    """

    def __init__(self, name: str, filters: object) -> None:
        self._name = name
        self._filters = digest(json.loads(json.dumps(filters, default=str)))[:12]

    def cursor(self, key: tuple[Any, ...]) -> str:
        """The cursor behind the item with this key."""
        text = json.dumps([self._name, self._filters, *key], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def key(self, after: object, *types: type) -> tuple[Any, ...] | None:
        """The key behind which a page begins.

        Args:
            after: the cursor.
            types: of the values of a key.

        Raises:
            UsageError: if this is no cursor, or one of another list.

        """
        if after is None:
            return None
        remedy = f"pass on the `after` of a page of {self._name}()"
        if not isinstance(after, str) or len(after) > MAX_CURSOR:
            raise UsageError(f"`after` must be a cursor, got {shown(after)}: {remedy}")
        try:
            data = after.encode("ascii") + b"=" * (-len(after) % 4)
            found = json.loads(base64.b64decode(data, altchars=b"-_", validate=True))
        except ValueError:
            found = None
        name, filters, *key = found if isinstance(found, list) and len(found) > 1 else (0, 0)
        if isinstance(name, str) and name != self._name:
            raise UsageError(f"`after` is a cursor of {shown(name)}: {remedy}")
        if name == self._name and filters != self._filters:
            raise UsageError(
                f"`after` is a cursor of {self._name}() with other filters: pass on the `after` "
                "of a page with the same ones"
            )
        if name != self._name or not _are(key, types):
            raise UsageError(f"`after` must be a cursor, got {shown(after)}: {remedy}")
        return tuple(key)


MAX_CURSOR = 8000
"""Characters: an id of the greatest length, escaped, fits."""


def _are(values: list[Any], types: tuple[type, ...]) -> bool:
    """Whether these are values of these types that a database can compare."""
    return len(values) == len(types) and all(
        type(value) is kind and _is_comparable(value)
        for value, kind in zip(values, types, strict=True)
    )


def _is_comparable(value: Any) -> bool:
    if isinstance(value, int):
        return -1 << 63 <= value < 1 << 63
    return is_storable_text(value) and "\0" not in value


logger: logging.Logger = logging.getLogger(__name__)

OTHER = "other"
"""The version of an open run that no definition here has begun."""
_STATUSES = [status for status in Status if status is not Status.PASSIVE]


class Lists:
    """Lists what a store has.

    Args:
        store: gives the store, once it is open.
        call: calls a function on the loop.
        loop: that loop.

    """

    def __init__(
        self, store: Callable[[], StoreReads], call: Calls, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._store = store
        self._call = call
        self._loop = loop

    # ------------------------------------------------------------------- the lists

    def agents(
        self,
        *,
        status: Status | str | None,
        agent: str | None,
        prefix: str,
        updated_since: datetime | None,
        version: str | None,
        after: str | None,
        limit: int | None,
    ) -> Listing[AgentInfo]:
        """As `Runtime.agents`."""
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
        cursors = Cursors("agents", query)
        types = (str,) if since is None else (int, str)
        checked_limit(limit)
        cursors.key(after, *types)

        async def read(after: str | None, limit: int) -> Page[AgentInfo]:
            await self._ready()
            key = cursors.key(after, *types)
            found = await self._page_of_agents(
                query, None if key is None else (0, *key)[-2:], limit + 1
            )
            return Page(
                [self._info(stored) for stored in found[:limit]],
                cursors.cursor(_agent_key(found[limit - 1], query)) if len(found) > limit else None,
            )

        return Listing(self._call, read, after=after, limit=limit, loop=self._loop)

    def pending(
        self,
        *,
        tool: str | None,
        agent: str | None,
        order: AskOrder,
        after: str | None,
        limit: int | None,
    ) -> Listing[PendingRequest]:
        """As `Runtime.pending`."""
        return self._asks(
            "pending",
            AskQuery(tool, agent, order),
            lambda ask: self._pending_request(ask, ask.requested()),
            after,
            limit,
        )

    def waiting(
        self,
        *,
        tool: str | None,
        agent: str | None,
        order: AskOrder,
        after: str | None,
        limit: int | None,
    ) -> Listing[Wait]:
        """As `Runtime.waiting`."""
        query = AskQuery(tool, agent, order, "wait")
        return self._asks("waiting", query, lambda ask: ask.wait(), after, limit)

    def doubts(
        self,
        *,
        tool: str | None,
        agent: str | None,
        order: AskOrder,
        after: str | None,
        limit: int | None,
    ) -> Listing[Doubt]:
        """As `Runtime.doubts`."""
        query = AskQuery(tool, agent, order, "doubt")
        return self._asks("doubts", query, lambda ask: ask.doubt(), after, limit)

    def _pending_request(self, ask: StoredAsk, asked: Requested) -> PendingRequest:
        return pending_request(ask, asked, self.tool_of(ask.agent, asked.request))

    def _asks(
        self,
        name: str,
        query: AskQuery,
        item: Callable[[StoredAsk], T],
        after: str | None,
        limit: int | None,
    ) -> Listing[T]:
        """A list of asks, each as `item` shows it. One that cannot be read is logged, left out."""
        if query.order not in ("oldest", "expiring"):
            raise UsageError(f"`order` must be 'oldest' or 'expiring', got {shown(query.order)}")
        checked_name("`tool`", query.tool)
        checked_name("`agent`", query.agent)
        cursors = Cursors(name, query)
        checked_limit(limit)
        cursors.key(after, int, int)

        async def read(after: str | None, limit: int) -> Page[T]:
            await self._ready()
            key = cursors.key(after, int, int)
            found = await self._store().list_asks(
                query, None if key is None else (key[0], key[1]), limit + 1
            )
            page = Page[T]()
            for ask in found[:limit]:
                try:
                    page.append(item(ask))
                except (SchemaVersionError, StoreDamaged) as error:
                    what = f"a {query.kind} of agent {shown(ask.agent_id)}"
                    logger.error("%s is left out: %s", what, text_of(error))
            behind = key_of(found[limit - 1], query.order) if len(found) > limit else None
            page.after = None if behind is None else cursors.cursor(behind)
            return page

        return Listing(self._call, read, after=after, limit=limit, loop=self._loop)

    def count(self) -> Future[dict[Status, int]]:
        """As `Runtime.count`."""

        async def count() -> dict[Status, int]:
            await self._ready()
            found = dict(await self._store().count_agents())
            counts: dict[Status, int] = {status: found.pop(status.value, 0) for status in _STATUSES}
            for word in found:  # damaged: as the list shows these agents
                async for stored in self._with_status(word):
                    counts[self._info(stored).status] += 1
            return counts

        return self._call(count)

    # --------------------------------------------------- what a runtime knows besides

    def _versions(self) -> tuple[str, ...]:
        """The fingerprints of the definitions that are known here."""
        raise UsageError(f"`version` must be a fingerprint here: {OTHER!r} is of a runtime alone")

    async def _ready(self) -> None:
        """Wait until the index of the store says what callers know already."""

    def _info(self, stored: StoredAgent) -> AgentInfo:
        return info_of(stored)

    async def _page_of_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> Sequence[StoredAgent]:
        return await self._store().list_agents(query, after, limit)

    async def _with_status(self, word: str) -> AsyncIterator[StoredAgent]:
        query = AgentQuery(status=word)
        after: AgentKey | None = None
        while found := await self._page_of_agents(query, after, MAX_LIMIT):
            for stored in found:
                yield stored
            after = (0, found[-1].agent_id)

    def tool_of(self, agent: str, request: Request) -> Tool | None:
        """The tool that a request is about, where its definition is known here."""
        return None

    def why_impossible(self, agent: str, request: Request) -> str | None:
        """As `Runtime.why_impossible`."""
        return None


class RuntimeLists(Lists):
    """Lists also the agents that are spawned here, and that no store has yet.

    Args:
        store, call, loop: as of `Lists`.
        directory: the agents of the runtime.

    """

    def __init__(
        self,
        store: Callable[[], StoreReads],
        call: Calls,
        loop: asyncio.AbstractEventLoop,
        *,
        directory: Directory,
    ) -> None:
        super().__init__(store, call, loop)
        self._directory = directory

    def _versions(self) -> tuple[str, ...]:
        return tuple(sorted(self._directory.fingerprints()))

    async def _ready(self) -> None:
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
        found = await super()._page_of_agents(query, after, limit)
        if query.updated_since is not None or query.status not in (None, Status.IDLE.value):
            return found
        if not query.has_version(None):
            return found
        listed = {stored.agent_id for stored in found}
        first = "" if after is None else after[1]
        last = found[-1].agent_id if len(found) == limit else None
        spawned = sorted(
            (slot.id, slot.agent.name)
            for slot in self._directory.slots()
            if slot.agent is not None
            and slot.activation is None
            and query.agent in (None, slot.agent.name)
            and slot.id.startswith(query.prefix)
            and slot.id > first
            and (last is None or slot.id < last)
            and slot.id not in listed
        )
        here: list[StoredAgent] = []
        for agent_id, agent in spawned:
            if len(here) == limit:
                break
            # Without a filter, one that is not listed is not stored either: it is not looked up.
            is_filtered = query.status is not None or query.agent is not None
            if not is_filtered or not await self._is_stored(agent_id):
                here.append(spawned_agent(agent_id, agent))
        return sorted([*found, *here], key=lambda stored: stored.agent_id)[:limit]

    async def _is_stored(self, agent_id: str) -> bool:
        # Its id is the first of those that begin with it.
        found = await super()._page_of_agents(AgentQuery(prefix=agent_id), None, 1)
        return bool(found) and found[0].agent_id == agent_id

    def tool_of(self, agent: str, request: Request) -> Tool | None:
        definition = self._directory.definition_of(agent, request.agent_id)
        if definition is None:
            return None
        for name in request.agent_path[1:]:
            child = definition.children.get(name)
            if child is None:
                return None
            definition = child.definition
        return definition.tool_of(request.tool_name)

    def why_impossible(self, agent: str, request: Request) -> str | None:
        definition = self._directory.definition_of(agent, request.agent_id)
        return None if definition is None else why_impossible(definition, request)


def _agent_key(stored: StoredAgent, query: AgentQuery) -> tuple[int | str, ...]:
    if query.updated_since is None:
        return (stored.agent_id,)
    assert stored.status_at is not None, "listed by when its status changed"
    return time_number(stored.status_at), stored.agent_id


def _status_word(status: object) -> str | None:
    """The status as a store keeps it.

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

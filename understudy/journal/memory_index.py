"""`MemoryIndex`: what agents are and what they ask, for lists in pages, in memory."""

from __future__ import annotations

import itertools
import logging
import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from understudy._base.json_values import text_of
from understudy._base.log_fields import log_extra
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.interrupts import Request
from understudy.journal.asks import Ask, AskChanges, StoredAsk, changes, request_words
from understudy.journal.contracts import IndexStatus, StoredAgent, time_number
from understudy.journal.index_status import index_entry_of
from understudy.journal.lists import (
    AgentKey,
    AgentQuery,
    AskedAt,
    AskGroup,
    AskKey,
    AskOrder,
    AskPlace,
    AskQuery,
    ids_from,
    key_of,
    request_of,
)
from understudy.journal.loaded import Loaded
from understudy.journal.memory_notes import MemoryNotes
from understudy.journal.troubles import Troubles
from understudy.state.records import Requested

logger: logging.Logger = logging.getLogger(__name__)


class MemoryIndex:
    """The rows that a database keeps for its lists, as plain objects. Not thread-safe."""

    def __init__(self) -> None:
        self._agents: dict[str, StoredAgent] = {}
        self._ids: list[str] = []
        """The ids of the agents, sorted. Whoever puts many agents puts them by id: that is
        cheap."""
        self.asks: dict[str, dict[str, StoredAsk]] = {}
        """The open asks by agent id and ask id. An agent that asks nothing is not in it."""
        self._by_no: dict[int, StoredAsk] = {}
        self._orders: dict[AskOrder, list[AskKey]] = {"oldest": [], "expiring": []}
        self._numbers = itertools.count(1)
        self.notes: MemoryNotes = MemoryNotes()
        """What people write beside requests."""
        self.on_asks: Callable[[StoredAgent, AskChanges], None] | None = None
        """Gets each change of what an agent asks; None where nobody is told of it."""

    def get(self, agent_id: str) -> StoredAgent | None:
        """The row of an agent."""
        return self._agents.get(agent_id)

    def put(self, agent: StoredAgent, asks: Sequence[Ask]) -> None:
        """Set the row of an agent, and what it asks."""
        if agent.agent_id not in self._agents:
            insort(self._ids, agent.agent_id)
        self._agents[agent.agent_id] = agent
        if asks or agent.agent_id in self.asks:
            self._put_asks(agent, asks)

    def put_loaded(self, loaded: Loaded) -> None:
        """Set the row of an agent, and what it asks, as its records say.

        Raises:
            StoreDamaged: if they do not fit together.

        """
        entry = index_entry_of(loaded.folded())
        self.put(replace(loaded.agent, agent_status=entry.agent_status), entry.asks)

    def remove(self, agent_id: str) -> None:
        """Remove an agent, if it is there."""
        agent = self._agents.pop(agent_id, None)
        if agent is not None:
            del self._ids[bisect_left(self._ids, agent_id)]
            self._put_asks(agent, ())
        self.notes.forget(agent_id)

    def _put_asks(self, agent: StoredAgent, asks: Sequence[Ask]) -> None:
        rows = self.asks.setdefault(agent.agent_id, {})
        stored = {id: (row.told.reminders, row.told.escalations) for id, row in rows.items()}
        changed = changes(stored, asks)
        if self.on_asks is not None:
            self.on_asks(agent, changed)
        for id in changed.gone:
            row = rows.pop(id)
            del self._by_no[row.no]
            for order, keys in self._orders.items():
                del keys[bisect_left(keys, _key(row, order))]
        for ask in (*changed.new, *changed.told):
            known = rows.get(ask.id)
            row = rows[ask.id] = StoredAsk(
                no=known.no if known is not None else next(self._numbers),
                agent_id=agent.agent_id,
                agent=agent.agent,
                tool=ask.tool,
                asked_at=ask.asked_at,
                expires_at=ask.expires_at,
                told=ask.told,
                kind=ask.kind,
                asked=Requested(request=ask.asked, reply_size=ask.reply_size, votes=ask.votes)
                if isinstance(ask.asked, Request)
                else ask.asked,
            )
            self._by_no[row.no] = row
            if known is None:
                for order, keys in self._orders.items():
                    insort(keys, _key(row, order))
        if not rows:
            del self.asks[agent.agent_id]

    # ------------------------------------------------------------------- reading

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        """Up to `limit` agents behind a key; see `Backend.list_agents`."""
        if query.updated_since is None:
            return list(itertools.islice(self._by_id(query, after), limit))
        first = after or (time_number(query.updated_since), "")
        changed = [
            (time_number(agent.status_at), agent.agent_id)
            for agent in self._by_id(query, None)
            if agent.status_at is not None
        ]
        wanted = sorted(key for key in changed if key > first)[:limit]
        return [self._agents[agent_id] for _, agent_id in wanted]

    def due(self, until: datetime) -> list[StoredAgent]:
        """The agents that are due by a time, by due time and id."""
        rows = self._agents.values()
        due = [(row.due, row.agent_id) for row in rows if row.due is not None and row.due <= until]
        return [self._agents[agent_id] for _, agent_id in sorted(due)]

    def _by_id(self, query: AgentQuery, after: AgentKey | None) -> Iterator[StoredAgent]:
        ids, (first, below) = self._ids, ids_from(query.prefix)
        start = bisect_left(ids, first)
        if after is not None:
            start = max(start, bisect_right(ids, after[1]))
        end = len(ids) if below is None else bisect_left(ids, below)
        for place in range(start, end):
            agent = self._agents[ids[place]]
            if (
                query.status in (None, agent.agent_status)
                and query.agent in (None, agent.agent)
                and query.has_version(agent.run_version)
                and (query.at_rest_until is None or self._rests(agent, query.at_rest_until))
            ):
                yield agent

    def _rests(self, agent: StoredAgent, until: datetime) -> bool:
        """Whether an agent has nothing open, and its status has not changed since then."""
        return (
            agent.index_status is IndexStatus.REST
            and agent.due is None
            and agent.run_version is None
            and agent.agent_id not in self.asks
            and agent.status_at is not None
            and agent.status_at <= until
        )

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        """Up to `limit` asks behind a key; see `Backend.list_asks`."""
        keys, of = self._orders[query.order], query.notes
        wants = None if of is None or of.is_any else self.notes.filter(of)
        start = 0 if after is None else bisect_right(keys, after)
        found = (self._by_no[keys[place][1]] for place in range(start, len(keys)))
        wanted = (
            replace(ask, noted=True) if self.notes.has(ask.agent_id) else ask
            for ask in found
            if ask.kind == query.kind
            and query.agent in (None, ask.agent)
            and query.tool in (None, ask.tool)
            and (query.late_by is None or _is_late(ask, query.late_by))
            and _is_found(query, ask)
            and (wants is None or wants(ask))
        )
        return list(itertools.islice(wanted, limit))

    def count_troubles(self, failed_since: datetime, expires_by: datetime) -> Troubles:
        """How much needs a person; see `Backend.count_troubles`."""
        agents, asks = self._agents.values(), self._by_no.values()
        others = [each for each in agents if each.index_status is not IndexStatus.QUARANTINED]
        ended_at = [each.status_at for each in others if each.agent_status == "failed"]
        return Troubles(
            quarantined=len(agents) - len(others),
            failed=sum(at is not None and at >= failed_since for at in ended_at),
            overdue=sum(ask.kind == "request" and _is_late(ask, expires_by) for ask in asks),
            doubts=sum(ask.kind == "doubt" for ask in asks),
        )

    def find_place(self, query: AskQuery, of: AskedAt) -> AskPlace:
        """The place of a request in a list; see `Backend.find_place`."""
        rows = self.asks.get(of.agent_id, {})
        number = next((a.no for id, a in rows.items() if request_of(id) == of.request_id), 0)
        key, found = (of.time, number), self.list_asks(query, None, sys.maxsize)
        before = [each for each in found if _key(each, query.order) < key]
        behind = (each for each in found if _key(each, query.order) > key)

        def ids(ask: StoredAsk) -> tuple[str, str]:
            return ask.agent_id, ask.request().id

        following = next(behind, None)
        return AskPlace(
            len(before),
            ids(before[-1]) if before else None,
            None if following is None else ids(following),
        )

    def count_asks(self, query: AskQuery, times: Sequence[datetime]) -> list[AskGroup]:
        """How many requests to persons are alike; see `Backend.count_asks`."""
        counts = Counter[tuple[str, str, str, int]]()
        for ask in self.list_asks(query, None, sys.maxsize):
            kind, _ = request_words(ask.requested().request)
            until = ask.expires_at
            time = len(times) if until is None else bisect_left(times, until)
            counts[kind, ask.tool, ask.agent, time] += 1
        return [AskGroup(*group, count) for group, count in counts.items()]

    def ask_of(self, agent_id: str, request_id: str) -> StoredAsk | None:
        """The row of a request while it waits; see `Backend.ask_of`."""
        for row in self.asks.get(agent_id, {}).values():
            if row.kind == "request" and row.request().id == request_id:
                return row
        return None

    def count_agents(self) -> Mapping[str, int]:
        """How many agents have each status; see `Backend.count_agents`."""
        return Counter(agent.agent_status for agent in self._agents.values())


def _is_late(ask: StoredAsk, by: datetime) -> bool:
    """Whether people were told again of an ask, or it expires by a time; see `AskQuery.late_by`."""
    told = bool(ask.told.reminders or ask.told.escalations)
    return told or (ask.expires_at is not None and ask.expires_at <= by)


def _is_found(query: AskQuery, ask: StoredAsk) -> bool:
    if query.request_kind is None and query.until is None and not query.words:
        return True
    if query.until is not None and (ask.expires_at is None or ask.expires_at > query.until):
        return False
    asked = ask.request() if ask.kind == "request" else None
    request_kind, words = request_words(asked)
    if query.request_kind not in (None, request_kind):
        return False
    return query.has_words(words, "" if asked is None else asked.id, ask.agent_id, ask.agent)


@contextmanager
def unreadable_is_logged(id: str) -> Iterator[None]:
    """What makes an agent unreadable is logged: it is listed without what it asks."""
    try:
        yield
    except (SchemaVersionError, StoreDamaged) as error:
        logger.error("agent %r cannot be read: %s", id, text_of(error), extra=log_extra(id))


def _key(ask: StoredAsk, order: AskOrder) -> AskKey:
    key = key_of(ask, order)
    assert key is not None, "no row in memory is damaged"
    return key

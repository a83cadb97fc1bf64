"""`MemoryIndex`: what agents are and what they ask, for lists in pages, in memory."""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from understudy._base.json_values import text_of
from understudy._base.log_fields import log_extra
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.interrupts import Request
from understudy.journal.asks import Ask, StoredAsk, changes
from understudy.journal.contracts import IndexStatus, StoredAgent, time_number
from understudy.journal.index_status import index_entry_of
from understudy.journal.lists import (
    AgentKey,
    AgentQuery,
    AskKey,
    AskOrder,
    AskQuery,
    ids_from,
    key_of,
)
from understudy.journal.loaded import Loaded
from understudy.journal.troubles import Troubles
from understudy.state.records import Requested

logger: logging.Logger = logging.getLogger(__name__)


class MemoryIndex:
    """The rows that a database keeps for its lists, as plain objects. Not thread-safe."""

    def __init__(self) -> None:
        self._agents: dict[str, StoredAgent] = {}
        self._ids: list[str] = []
        """In order, as the keys of asks. Who puts many agents puts them by id: that is cheap."""
        self._asks: dict[str, dict[str, StoredAsk]] = {}
        """By the id of the agent, and that of the ask. An agent that asks nothing is not in it."""
        self._by_no: dict[int, StoredAsk] = {}
        self._orders: dict[AskOrder, list[AskKey]] = {"oldest": [], "expiring": []}
        self._numbers = itertools.count(1)

    def get(self, agent_id: str) -> StoredAgent | None:
        """The row of an agent."""
        return self._agents.get(agent_id)

    def put(self, agent: StoredAgent, asks: Sequence[Ask]) -> None:
        """Set the row of an agent, and what it asks."""
        if agent.agent_id not in self._agents:
            insort(self._ids, agent.agent_id)
        self._agents[agent.agent_id] = agent
        if asks or agent.agent_id in self._asks:
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

    def _put_asks(self, agent: StoredAgent, asks: Sequence[Ask]) -> None:
        rows = self._asks.setdefault(agent.agent_id, {})
        stored = {id: (row.told.reminders, row.told.escalations) for id, row in rows.items()}
        changed = changes(stored, asks)
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
            del self._asks[agent.agent_id]

    # ------------------------------------------------------------------- reading

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        """As `Backend.list_agents`."""
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
        ids, range_ = self._ids, ids_from(query.prefix)
        start = bisect_left(ids, range_.first)
        if after is not None:
            start = max(start, bisect_right(ids, after[1]))
        end = len(ids) if range_.end is None else bisect_left(ids, range_.end)
        for place in range(start, end):
            agent = self._agents[ids[place]]
            if (
                query.status in (None, agent.agent_status)
                and query.agent in (None, agent.agent)
                and query.has_version(agent.run_version)
            ):
                yield agent

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        """As `Backend.list_asks`."""
        keys = self._orders[query.order]
        start = 0 if after is None else bisect_right(keys, after)
        found = (self._by_no[keys[place][1]] for place in range(start, len(keys)))
        wanted = (
            ask
            for ask in found
            if ask.kind == query.kind
            and query.agent in (None, ask.agent)
            and query.tool in (None, ask.tool)
            and (query.late_by is None or _is_late(ask, query.late_by))
        )
        return list(itertools.islice(wanted, limit))

    def count_troubles(self, failed_since: datetime, expires_by: datetime) -> Troubles:
        """As `Backend.count_troubles`."""
        agents, asks = self._agents.values(), self._by_no.values()
        in_quarantine = [each.index_status is IndexStatus.QUARANTINED for each in agents]
        return Troubles(
            quarantined=sum(in_quarantine),
            failed=sum(
                agent.agent_status == "failed"
                and not is_quarantined
                and agent.status_at is not None
                and agent.status_at >= failed_since
                for agent, is_quarantined in zip(agents, in_quarantine, strict=True)
            ),
            overdue=sum(ask.kind == "request" and _is_late(ask, expires_by) for ask in asks),
            doubts=sum(ask.kind == "doubt" for ask in asks),
        )

    def count_agents(self) -> Mapping[str, int]:
        """As `Backend.count_agents`."""
        return Counter(agent.agent_status for agent in self._agents.values())


def _is_late(ask: StoredAsk, by: datetime) -> bool:
    """As of `AskQuery.late_by`."""
    told = bool(ask.told.reminders or ask.told.escalations)
    return told or (ask.expires_at is not None and ask.expires_at <= by)


@contextmanager
def unreadable_is_logged(agent: StoredAgent) -> Iterator[None]:
    """What makes an agent unreadable is logged: it is listed without what it asks."""
    try:
        yield
    except (SchemaVersionError, StoreDamaged) as error:
        id = agent.agent_id
        logger.error("agent %r cannot be read: %s", id, text_of(error), extra=log_extra(id))


def _key(ask: StoredAsk, order: AskOrder) -> AskKey:
    key = key_of(ask, order)
    assert key is not None, "no row in memory is damaged"
    return key

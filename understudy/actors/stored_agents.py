"""What the store alone tells about agents: nothing is activated, and nothing is written."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import datetime

from understudy._base.json_values import text_of
from understudy.actors.activation import folded
from understudy.actors.agent_events import AgentEvent, Status, agent_events_of
from understudy.errors import SchemaVersionError, StoreDamaged, UnknownAgent
from understudy.history import HistoryPage, history_of, page_of
from understudy.interrupts import Request
from understudy.journal import IndexStatus, Loaded, Readable, load_latest
from understudy.journal.contracts import StoredAgent
from understudy.state.agent_state import AgentState
from understudy.state.dues import due_of, notices_of
from understudy.state.records import Snapshot
from understudy.state.run_state import NO_NOTICES, Notices

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """One agent, as `runtime.agents()` lists it."""

    id: str
    agent: str
    """The name of its definition."""
    status: Status
    host: str | None = None
    """The runtime that owns it, where the store is shared; None if it is in no runtime's memory."""
    index_status: IndexStatus = IndexStatus.REST
    """Its status in the store's index: what it waits for, also while it is passive."""
    damage: StoreDamaged | None = None
    """Why its row in the index cannot be read: then nothing else here but the id is sure."""

    @property
    def standing(self) -> IndexStatus:
        """The earlier name of `index_status`."""
        return self.index_status


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request of one of the store's agents that waits for a person."""

    agent_id: str
    request: Request
    reminders: int = 0
    """How many of its reminders have come."""
    escalated_to: tuple[str, ...] = ()
    """Who else was told of it so far."""
    next_due: datetime | None = None
    """When its next reminder, its next escalation or its expiry is due; None if nothing is."""


def info_of(stored: StoredAgent) -> AgentInfo:
    """An agent of the store that is not in memory here."""
    return AgentInfo(
        id=stored.agent_id,
        agent=stored.agent,
        status=Status.PASSIVE,
        host=stored.host,
        index_status=stored.index_status,
        damage=stored.damage,
    )


async def loaded_agent(store: Readable, id: str) -> Loaded:
    """The records of an agent.

    Raises:
        UnknownAgent: if there is no agent of this id.

    """
    loaded = await store.load(id)
    if loaded is None:
        raise UnknownAgent(agent_id=id)
    return loaded


async def stored_state(store: Readable, id: str) -> AgentState:
    """The state of an agent.

    Raises:
        UnknownAgent: if there is no agent of this id.
        StoreDamaged: if its records do not fit together.

    """
    loaded = await load_latest(store, id)
    if loaded is None:
        raise UnknownAgent(agent_id=id)
    return folded(loaded)


async def stored_events(store: Readable, id: str, after: int) -> list[AgentEvent]:
    """The events after a number; none if there is no such agent."""
    loaded = await store.load(id, max(after, 0))
    if loaded is None:
        return []
    path = (loaded.agent.agent,)
    numbered = enumerate(loaded.records, loaded.first_seq)
    is_known = after > 0 and loaded.agent.floor <= after
    if is_known and loaded.records and isinstance(loaded.records[0], Snapshot):
        next(numbered)  # the subscriber has read all that it stands for: no gap
    return [event for seq, record in numbered for event in agent_events_of(seq, record, id, path)]


async def stored_history(store: Readable, id: str, after: int, limit: int) -> HistoryPage:
    """The entries after a number.

    Raises:
        UnknownAgent: if there is no agent of this id.

    """
    loaded = await loaded_agent(store, id)
    entries = history_of(loaded.records, loaded.agent.agent, first_seq=loaded.first_seq)
    return page_of(entries, after, limit)


async def stored_pending(
    store: Readable, *, but: Collection[str] = ()
) -> AsyncIterator[PendingRequest]:
    """The requests that the store's agents wait for, less those of some agents.

    An agent that cannot be read is logged and left out.
    """
    async for stored in store.agents({IndexStatus.WAITS}):
        if stored.damage is not None:
            logger.error("agent %r is left out: %s", stored.agent_id, text_of(stored.damage))
            continue
        if stored.agent_id in but:
            continue
        try:
            loaded = await load_latest(store, stored.agent_id)
            state = folded(loaded) if loaded is not None else None
        except (SchemaVersionError, StoreDamaged) as error:
            logger.error("agent %r is left out: %s", stored.agent_id, text_of(error))
            continue
        for request in pending_of(stored.agent_id, state) if state is not None else ():
            yield request


def pending_of(id: str, state: AgentState) -> list[PendingRequest]:
    """The requests that an agent waits for."""
    if not state.requests:
        return []
    told = notices_of(state)
    return [_pending_request(id, r, told.get(r.id, NO_NOTICES)) for r in state.requests]


def _pending_request(id: str, request: Request, notices: Notices) -> PendingRequest:
    return PendingRequest(
        agent_id=id,
        request=request,
        reminders=notices.reminders,
        escalated_to=tuple(e.audience for e in request.escalations[: notices.escalations]),
        next_due=due_of(request, notices),
    )

"""What the store alone tells about agents: nothing is activated, and nothing is written."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from understudy._base.pieces import each, in_pieces
from understudy._base.points_in_time import time_text
from understudy.actors.agent.events import (
    AgentEvent,
    RecordView,
    Status,
    StoredEvents,
    agent_events_of,
)
from understudy.approvals import Vote, tally
from understudy.errors import StoreDamaged, UnknownAgent
from understudy.interrupts import Decision, Request, approved_at
from understudy.journal import (
    IndexStatus,
    Loaded,
    StoreReads,
)
from understudy.journal.asks import StoredAsk
from understudy.journal.contracts import AGENT_STATUS, StoredAgent
from understudy.journal.loaded import size_of
from understudy.journal.parts import PART
from understudy.state.agent_state import AgentState
from understudy.state.next_due import due_of
from understudy.state.records import Record, Requested, Snapshot
from understudy.state.request_notes import NO_NOTES, RequestNotes
from understudy.tools import Tool

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """One agent, as `runtime.agents()` lists it."""

    id: str
    """The id of the agent."""
    agent: str
    """The name of the agent's definition."""
    status: Status
    """The status of the agent that was recorded last, in memory or not. Never `PASSIVE`."""
    status_at: datetime | None = None
    """The time of the last change of the status; None if it is not known."""
    is_active: bool = False
    """Whether the agent is in the memory of this runtime."""
    host: str | None = None
    """The name of the runtime that owns the agent, if hosts share the store.

    None if the agent is in no runtime's memory.
    """
    index_status: IndexStatus = IndexStatus.REST
    """The status in the index of the store: what the agent waits for, also while it is passive."""
    version: str | None = None
    """The fingerprint of the definition that began the open run; None without an open run."""
    due: datetime | None = None
    """The time at which the agent has something to record by itself; None if nothing is due."""
    damage: StoreDamaged | None = None
    """The error that makes the agent's row in the index unreadable; None if it can be read.

    If the row cannot be read, only the id in this object is certain.
    """
    last_seq: int = 0
    """The number of the last record. `ref.events(after=...)` continues after it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the agent as JSON."""
        return {
            "id": self.id,
            "agent": self.agent,
            "status": self.status.value,
            "status_at": time_text(self.status_at),
            "is_active": self.is_active,
            "host": self.host,
            "waits_for": self.index_status.value,
            "due": time_text(self.due),
            "version": self.version,
            "damage": None if self.damage is None else str(self.damage),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request that waits for a person, with what the store knows about it."""

    agent_id: str
    """The id of the agent."""
    agent: str
    """The name of the agent's definition."""
    request: Request
    """The request itself."""
    tool_description: str | None = None
    """The description of the tool for the model; None if the definition is not known here."""
    tool_parameters: dict[str, Any] | None = None
    """The JSON schema of the tool's arguments; None if the definition is not known here."""
    reminders: int = 0
    """The number of reminders so far."""
    escalated_to: tuple[str, ...] = ()
    """The other people who were told of the request so far."""
    next_due: datetime | None = None
    """The time of the next reminder, the next escalation or the expiry; None if nothing is due.

    If enough persons have agreed, it is the time at which the request is approved.
    """
    reply_size: int = 1
    """The number of requests, answered or not, that the model's reply had at the time of this
    request.

    Requests of calls that had already run do not count.
    """

    votes: tuple[Vote, ...] = ()
    """The votes on the request so far, if it asks several persons."""
    notes: RequestNotes = NO_NOTES
    """The notes beside the request, without the texts of comments."""

    @property
    def missing(self) -> str:
        """The votes that are missing, in words, such as "1 more of finance"; empty without an
        `approval`.
        """
        asked = self.request.approval
        return "" if asked is None else tally(asked, self.votes).text

    @property
    def approved_at(self) -> datetime | None:
        """The time at which the request is approved, if enough persons have agreed; else None."""
        return approved_at(self.request, self.votes)

    def decide(self, decision: Decision | Mapping[str, Any]) -> dict[str, Decision]:
        """Return the decision on the request, in the form that `resume` and `decide` of a ref take.

        Raises:
            DecisionError: if the decision does not fit the request.

        """
        return self.request.decide(decision)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the request, with its agent and the missing votes."""
        from understudy._base import notebook_html as h

        parts = [h.Html(self.request._repr_html_())]
        parts.append(h.quiet(f"missing: {self.missing}" if self.missing else ""))
        return h.card(self.agent_id, self.agent, parts, colour=h.WAITS)

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON, with what the store knows about it."""
        return {
            **self.request.to_dict(),
            # That of the request is of the agent inside, which nobody can be asked for.
            "agent_id": self.agent_id,
            "agent": self.agent,
            "tool_description": self.tool_description,
            "tool_parameters": self.tool_parameters,
            "reminders": self.reminders,
            "escalated_to": list(self.escalated_to),
            "next_due": time_text(self.next_due),
            "reply_size": self.reply_size,
            "votes": [each.to_dict() for each in self.votes],
            "missing": self.missing,
            "rule": self.request.rule,
            "budget": self.request.budget,
            "approved_at": time_text(self.approved_at),
            "terms": [] if self.request.approval is None else list(self.request.approval.terms),
            "must_agree": "" if self.request.approval is None else self.request.approval.text,
            "notes": self.notes.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGroup:
    """A count of open requests that are alike."""

    kind: str
    """The kind of the requests, as in `Request.kind`."""
    tool: str
    """The name of the tool; empty if the requests are about no tool."""
    agent: str
    """The name of the definition of the agents that ask."""
    within: float | None
    """The number of seconds within which the requests expire; None if later or never.

    It is the smallest that fits of 1,800, 3,600 and 14,400, and of the value that was asked for.
    """
    count: int
    """The number of requests."""


@dataclass(frozen=True, slots=True)
class PendingCounts:
    """The number of requests that wait for persons."""

    groups: tuple[PendingGroup, ...]
    """The counts of like requests."""

    def total(
        self,
        *,
        kind: str | None = None,
        tool: str | None = None,
        agent: str | None = None,
        within: float | None = None,
    ) -> int:
        """Return the number of waiting requests that fit the filters. They are the filters of
        `pending`.
        """
        return sum(each.count for each in self._found(kind, tool, agent, within))

    def by(self, name: Literal["kind", "tool", "agent"], **others: Any) -> dict[str, int]:
        """Return the number of waiting requests by kind, tool or definition, the highest first.

        Args:
            name: what to count by.
            others: the filters of `total`; the filter of this name does not count.

        """
        counts = Counter[str]()
        given = {"kind": None, "tool": None, "agent": None, "within": None, **others, name: None}
        for group in self._found(**given):
            counts[getattr(group, name)] += group.count
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def _found(
        self, kind: str | None, tool: str | None, agent: str | None, within: float | None
    ) -> Iterator[PendingGroup]:
        for group in self.groups:
            if (
                kind in (None, group.kind)
                and tool in (None, group.tool)
                and agent in (None, group.agent)
                and (within is None or (group.within is not None and group.within <= within))
            ):
                yield group

    def to_dict(self) -> dict[str, Any]:
        """Return the total and the groups as JSON."""
        return {"total": self.total(), "groups": [asdict(each) for each in self.groups]}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPlace:
    """The place of a request among the requests that wait."""

    before: int
    """The number of requests before the request."""
    previous: tuple[str, str] | None
    """The ids of the agent and of the request right before the request; None if it is the first."""
    next: tuple[str, str] | None
    """The ids of the agent and of the request right after the request; None if it is the last."""


def info_of(stored: StoredAgent, *, is_active: bool = False) -> AgentInfo:
    """The `AgentInfo` of an agent's row in the store."""
    return AgentInfo(
        id=stored.agent_id,
        agent=stored.agent,
        status=_STATUSES.get(stored.agent_status, Status(AGENT_STATUS[stored.index_status])),
        status_at=stored.status_at,
        is_active=is_active,
        host=stored.host,
        index_status=stored.index_status,
        version=stored.run_version,
        due=stored.due,
        damage=stored.damage,
        last_seq=stored.last_seq,
    )


def spawned_agent(agent_id: str, agent: str) -> StoredAgent:
    """The row of an agent that no store has yet."""
    return StoredAgent(
        agent_id=agent_id,
        agent=agent,
        incarnation=1,
        epoch=0,
        last_seq=0,
        floor=0,
        index_status=IndexStatus.REST,
        host=None,
    )


async def unknown_agent(store: StoreReads, id: str) -> UnknownAgent:
    """The error where there is no agent of this id; it says when one was deleted, and by whom."""
    found = await store.deletion(id)
    if found is None:
        return UnknownAgent(agent_id=id)
    return UnknownAgent(agent_id=id, deleted_at=time_text(found.at), deleted_by=found.by)


async def stored_state(store: StoreReads, id: str) -> AgentState:
    """The state of an agent, read from the store.

    Raises:
        UnknownAgent: if there is no agent of this id.
        StoreDamaged: if its records do not fit together.

    """
    loaded = await store.load_latest(id)
    if loaded is None:
        raise await unknown_agent(store, id)
    return await in_pieces(loaded.folding())


async def stored_events(
    store: StoreReads, id: str, after: int, view: RecordView = agent_events_of
) -> StoredEvents:
    """The first events after a number, in this view; none if there is no such agent.

    Not all of them where there are many: see `StoredEvents.more`.
    """
    loaded = await store.load_part(id, max(after, 0), PART)
    return StoredEvents([], 0) if loaded is None else await events_in(loaded, after, view)


async def events_in(loaded: Loaded, after: int, view: RecordView = agent_events_of) -> StoredEvents:
    """The events of records that were loaded after a number, in this view."""
    is_known = after > 0 and loaded.agent.floor <= after
    # The subscriber has read all that a snapshot stands for: no gap.
    skips = is_known and loaded.records and isinstance(loaded.records[0], Snapshot)
    agent, events = loaded.agent, list[AgentEvent]()

    def add(numbered: tuple[int, Record]) -> None:
        seq, record = numbered
        if not skips or seq != loaded.first_seq:
            events.extend(view(seq, record, agent.agent_id, (agent.agent,)))

    records = enumerate(loaded.records, loaded.first_seq)
    await in_pieces(each(records, add, size=lambda numbered: size_of(numbered[1])))
    last = max(after, loaded.first_seq + len(loaded.records) - 1)
    more = bool(loaded.records) and last < agent.last_seq
    return StoredEvents(events, last if more else agent.last_seq, agent.incarnation, more)


def pending_request(ask: StoredAsk, asked: Requested, tool: Tool | None) -> PendingRequest:
    """The `PendingRequest` of an ask, about this tool."""
    request = asked.request
    return PendingRequest(
        agent_id=ask.agent_id,
        agent=ask.agent,
        request=request,
        tool_description=None if tool is None else tool.description,
        tool_parameters=None if tool is None else deepcopy(tool.parameters),
        reminders=ask.told.reminders,
        escalated_to=tuple(e.audience for e in request.escalations[: ask.told.escalations]),
        next_due=due_of(request, ask.told, asked.votes),
        reply_size=asked.reply_size,
        votes=asked.votes,
    )


_STATUSES = {status.value: status for status in Status if status is not Status.PASSIVE}


async def latest_state(store: StoreReads, agent_id: str) -> AgentState | None:
    """The state that the store has of an agent."""
    loaded = await store.load_latest(agent_id)
    return None if loaded is None else await in_pieces(loaded.folding())

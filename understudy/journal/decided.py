"""`DecidedRequest`: what was decided on requests, as the index of a store keeps it for an audit.

A row is written in the transaction of the record of its decision. It stays when the agent is
compacted. When the agent is deleted, who decided what, when and about which tool stays, and what
was shown and written goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import TypeAdapter

from understudy._base.authors import Login
from understudy._base.json_values import jsonable, shown, storable_text
from understudy._base.points_in_time import time_text
from understudy.approvals import Vote
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.interrupts import Decision, DecisionRecord, DecisionType, Request
from understudy.journal.codec import json_of
from understudy.journal.contracts import Owned, from_row, time_number
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.record_format import FORMAT_VERSION

DecidedBy = Literal["person", "votes", "grant", "expiry", "executor"]
"""What a decision comes from: one person; the votes of several; a grant that a person gave before;
the end of the time for an answer; or the program that executes a call, and says that it failed."""

MAY_DECIDE: frozenset[type[r.Record]] = frozenset({r.Decided, r.InterruptsChecked, r.ChildRecord})
"""The kinds of records of which some hold decisions."""

DecidedKey: TypeAlias = tuple[int, int]
"""The place of a decision in a list: its time, in microseconds since 1970, and its number."""


class DecidedQuery(NamedTuple):
    """Which decisions are listed."""

    person: str | None = None
    """The id or login of somebody who decided, voted, or gave the grant."""
    tool: str | None = None
    agent: str | None = None
    """The name of the definition of the agent that asked."""
    agent_id: str | None = None
    type: str | None = None
    """The type of the decisions: a `DecisionType`."""
    origin: str | None = None
    """The origin of the decisions: a `DecidedBy`."""
    since: datetime | None = None
    until: datetime | None = None
    """The time before which the decisions were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedRequest:
    """A decision from `runtime.decided()`, with its request."""

    no: int
    """The number of the decision among all decisions of the store."""
    agent_id: str
    """The id of the agent."""
    agent: str
    """The name of the agent's definition."""
    incarnation: int
    """The incarnation of the agent. An agent that is deleted and made again has another number."""
    request_id: str
    """The id of the request."""
    kind: str
    """The kind of the request."""
    tool_name: str
    """The name of the tool; empty if a middleware asked about no tool."""
    type: DecisionType
    """The type of the decision."""
    origin: DecidedBy
    """The source of the decision."""
    by: str | None
    """The person who decided, or who gave the grant: the name of the decision's `by`; by votes the
    ids of the persons, whose names are in `votes`. None if nobody was named."""
    login: Login | None
    """The login of the person who decided; None if only the name is known."""
    asked_at: datetime
    """The time of the request."""
    at: datetime
    """The time of the decision."""
    request: Request | None
    """The request as it was shown, without context and salt; None if the agent was deleted."""
    decision: Decision | None
    """The decision; None if the agent was deleted."""
    votes: tuple[Vote, ...] = ()
    """All votes on the request, or by which its grant was given.

    Empty if nobody voted, or the agent was deleted.
    """

    @property
    def waited(self) -> float:
        """The number of seconds between the request and the decision."""
        return (self.at - self.asked_at).total_seconds()

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as JSON."""
        request, login = self.request, self.login
        return {
            "no": self.no,
            "agent_id": self.agent_id,
            "agent": self.agent,
            "incarnation": self.incarnation,
            "agent_path": [self.agent] if request is None else list(request.agent_path),
            "request_id": self.request_id,
            "kind": self.kind,
            "tool_name": self.tool_name,
            "type": self.type,
            "origin": self.origin,
            "by": self.by,
            "login": None if login is None else jsonable(login),
            "asked_at": time_text(self.asked_at),
            "at": time_text(self.at),
            "waited": self.waited,
            "request": None if request is None else request.to_dict(),
            "decision": None if self.decision is None else self.decision.to_dict(),
            "votes": [vote.to_dict() for vote in self.votes],
        }

    def without_content(self) -> DecidedRequest:
        """Return what remains of the decision when its agent is deleted."""
        return replace(self, request=None, decision=None, votes=())


# ------------------------------------------------------------------------ what is added


def decided_in(
    record: r.Record, appended: Sequence[r.Record], state: AgentState
) -> tuple[DecisionRecord, ...]:
    """The decisions of a record, each with its request.

    Args:
        record: that is appended.
        appended: the records that are appended with it, itself among them.
        state: of the agent, before these.

    """
    inner = r.innermost(record)
    decided: Sequence[r.Decided] = ()
    if isinstance(inner, r.Decided):
        decided = (inner,)
    elif isinstance(inner, r.InterruptsChecked):
        decided = inner.decided
    found = []
    for each in decided:
        asked = _asked(each.request_id, appended, state)
        if asked is None:  # the fold refuses the record
            continue
        request, votes = asked
        voted = (inner for inner in map(r.innermost, appended) if isinstance(inner, r.Voted))
        votes += tuple(vote.vote for vote in voted if vote.request_id == each.request_id)
        grant = state.grants.get(each.decision.by_grant or "")
        votes = votes or (() if grant is None else grant.votes)
        found.append(
            DecisionRecord(
                request=replace(request, context={}, salt=""),
                decision=each.decision,
                at=each.at,
                votes=votes,
                login=each.login,
            )
        )
    return tuple(found)


def _asked(
    id: str, appended: Sequence[r.Record], state: AgentState
) -> tuple[Request, tuple[Vote, ...]] | None:
    """The request with this id, with the votes on it so far; None if there is none."""
    for inner in map(r.innermost, appended):
        requests: Sequence[Request] = ()
        if isinstance(inner, r.Requested):
            requests = (inner.request,)
        elif isinstance(inner, r.InterruptsChecked):
            requests = inner.requests
        for request in requests:
            if request.id == id:
                return request, ()
    for each in state.tree:
        run = each.run
        if run is None:
            continue
        if run.halt is not None and run.halt.id == id:
            return run.halt, ()
        for call in run.calls:
            if id in call.requests:
                return call.requests[id], tuple(call.votes.get(id, ()))
    return None


def origin_of(record: DecisionRecord) -> DecidedBy:
    """What a decision comes from."""
    if record.decision.origin != "person":
        return record.decision.origin
    if record.decision.by_grant is not None:
        return "grant"
    return "votes" if record.votes else "person"


def persons_of(record: DecisionRecord) -> tuple[str, ...]:
    """The ids and logins of the deciders: a person's decisions are listed by them.

    These are who voted, and who gave the grant.
    """
    votes = record.votes
    names = [name for vote in votes for name in (vote.person, vote.login)]
    if not votes and record.decision.by is not None:
        names.append(record.decision.by)
    if record.login is not None:
        names.append(record.login.name)
    return tuple(dict.fromkeys(_column(name) for name in names if name))


def by_of(record: DecisionRecord) -> str | None:
    """The deciders: the ids of the persons whose votes say the same, else the name in `by`."""
    decision = record.decision
    said = {vote.person: vote for vote in record.votes}
    ids = [person for person, vote in said.items() if vote.type == decision.type]
    return ", ".join(ids) if ids else decision.by


def decided_request(owned: Owned, no: int, record: DecisionRecord) -> DecidedRequest:
    """The decision on a request of an agent, as it is listed."""
    request, decision = record.request, record.decision
    return DecidedRequest(
        no=no,
        agent_id=owned.agent_id,
        agent=owned.agent,
        incarnation=owned.incarnation,
        request_id=request.id,
        kind=request.kind,
        tool_name=request.tool_name,
        type=decision.type,
        origin=origin_of(record),
        by=by_of(record),
        login=record.login,
        asked_at=request.created_at,
        at=record.at,
        request=request,
        decision=decision,
        votes=record.votes,
    )


# ---------------------------------------------------------------------- as a row

ADD_DECIDED = """
INSERT INTO decided (agent, definition, incarnation, request, kind, tool, type, origin, decided_by,
    login, asked_at, at, version, payload)
SELECT a.key, a.definition, %s::int8, %s::text, %s::text, %s::text, %s::text, %s::text, %s::text,
    %s::bytea, %s::int8, %s::int8, %s::int4, %s::bytea
FROM agents a WHERE a.key = %s"""
ADD_DECIDER = """
INSERT INTO deciders (person, at, no)
SELECT %s::text, at, no FROM decided WHERE agent = %s AND at = %s ORDER BY no DESC LIMIT 1"""
"""Who decided what was added last of an agent."""
EMPTY_DECIDED = "UPDATE decided SET payload = %s WHERE {of}"
"""What is left of the decisions of an agent that is deleted."""

_COLUMNS = """d.no, a.agent_id, d.definition, d.incarnation, d.request, d.kind, d.tool, d.type,
    d.origin, d.decided_by, d.login, d.asked_at, d.at, d.version, d.payload"""


def decided_columns(key: int, incarnation: int, record: DecisionRecord) -> tuple[Any, ...]:
    """The values of `ADD_DECIDED`, for the agent with this key of its row."""
    request, decision, by = record.request, record.decision, by_of(record)
    login = b"" if record.login is None else _login().dump_json(record.login)
    return (
        *(incarnation, request.id, _column(request.kind), _column(request.tool_name)),
        *(decision.type, origin_of(record)),
        *(None if by is None else _column(by), login),
        *(time_number(request.created_at), time_number(record.at)),
        *(FORMAT_VERSION, json_of(record), key),
    )


def decided_query(
    query: DecidedQuery, after: DecidedKey | None, limit: int
) -> tuple[str, list[Any]]:
    """The statement for a page of decisions, the newest first, and its values."""
    where, values, tables, place = _where(query)
    if after is not None:
        where.append(f"({place}.at, {place}.no) < (%s, %s)")
        values += after
    found = f"SELECT {_COLUMNS} FROM {tables} WHERE {' AND '.join(where)}"  # noqa: S608 - constants
    return f"{found} ORDER BY {place}.at DESC, {place}.no DESC LIMIT %s", [*values, limit]


def count_query(query: DecidedQuery) -> tuple[str, list[Any]]:
    """The statement that counts the decisions, and its values."""
    where, values, tables, _ = _where(query)
    return f"SELECT count(*) FROM {tables} WHERE {' AND '.join(where)}", values  # noqa: S608


def _where(query: DecidedQuery) -> tuple[list[str], list[Any], str, str]:
    """Conditions, values, tables, and the table along whose times a page goes."""
    # SQLite takes the tables of a CROSS JOIN in this order.
    tables, place, where = "decided d CROSS JOIN agents a", "d", ["a.key = d.agent"]
    values: list[Any] = []
    if query.person is not None:
        tables, place = f"deciders p CROSS JOIN {tables}", "p"
        where += ["d.no = p.no", "p.person = %s"]
        values.append(query.person)
    for column, value in (
        ("d.tool", query.tool),
        ("d.definition", query.agent),
        ("d.type", query.type),
        ("d.origin", query.origin),
    ):
        if value is not None:
            where.append(f"{column} = %s")
            values.append(value)
    if query.agent_id is not None:  # the index is by the agent's row
        where.append("d.agent = (SELECT key FROM agents WHERE agent_id = %s)")
        values.append(query.agent_id)
    for sign, time in ((">=", query.since), ("<", query.until)):
        if time is not None:
            where.append(f"{place}.at {sign} %s")
            values.append(time_number(time))
    return where, values, tables, place


@dataclass(frozen=True, slots=True)
class StoredDecided:
    """A decision as a store lists it."""

    key: DecidedKey | None
    """The key behind which the next page begins; None where a damaged row has none."""
    _kept: DecidedRequest | tuple[Any, ...]

    def decided(self) -> DecidedRequest:
        """The decision.

        Raises:
            SchemaVersionError: if a newer version of this library wrote it.
            StoreDamaged: if it cannot be read.

        """
        return self._kept if isinstance(self._kept, DecidedRequest) else _read(self._kept)


def listed_decided(row: tuple[Any, ...]) -> StoredDecided:
    """The decision of a database's row."""
    no, at = row[0], row[12]
    is_sure = isinstance(no, int) and isinstance(at, int)
    return StoredDecided((at, no) if is_sure else None, row)


def _read(row: tuple[Any, ...]) -> DecidedRequest:
    *columns, version, payload = row
    what, login = f"a decision about agent {shown(row[1])}", row[10]
    if not isinstance(version, int):
        raise StoreDamaged(what=what, cause=f"its row is {shown(row[:-1])}")
    if version > FORMAT_VERSION:
        raise SchemaVersionError(version=version, known=FORMAT_VERSION, what="a decision")
    try:
        known = _login().validate_json(login) if login else None
        record = _record().validate_json(payload) if payload else None
    except (TypeError, ValueError) as error:
        raise StoreDamaged(what=what, cause=str(error)) from error
    shown_then: dict[str, Any] = {"request": None, "decision": None}
    if record is not None:
        shown_then = {name: getattr(record, name) for name in ("request", "decision", "votes")}
    return from_row(DecidedRequest, columns, what, login=known, **shown_then)


def _column(text: str) -> str:
    """A text as each database can keep it."""
    return storable_text(text).replace("\0", "\ufffd")


@cache
def _record() -> TypeAdapter[DecisionRecord]:
    return TypeAdapter(DecisionRecord)


@cache
def _login() -> TypeAdapter[Login]:
    return TypeAdapter(Login)

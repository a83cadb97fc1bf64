"""What a store lists, page by page: its agents, and what they ask.

A page begins behind the key of the last item of the page before. So it costs the same wherever it
begins, and nothing that changes between two pages moves what follows.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from understudy._base.json_values import shown
from understudy.errors import StoreDamaged
from understudy.journal.asks import AskKind, StoredAsk
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import NO_TIME, time_number, time_of
from understudy.journal.notes import NotesQuery
from understudy.journal.notes_sql import notes_where
from understudy.journal.retirement import AT_REST
from understudy.state.run_state import Notices

AskOrder = Literal["oldest", "expiring"]
NEVER = (1 << 63) - 1
"""The time of expiry, as a database keeps it, of what does not expire: it comes last."""
_EARLIEST = datetime.min.replace(tzinfo=timezone.utc)


class AgentQuery(NamedTuple):
    """Which agents are listed: by id; where `updated_since` is given, by that time and id."""

    status: str | None = None
    """The status of the agents: a value of `Status`."""
    agent: str | None = None
    """The name of the definition of the agents."""
    prefix: str = ""
    """The text that the ids of the agents begin with."""
    updated_since: datetime | None = None
    """The time since which the status of the agents has changed. An agent whose time is not known
    is left out."""
    version: str | None = None
    """The fingerprint of the definition that has begun the open run of an agent."""
    not_versions: tuple[str, ...] | None = None
    """The definitions that must not have begun the open run of an agent."""
    at_rest_until: datetime | None = None
    """The time since which the status of the agents has not changed. Agents with something open are
    left out."""

    def has_version(self, version: str | None) -> bool:
        """Whether an open run of this version (None: none is open) is meant."""
        if self.version is None and self.not_versions is None:
            return True
        if version is None or version in (self.not_versions or ()):
            return False
        return self.version in (None, version)


class AskQuery(NamedTuple):
    """Which asks are listed, and in which order."""

    tool: str | None = None
    agent: str | None = None
    """The name of the definition of the agent that asks."""
    order: AskOrder = "oldest"
    kind: AskKind = "request"
    late_by: datetime | None = None
    """Only asks that expire by this time are listed, or of which people were told again; None:
    all."""
    notes: NotesQuery | None = None
    """The condition on what is written beside the asks; None: any notes."""
    request_kind: str | None = None
    """The kind of the requests to persons, such as `approval`; None: any kind."""
    until: datetime | None = None
    """Only asks that expire by this time are listed; None: all."""
    words: tuple[str, ...] = ()
    """Folded texts: each must be in the words of the ask, in the id of its agent, or in the name of
    the agent's definition; or be the id of the request."""

    def has_words(self, words: str, id: str, agent_id: str, agent: str) -> bool:
        """Whether an ask with these words is meant."""
        where = (words, agent_id.casefold(), agent.casefold())
        return all(word == id or any(word in text for text in where) for word in self.words)


class AskGroup(NamedTuple):
    """How many open requests are alike."""

    request_kind: str
    tool: str
    agent: str
    """The name of the definition of the agents that ask."""
    time: int
    """The number of the first of the given times before which the requests expire; if they expire
    before none, how many times were given."""
    size: int


class AskedAt(NamedTuple):
    """A request, whether it still waits or not, as a place in a list."""

    agent_id: str
    request_id: str
    time: int
    """The time at which the request was asked, or expires, as in `AskKey`."""


class AskPlace(NamedTuple):
    """What is around a request in a list."""

    before: int
    """How many requests come before it."""
    previous: tuple[str, str] | None
    """The ids of the agent and of the request right before it."""
    next: tuple[str, str] | None


AgentKey: TypeAlias = tuple[int, str]
"""The key of an agent in a list: when its status changed, in microseconds since 1970 (0 where the
time does not count), and its id."""
AskKey: TypeAlias = tuple[int, int]
"""The key of an ask in a list: when it was asked, or expires, in microseconds since 1970; and its
number."""


def ids_from(prefix: str) -> tuple[str, str | None]:
    """The first id with this prefix, and the end behind all of them; None: there is none.

    Ids are compared by code points, in every store.
    """
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < 0x10FFFF:
            following = 0xE000 if last == 0xD7FF else last + 1  # no text holds half a character
            return prefix, prefix[: length - 1] + chr(following)
    return prefix, None


def agents_where(query: AgentQuery, after: AgentKey | None, limit: int) -> tuple[str, list[Any]]:
    """The condition, the order and the limit of a page of the agents `a` in SQL, and their values.

    Args:
        query: which agents.
        after: the key of the last agent of the page before; None for the first page.
        limit: how many at most.

    """
    first, end = ids_from(query.prefix)
    where, values = ["a.agent_id >= %s"], list[Any]([first])
    for column, sign, value in (
        ("agent_id", "<", end),
        ("status", "=", query.status),
        ("definition", "=", query.agent),
        ("run_version", "=", query.version),
    ):
        if value is not None:
            where.append(f"a.{column} {sign} %s")
            values.append(value)
    if query.version is not None or query.not_versions is not None:
        where.append("a.run_version IS NOT NULL")
    if query.not_versions:
        where.append(f"a.run_version NOT IN ({', '.join(['%s'] * len(query.not_versions))})")
        values += query.not_versions
    if query.at_rest_until is not None:
        where.append(f"a.status_at <= %s AND {AT_REST}")
        values.append(time_number(query.at_rest_until))
    order = "a.agent_id"
    if query.updated_since is not None:
        order = f"a.status_at, {order}"
        where.append(f"a.status_at IS NOT NULL AND ({order}) > (%s, %s)")
        values += after or (time_number(query.updated_since), "")
    elif after is not None:
        where.append(f"{order} > %s")
        values.append(after[1])
    return f"{' AND '.join(where)} ORDER BY {order} LIMIT %s", [*values, limit]


def asks_where(query: AskQuery, after: AskKey | None, limit: int) -> tuple[str, list[Any]]:
    """As `agents_where`, of a page of the asks `k` of the agents `a`."""
    where, values = asks_found_by(query)
    order = "k.asked_at, k.no" if query.order == "oldest" else "k.expires_at, k.no"
    values += [*(after or (NO_TIME, 0)), limit]
    return f"{where} AND ({order}) > (%s, %s) ORDER BY {order} LIMIT %s", values


def place_where(query: AskQuery, of: AskedAt) -> tuple[str, str, str, list[Any]]:
    """What is before and behind a request in a list, in SQL.

    Returns:
        The condition of what comes before it, the order from there back; the condition of what
        comes behind it, with the order; and the values, which are those of both.

    """
    where, values = asks_found_by(query)
    time = "asked_at" if query.order == "oldest" else "expires_at"
    # What waits no more came before all that was asked in the same microsecond.
    number = (
        "coalesce((SELECT n.no FROM asks n JOIN agents o ON o.key = n.agent WHERE o.agent_id = %s"  # noqa: S608 - of constants
        f" AND n.kind = 'request' AND {_IS_REQUEST.format('n')}), 0)"
    )
    place = f"(%s, {number})"
    values += [of.time, of.agent_id, *_request_values(of.request_id)]
    order = f"k.{time}{{0}}, k.no{{0}}"
    key = f"(k.{time}, k.no)"
    return (
        f"{where} AND {key} < {place}",
        order.format(" DESC"),
        (f"{where} AND {key} > {place} ORDER BY {order.format('')}"),
        values,
    )


def request_of(ask_id: str) -> str:
    """The id of the request of an ask: an ask of a request with votes has their number behind."""
    return ask_id.partition("/")[0]


def asks_found_by(query: AskQuery) -> tuple[str, list[Any]]:
    """The condition that the asks `k` of the agents `a` are meant in SQL, and its values."""
    where, values = ["k.kind = %s"], list[Any]([query.kind])
    for column, sign, value in (
        ("tool", "=", query.tool),
        ("definition", "=", query.agent),
        ("request_kind", "=", query.request_kind),
        ("expires_at", "<=", None if query.until is None else time_number(query.until)),
    ):
        if value is not None:
            where.append(f"k.{column} {sign} %s")
            values.append(value)
    for word in query.words:
        like = "%" + re.sub(r"([\\%_])", r"\\\1", word) + "%"
        texts = ("k.words", "lower(a.agent_id)", "lower(k.definition)")
        found = " OR ".join(f"{text} LIKE %s ESCAPE {_ESCAPE}" for text in texts)
        where.append(f"({found} OR {_IS_REQUEST.format('k')})")
        values += [like] * len(texts) + _request_values(word)
    if query.late_by is not None:
        where.append("(k.reminders > 0 OR k.escalations > 0 OR k.expires_at <= %s)")
        values.append(time_number(query.late_by))
    for condition, more in notes_where(query.notes):
        where.append(condition)
        values += more
    return " AND ".join(where), values


# An ask of a request with votes has their number behind the id.
_IS_REQUEST = "({0}.id = %s OR ({0}.id > %s AND {0}.id < %s))"


def _request_values(id: str) -> list[Any]:
    return [id, f"{id}/", f"{id}0"]


_ESCAPE = r"'\'"


def listed_ask(row: tuple[Any, ...]) -> StoredAsk:
    """The ask of a database's row. One that cannot be what a store has written has its `damage`."""
    no, agent_id, agent, kind, tool, asked, expires, *told, version, payload, noted = row
    reminders, escalations = told
    asked_at, expires_at = time_of(asked), None if expires == NEVER else time_of(expires)
    texts, numbers = (agent_id, agent, tool), (no, reminders, escalations, version)
    damage: StoreDamaged | None = None
    if (
        asked_at is None
        or (expires_at is None and expires != NEVER)
        or kind not in get_args(AskKind)
        or not isinstance(payload, (bytes, str))
        or not all(isinstance(text, str) for text in texts)
        or not all(isinstance(number, int) for number in numbers)
    ):
        cause = f"its row is {row[:7]!r}"
        damage = StoreDamaged(what=f"what agent {shown(agent_id)} asks", cause=cause)
        asked_at, reminders, escalations = asked_at or _EARLIEST, 0, 0
    return StoredAsk(
        no=no,
        agent_id=agent_id,
        agent=agent,
        kind=kind,
        tool=tool,
        asked_at=asked_at,
        expires_at=expires_at,
        told=Notices(reminders=reminders, escalations=escalations),
        asked=EncodedRecord("requested" if kind == "request" else kind, version, payload),
        damage=damage,
        times=None if damage is None else (asked, expires),
        noted=bool(noted),
    )


def key_of(ask: StoredAsk, order: AskOrder) -> AskKey | None:
    """The key behind which the next page begins; None where a damaged row has none.

    What is no number, or comes after all times, is sorted behind all that can be read.
    """
    if ask.times is not None:
        time = ask.times[order == "expiring"]
        return (time, ask.no) if isinstance(time, int) and isinstance(ask.no, int) else None
    at = ask.asked_at if order == "oldest" else ask.expires_at
    return (NEVER if at is None else time_number(at)), ask.no

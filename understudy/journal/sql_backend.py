"""`SqlBackend`: what databases that speak SQL do by the same statements.

A statement is written as PostgreSQL takes it; `sqlite_query` is what SQLite takes.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic_core import from_json, to_json

from understudy.errors import Fenced, StoreConflict, StoreDamaged
from understudy.journal.asks import Ask, StoredAsk, changes, request_words
from understudy.journal.backend import Backend
from understudy.journal.checkpoints import Checkpoint, Segment
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import (
    NO_TIME,
    Batch,
    Deletion,
    IndexStatus,
    Owned,
    Refusal,
    StoredAgent,
    StoredRecords,
    listed_agent,
    stored_agent,
    time_number,
    time_of,
)
from understudy.journal.decided import (
    ADD_DECIDED,
    ADD_DECIDER,
    EMPTY_DECIDED,
    DecidedKey,
    DecidedQuery,
    StoredDecided,
    count_query,
    decided_columns,
    decided_query,
    listed_decided,
    persons_of,
)
from understudy.journal.feed import DELETED, FeedKey, FeedPage, stored_feed_row
from understudy.journal.lists import (
    NEVER,
    AgentKey,
    AgentQuery,
    AskedAt,
    AskGroup,
    AskKey,
    AskPlace,
    AskQuery,
    agents_where,
    asks_found_by,
    asks_where,
    listed_ask,
    place_where,
    request_of,
)
from understudy.journal.loaded import NEWEST
from understudy.journal.memory_index import unreadable_is_logged
from understudy.journal.notes_sql import NOTED
from understudy.journal.notices import (
    ASK_OF,
    NoticeState,
    Outbox,
    StoredNotice,
    ask_values,
    notices_query,
    stored_notice,
)
from understudy.journal.retirement import TombstonePlace, WholeAgent
from understudy.journal.troubles import COUNT_TROUBLES, Troubles
from understudy.journal.usage import ADD_USED, USED, Used, summed, used_columns, used_of_rows
from understudy.state.trust_log import TrustFact

if TYPE_CHECKING:
    from understudy.journal.search import SearchState, StoredHit, Work
    from understudy.journal.search_words import SearchQuery
    from understudy.journal.sql_search import SqlSearch

T = TypeVar("T")
Rows: TypeAlias = list[tuple[Any, ...]]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
Query: TypeAlias = tuple[str, Values]

MOST_VALUES = 500
"""Values of one list in a statement. Some builds of SQLite take 999 in all."""


def _placed(before: Rows, previous: Rows, following: Rows) -> AskPlace:
    first, second = (
        next(((agent_id, request_of(id)) for agent_id, id in rows), None)
        for rows in (previous, following)
    )
    return AskPlace(before[0][0], first, second)


def _deletion(rows: Sequence[tuple[Any, ...]]) -> Deletion | None:
    for at, by in rows:
        return Deletion(at=time_of(at), by=by if isinstance(by, str) else None)
    return None


def agents_query(host: str, tables: str, *, more: str = "") -> str:
    """Brings the columns of `stored_agent`; conditions follow.

    Args:
        host: the name of the owner, in SQL.
        tables: `agents`, named `a`, and what the columns need besides.
        more: further columns.

    """
    return (
        "SELECT a.agent_id, a.definition, a.incarnation, a.epoch, a.last_seq, a.floor,"  # noqa: S608
        f" a.index_status, {host}, a.due, a.status, a.status_at, a.run_version{more}"
        f" FROM {tables} WHERE NOT a.deleted"
    )


def page_of(status: IndexStatus | None) -> str:
    """The condition, the order and the limit of a page of agents; of any status where it is None.

    The word is in the text, and no parameter: with one plan for all values, PostgreSQL may look at
    all agents, while those that are not at rest are few.
    """
    which = "" if status is None else f" AND a.index_status = '{status.value}'"
    return f"{which} AND a.agent_id > %s ORDER BY a.agent_id LIMIT %s"


DUE = """
    AND a.due IS NOT NULL AND a.due <= %s AND (a.due, a.agent_id) > (%s, %s)
ORDER BY a.due, a.agent_id LIMIT %s"""
# SQLite takes the tables of a CROSS JOIN in this order.
_ASKS = f"""
SELECT k.no, a.agent_id, k.definition, k.kind, k.tool, k.asked_at, k.expires_at, k.reminders,
    k.escalations, k.version, k.payload, {NOTED}
FROM asks k CROSS JOIN agents a WHERE a.key = k.agent AND NOT a.deleted AND """  # noqa: S608 - of a constant
_ADD_DELETIONS_TO_FEED = """
INSERT INTO feed (agent_id, definition, seq, at, kind, version, payload)
SELECT agent_id, definition, 0, %s::int8, %s::text, 1, %s::bytea FROM agents WHERE deleted"""
_MESSAGE_RUNS = """
SELECT {0}m.message_id, m.run_id FROM agents a CROSS JOIN message_runs m
WHERE a.key = m.agent AND {1} AND NOT a.deleted"""
_BLOBS = """
SELECT {0}b.hash, b.payload FROM agents a CROSS JOIN blobs b
WHERE a.key = b.agent AND {1} AND NOT a.deleted"""
ONE = "a.agent_id = %s"
_WHOLES = 200
"""Agents that one statement brings whole at most."""
_TOMBSTONES = 500
"""Tombstones that one look finds at most."""

_FACTS = "SELECT number, at, decided_by, kind, data FROM trust WHERE number"
LAST_FACT = "SELECT coalesce(max(number), 0) FROM trust"
_ADD_FACT = f"""
INSERT INTO trust (number, at, decided_by, kind, data)
SELECT %(number)s::int8, %(at)s::int8, %(by)s::text, %(kind)s::text, %(data)s::bytea
WHERE ({LAST_FACT}) = %(number)s - 1
ON CONFLICT DO NOTHING RETURNING number"""

JOIN_CHECKPOINT = """
JOIN checkpoints c ON c.agent = a.key AND c.incarnation = a.incarnation
    AND c.seq BETWEEN a.floor AND a.last_seq"""
_CHECKPOINT = f"FROM agents a {JOIN_CHECKPOINT} WHERE a.agent_id = %s AND NOT a.deleted"
_HEAD = f"SELECT c.seq, c.head, c.crc {_CHECKPOINT}"
_SEGMENTS = f"""
SELECT s.number, s.messages, s.payload, s.crc FROM checkpoint_segments s
WHERE s.agent = (SELECT c.agent {_CHECKPOINT}) ORDER BY s.number"""  # noqa: S608 - of a constant
_SEQ_OF_CHECKPOINT = f"coalesce((SELECT c.seq {_CHECKPOINT}), 0)"
_WRITE_CHECKPOINT = """
INSERT INTO checkpoints (agent, incarnation, seq, head, crc)
SELECT a.key, a.incarnation, %(seq)s, %(head)s, %(crc)s FROM agents a
WHERE {owned} AND a.last_seq >= %(seq)s{locks}
ON CONFLICT (agent) DO UPDATE SET incarnation = excluded.incarnation, seq = excluded.seq,
    head = excluded.head, crc = excluded.crc
RETURNING agent"""
_TABLES_OF_ONE = (
    *("asks", "blobs", "message_runs", "request_notes", "checkpoints", "checkpoint_segments"),
)
"""The tables whose rows go with their agent."""
_WRITE_SEGMENT = """
INSERT INTO checkpoint_segments (agent, number, messages, payload, crc)
VALUES (%s, %s, %s, %s, %s)"""


class SqlBackend(Backend):
    """Reads and writes the tables that every store in an SQL database has."""

    agents_where: str
    """The result of `agents_query` for this database."""
    records_where: str
    """Tables and condition of the records `r` above `{after}` of the agents `{of}`, in SQL."""
    records_order: str
    """The column that has the order of those records."""
    has_bytes: str
    """Whether the payload of a record has bytes in it, in SQL."""
    owned_where: str = (
        "a.agent_id = %(agent_id)s AND a.epoch = %(epoch)s AND a.incarnation = %(incarnation)s"
        " AND NOT a.deleted"
    )
    """Whether an agent `a` is still claimed so, by the values of `_claim_values`."""
    locks: str = ""
    """Ends a statement that locks the row of an agent."""
    settled_agent: str
    """Brings incarnation, epoch, last number, index status and `takeable` of an agent, behind all
    that this host has sent. `takeable` is a value of its own: what a database does not keep, it
    gives back."""
    delete_records: str
    """Deletes the records of the agent `key` with numbers less than `below`."""
    feed_state: str
    """Brings the feed, its floor, the first transaction that may be open, and whether that comes
    before a row; no row where the feed is off."""
    feed_rows: str
    """The tables, the condition and the order of the rows behind a key."""
    feed_row: str
    """As `feed_rows`, of the row with a key."""
    last_feed_row: str
    """As `feed_rows`, of the last row."""
    feed_xid: str
    """The transaction of a row of the feed, in SQL."""
    row_locks: str = ""
    """Ends a statement that locks the rows which it brings."""
    row_locks_unless_held: str = ""
    """Ends a statement as `row_locks`, but leaves out the rows that another transaction has
    locked."""
    old_tombstones: str
    """As `journal.retirement.OLD_TOMBSTONES`."""
    raise_floor: str
    """As `journal.retirement.RAISE_FLOOR`."""
    delete_rows: str = "DELETE FROM agents WHERE deleted"
    """Deletes the rows of agents; a condition follows."""

    @abstractmethod
    def _look(
        self,
        make: Callable[..., T],
        *queries: Query,
        what: str = "",
        is_list: bool = False,
        in_order: bool = False,
    ) -> T:
        """The reader's: what a function makes of the rows of each query, all of one moment.

        Args:
            make: gets the rows.
            queries: what is asked.
            what: what a damaged row is of.
            is_list: whether the function tells of a damaged row itself.
            in_order: whether the rows are found along the index that has their order.

        """

    @abstractmethod
    def _fetch(self, query: str, values: Values = ()) -> Rows:
        """The rows of a statement in the writer's transaction."""

    def _can_keep(self, text: str) -> bool:
        """Whether a row may have this text."""
        return True

    def _claim_values(self, owned: Owned) -> dict[str, Any]:
        """The values of `owned_where`."""
        return {
            "agent_id": owned.agent_id,
            "epoch": owned.epoch,
            "incarnation": owned.incarnation,
        }

    # ------------------------------------------------------------------- an agent

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        return self.load_part(agent_id, after, NEWEST)

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None:
        records = self._records_above("%s"), [agent_id, after, limit]
        make = partial(stored_records, after=after, limit=limit)
        return self._look_at(agent_id, make, self._agent(agent_id), records)

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        id = [agent_id]
        records = self._records_above(_SEQ_OF_CHECKPOINT), [agent_id, agent_id, NEWEST]
        queries = self._agent(agent_id), (_HEAD, id), (_SEGMENTS, id), records
        return self._look_at(agent_id, _latest, *queries)

    def _look_at(self, agent_id: str, make: Callable[..., T], *queries: Query) -> T:
        """As `_look`, of one agent."""
        if not self._can_keep(agent_id):
            return make(*([] for _ in queries))
        return self._look(make, *queries, what=f"agent {agent_id!r}")

    def _agent(self, agent_id: str) -> Query:
        return f"{self.agents_where} AND a.agent_id = %s", [agent_id]

    def _records_above(self, after: str) -> str:
        where = self.records_where.format(of=ONE, after=after)
        order = f"ORDER BY {self.records_order} LIMIT %s"
        return f"SELECT r.kind, r.version, r.payload FROM {where} {order}"  # noqa: S608

    def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        where = self.records_where.format(of=ONE, after="%s")
        found = f"SELECT 1 FROM {where} AND {self.has_bytes}"  # noqa: S608 - of constants
        parts = among(found, [agent_id, 0, text.encode()], "r.kind", kinds)
        queries = ((f"{query} LIMIT 1", values) for query, values in parts)
        return self._look_at(agent_id, lambda *found: any(found), *queries)

    def load_blobs(self, agent_id: str, hashes: Collection[str] | None) -> Mapping[str, bytes]:
        wanted = None if hashes is None else [bytes.fromhex(hash) for hash in hashes]
        queries = among(_BLOBS.format("", ONE), [agent_id], "b.hash", wanted)
        return self._look_at(agent_id, _blobs, *queries)

    def message_runs(self, agent_id: str, message_ids: Collection[str] | None) -> Mapping[str, str]:
        wanted = None if message_ids is None else [id for id in message_ids if self._can_keep(id)]
        queries = among(_MESSAGE_RUNS.format("", ONE), [agent_id], "m.message_id", wanted)
        return self._look_at(agent_id, lambda *rows: dict(_joined(rows)), *queries)

    def load_whole(self, agent_ids: Collection[str]) -> list[WholeAgent]:
        ids, found = [id for id in agent_ids if self._can_keep(id)], list[WholeAgent]()
        for at in range(0, len(ids), _WHOLES):
            some = ids[at : at + _WHOLES]
            of = f"a.agent_id IN ({', '.join(['%s'] * len(some))})"
            where = self.records_where.format(of=of, after="0")
            order = f"ORDER BY a.agent_id, {self.records_order}"
            records = f"SELECT a.agent_id, r.kind, r.version, r.payload FROM {where} {order}"  # noqa: S608 - of constants
            found += self._look(
                _wholes,
                (f"{self.agents_where} AND {of}", some),
                (records, some),
                (_BLOBS.format("a.agent_id, ", of), some),
                (_MESSAGE_RUNS.format("a.agent_id, ", of), some),
                what="the records of agents",
            )
        return found

    # ------------------------------------------------------------------- many agents

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        # One walk along the index for each status. For several at once SQLite would sort all agents
        # with them, again for every page.
        statuses = {None} if index_statuses is None else set(index_statuses)
        pages = (f"{self.agents_where}{page_of(each)}" for each in statuses)
        queries = ((page, [after_id, limit]) for page in pages)
        found = self._look(_listed, *queries, is_list=True)
        return sorted(found, key=lambda agent: agent.agent_id)[:limit]

    def find_agents(self, agent_ids: Collection[str]) -> list[StoredAgent]:
        ids = [id for id in agent_ids if self._can_keep(id)]
        return self._look(_listed, *among(self.agents_where, [], "a.agent_id", ids), is_list=True)

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        first = (NO_TIME, "") if after is None else (time_number(after[0]), after[1])
        query = f"{self.agents_where}{DUE}", [time_number(until), *first, limit]
        return self._look(_listed, query, is_list=True)

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        where, values = agents_where(query, after, limit)
        page = f"{self.agents_where} AND {where}", values
        return self._look(_listed, page, is_list=True, in_order=True)

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        where, values = asks_where(query, after, limit)
        return self._look(
            lambda rows: [listed_ask(row) for row in rows],
            (f"{_ASKS}{where}", values),
            is_list=True,
            in_order=True,
        )

    def list_decided(
        self, query: DecidedQuery, after: DecidedKey | None, limit: int
    ) -> list[StoredDecided]:
        return self._look(
            lambda rows: [listed_decided(row) for row in rows],
            decided_query(query, after, limit),
            is_list=True,
            in_order=True,
        )

    def count_decided(self, query: DecidedQuery) -> int:
        return self._look(lambda rows: int(rows[0][0]), count_query(query))

    def read_usage(self, first: int, end: int) -> list[Used]:
        return self._look(used_of_rows, (USED, [first, end]), what="the usage of a day")

    def find_place(self, query: AskQuery, of: AskedAt) -> AskPlace:
        before, back, behind, values = place_where(query, of)
        tables = "FROM asks k JOIN agents a ON a.key = k.agent WHERE"
        ids = f"SELECT a.agent_id, k.id {tables}"
        return self._look(
            _placed,
            (f"SELECT count(*) {tables} {before}", values),
            (f"{ids} {before} ORDER BY {back} LIMIT 1", values),
            (f"{ids} {behind} LIMIT 1", values),
            is_list=True,
        )

    def count_asks(self, query: AskQuery, times: Sequence[datetime]) -> list[AskGroup]:
        where, values = asks_found_by(query)
        tables = "asks k"
        if query.words or not (query.notes is None or query.notes.is_any):
            tables += " JOIN agents a ON a.key = k.agent"
        whens = "".join(f" WHEN k.expires_at <= %s THEN {at}" for at in range(len(times)))
        return self._look(
            lambda rows: [AskGroup(*row) for row in rows],
            (
                f"SELECT k.request_kind, k.tool, k.definition, CASE{whens} ELSE {len(times)} END,"  # noqa: S608 - numbers
                f" count(*) FROM {tables} WHERE {where} GROUP BY 1, 2, 3, 4",
                [*map(time_number, times), *values],
            ),
            is_list=True,
        )

    def ask_of(self, agent_id: str, request_id: str) -> StoredAsk | None:
        query = f"{_ASKS}{ASK_OF}", ask_values(agent_id, request_id)
        found = self._look(lambda rows: [listed_ask(row) for row in rows], query, is_list=True)
        return found[0] if found else None

    def count_agents(self) -> dict[str, int]:
        query = "SELECT status, count(*) FROM agents WHERE NOT deleted GROUP BY status"
        return self._look(dict, (query, ()))

    def count_troubles(self, failed_since: datetime, expires_by: datetime) -> Troubles:
        values = [time_number(failed_since), time_number(expires_by)]
        return self._look(lambda rows: Troubles(*rows[0]), (COUNT_TROUBLES, values))

    def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        columns = f"SELECT {self.feed_xid}, no, agent_id, definition, seq, at, kind, version"
        xid, no = after or (0, 0)
        key = {"xid": xid, "no": no, "limit": limit if after is not None else 0}
        which = self.last_feed_row if after is None else self.feed_row
        return self._look(
            partial(_feed_page, after),
            (self.feed_state, ()),
            (f"{columns}, payload {which}", key),
            (f"{columns}, payload {self.feed_rows} LIMIT %(limit)s", key),
            is_list=True,
        )

    # ------------------------------------------------------------------- the search

    @cached_property
    @abstractmethod
    def _search(self) -> SqlSearch:
        """The index of the search. Who has none imports nothing of it."""

    def search_state(self) -> SearchState:
        return self._search.state()

    def unindexed(self, after: int) -> Work | None:
        return self._search.unindexed(after)

    def index(self, work: Work) -> bool:
        self._search.put(self._fetch, work)
        return True

    def search(self, query: SearchQuery, before: int | None, limit: int) -> list[StoredHit]:
        return self._search.hits(query, before, limit)

    # ------------------------------------------------------------------- the log of trust

    def trust_after(self, number: int) -> list[TrustFact]:
        query = f"{_FACTS} > %s ORDER BY number", [number]
        return self._look(partial(_facts, number), query, what="the log of trust")

    def add_trust(self, fact: TrustFact) -> bool:
        return self._put_fact(lambda values: bool(self._fetch(_ADD_FACT, values)), fact)

    def _put_fact(self, add: Callable[[dict[str, Any]], bool], fact: TrustFact) -> bool:
        """As `add_trust`, by a function that adds a fact if its number is the next one."""
        columns = (fact.number, time_number(fact.at), fact.by, fact.kind, to_json(dict(fact.data)))
        # The answer to an attempt before this one may have been lost
        # (test_a_fact_that_is_added_once_more_is_there_once).
        return add(dict(zip(_FACT_VALUES, columns, strict=True))) or self._look(
            lambda rows: rows == [columns], (f"{_FACTS} = %s", [fact.number])
        )

    # ------------------------------------------------------------------- the outbox

    @abstractmethod
    def _turn_notices(self, on: bool) -> bool:
        """Make the triggers of the outbox, or remove them. Returns whether something changed."""

    def outbox(self) -> Outbox:
        return Outbox(self._fetch, self._turn_notices, self.row_locks)

    def notices(
        self, states: Sequence[NoticeState], after: int | None, limit: int
    ) -> list[StoredNotice]:
        query = notices_query(states, after, limit)
        return self._look(
            lambda rows: [stored_notice(row) for row in rows], query, what="the outbox"
        )

    # ------------------------------------------------------------------- changes

    def is_committed(self, batch: Batch) -> bool:
        entry = batch.entry
        of = {
            "agent_id": batch.agent_id,
            "incarnation": batch.incarnation,
            "before": batch.first_seq - 1,
            "count": len(batch.records),
            "takeable": entry.takeable,
        }
        where = self.records_where.format(
            of="a.agent_id = %(agent_id)s AND a.incarnation = %(incarnation)s", after="%(before)s"
        )
        written = (
            f"SELECT r.epoch, r.kind, r.version, r.payload FROM {where}"  # noqa: S608 - constants
            f" ORDER BY {self.records_order} LIMIT %(count)s"
        )
        agent, found = self._fetch(self.settled_agent, of), self._fetch(written, of)
        if not batch.records:
            stands = batch.last_seq, entry.status.value, entry.takeable
            return agent == [(batch.incarnation, batch.epoch, *stands)]
        return found == [(batch.epoch, *record) for record in batch.records]

    def compact(self, batch: Batch) -> None:
        self.append(batch)
        floor = "UPDATE agents SET floor = %s WHERE agent_id = %s RETURNING key"
        kept = {bytes.fromhex(hash) for hash in batch.blobs_in_use}
        for (key,) in self._fetch(floor, [batch.first_seq - 1, batch.agent_id]):
            self._fetch(self.delete_records, {"key": key, "below": batch.first_seq})
            self._fetch("DELETE FROM checkpoints WHERE agent = %s", [key])
            self._delete_segments(key, 0)
            there = self._fetch("SELECT hash FROM blobs WHERE agent = %s", [key])
            gone = [hash for (hash,) in there if hash not in kept]
            for query in among("DELETE FROM blobs WHERE agent = %s", [key], "hash", gone):
                self._fetch(*query)

    def note_deletions(self, agent_ids: Collection[str], at: datetime, by: str | None) -> None:
        note = "UPDATE agents SET deleted_at = %s, deleted_by = %s WHERE deleted"
        for query in among(note, [time_number(at), by], "agent_id", agent_ids):
            self._fetch(*query)

    def deletion(self, agent_id: str) -> Deletion | None:
        query = "SELECT deleted_at, deleted_by FROM agents WHERE agent_id = %s AND deleted"
        return self._look(_deletion, (query, [agent_id]))

    def add_deletions(self, agent_ids: Collection[str], at: datetime) -> None:
        told = [time_number(at), DELETED, b""]
        for query, values in among(_ADD_DELETIONS_TO_FEED, told, "agent_id", agent_ids):
            self._fetch(f"{query} ORDER BY agent_id", values)

    def _add_decided(self, key: int, batch: Batch) -> None:
        """Add what is decided by a batch of the agent with this key of its row."""
        for record in batch.decided:
            self._fetch(ADD_DECIDED, decided_columns(key, batch.incarnation, record))
            for person in persons_of(record):
                self._fetch(ADD_DECIDER, [person, key, time_number(record.at)])

    def _add_used(self, used: Iterable[Used], host: int) -> None:
        """Add to the sums of this host what requests to models have used."""
        for each in summed(used):
            self._fetch(ADD_USED, used_columns(each, host))

    def _forget(self, keys: Sequence[int]) -> None:
        """Delete what is kept of agents beside their rows; but of decisions, what was shown."""
        self._change_of(EMPTY_DECIDED, [b""], keys)
        self._delete_records(keys)
        for table in _TABLES_OF_ONE:
            self._change_of(f"DELETE FROM {table} WHERE {{of}}", [], keys)  # noqa: S608 - of constants

    def _delete_records(self, keys: Sequence[int]) -> None:
        """Delete all records of these agents."""
        for key in keys:
            self._fetch(self.delete_records, {"key": key, "below": NEWEST})

    def _change_of(self, statement: str, values: Sequence[Any], keys: Sequence[int]) -> None:
        """Change the rows `{of}` these agents."""
        for at in range(0, len(keys), MOST_VALUES):
            some = keys[at : at + MOST_VALUES]
            of = f"agent IN ({', '.join(['%s'] * len(some))})"
            self._fetch(statement.format(of=of), [*values, *some])

    def has_tombstones(self, before: datetime, after: TombstonePlace | None) -> bool:
        values = [time_number(before), *(after or (NO_TIME, 0)), 1]
        return self._look(bool, (self.old_tombstones, values))

    def delete_tombstones(
        self, before: datetime, after: TombstonePlace | None
    ) -> TombstonePlace | None:
        place = after or (NO_TIME, 0)
        values = [time_number(before), *place, _TOMBSTONES]
        found = self._fetch(f"{self.old_tombstones}{self.row_locks_unless_held}", values)
        gone = [row for row in found if row[4]]
        if gone:
            highest = [max(row[at] for row in gone) for at in (2, 3)]
            self._fetch(self.raise_floor, highest)
            for query in among(self.delete_rows, [], "key", [row[1] for row in gone]):
                self._fetch(*query)
        return TombstonePlace(*found[-1][:2]) if len(found) == _TOMBSTONES else None

    def write_checkpoint(self, owned: Owned, checkpoint: Checkpoint) -> None:
        query = _WRITE_CHECKPOINT.format(owned=self.owned_where, locks=self.locks)
        new = {"seq": checkpoint.seq, "head": checkpoint.head, "crc": checkpoint.crc}
        for (key,) in self._fetch(query, {**self._claim_values(owned), **new}):
            self._delete_segments(key, checkpoint.first_segment)
            for each in checkpoint.segments:
                values = [key, each.number, each.messages, each.payload, each.crc]
                self._fetch(_WRITE_SEGMENT, values)

    def _delete_segments(self, key: int, first: int) -> None:
        query = "DELETE FROM checkpoint_segments WHERE agent = %s AND number >= %s"
        self._fetch(query, [key, first])


@cache
def sqlite_query(query: str) -> str:
    """The statement as SQLite takes it: without the types of its values."""
    return re.sub(r"%\((\w+)\)s", r":\1", re.sub(r"::\w+", "", query)).replace("%s", "?")


def among(
    query: str, values: Sequence[Any], column: str, wanted: Collection[Any] | None
) -> list[Query]:
    """A statement for the rows with one of these values in a column, in parts; None = any."""
    if wanted is None:
        return [(query, values)]
    each = list(wanted)
    parts = [each[at : at + MOST_VALUES] for at in range(0, len(each), MOST_VALUES)]
    return [
        (f"{query} AND {column} IN ({', '.join(['%s'] * len(part))})", [*values, *part])
        for part in parts
    ]


def _joined(rows: Iterable[Rows]) -> Iterable[tuple[Any, ...]]:
    return (row for part in rows for row in part)


def _listed(*rows: Rows) -> list[StoredAgent]:
    return [listed_agent(row) for row in _joined(rows)]


def _wholes(agents: Rows, records: Rows, blobs: Rows, runs: Rows) -> list[WholeAgent]:
    """All that there is of agents, from their rows."""
    of: dict[str, tuple[Rows, dict[str, bytes], dict[str, str]]] = {}
    for agent_id, *record in records:
        of.setdefault(agent_id, ([], {}, {}))[0].append(tuple(record))
    for agent_id, hash, kept in blobs:
        of.setdefault(agent_id, ([], {}, {}))[1][bytes.hex(hash)] = kept
    for agent_id, message_id, run_id in runs:
        of.setdefault(agent_id, ([], {}, {}))[2][message_id] = run_id
    found = []
    for row in agents:
        own, files, taken = of.get(row[0], ([], {}, {}))
        with unreadable_is_logged(str(row[0])):
            stored = stored_records([row], own, after=0)
            if stored is not None:
                found.append(WholeAgent(stored, files, taken))
    return found


def _blobs(*rows: Rows) -> dict[str, bytes]:
    return {bytes.hex(hash): kept for hash, kept in _joined(rows)}


def stored_records(
    agents: Rows, records: Rows, *, after: int, limit: int = NEWEST
) -> StoredRecords | None:
    """An agent with its records above a number; None if there is no such agent."""
    if not agents:
        return None
    agent = stored_agent(agents[0])
    first = max(after, agent.floor) + 1
    last = min(agent.last_seq, first + limit - 1)
    if len(records) != max(0, last - first + 1):
        raise StoreDamaged(
            what=f"agent {agent.agent_id!r}",
            cause=f"of the records {first} to {last} only {len(records)} exist",
        )
    return StoredRecords(
        agent=agent, first_seq=first, records=tuple(EncodedRecord(*row) for row in records)
    )


def _latest(
    agents: Rows, heads: Rows, segments: Rows, records: Rows
) -> tuple[Checkpoint | None, StoredRecords] | None:
    checkpoint: Checkpoint | None = None
    for seq, head, crc in heads:
        parts = (
            Segment(number=number, messages=messages, payload=payload, crc=crc)
            for number, messages, payload, crc in segments
        )
        checkpoint = Checkpoint(seq=seq, head=head, crc=crc, segments=tuple(parts))
    after = checkpoint.seq if checkpoint is not None else 0
    stored = stored_records(agents, records, after=after)
    return None if stored is None else (checkpoint, stored)


def _feed_page(after: FeedKey | None, states: Rows, named: Rows, rows: Rows) -> FeedPage | None:
    if not states:
        return None
    ((feed, floor_xid, floor, xmin, is_held_up),) = states
    at = stored_feed_row(named[0]) if named else None
    end = after
    if end is None:
        end = min((floor_xid, floor), (xmin, 0)) if at is None else at.key
    return FeedPage(
        feed=feed,
        floor=(floor_xid, floor),
        end=end,
        mark="" if at is None else at.mark,
        rows=[stored_feed_row(row) for row in rows],
        is_held_up=bool(is_held_up),
    )


_FACT_VALUES = ("number", "at", "by", "kind", "data")


def _facts(after: int, rows: Rows) -> list[TrustFact]:
    """The facts of the rows above a number.

    Raises:
        StoreDamaged: if one is missing or cannot be read. A host that does not know what must not
            run would run it.

    """
    facts: list[TrustFact] = []
    for expected, row in enumerate(rows, after + 1):
        number, at, by, kind, data = row
        time = time_of(at)
        try:
            content = from_json(data)
        except (TypeError, ValueError):
            content = None
        is_text = isinstance(kind, str) and isinstance(by, str | None)
        if number != expected or time is None or not is_text or not isinstance(content, dict):
            raise StoreDamaged(
                what="the log of trust", cause=f"in the place of fact {expected} there is {row!r}"
            )
        facts.append(TrustFact(number=number, at=time, by=by, kind=kind, data=content))
    return facts


def feed_rows(batch: Batch) -> Rows:
    """What a batch adds to the feed: all columns but those that the database fills in."""
    return [
        (
            *(batch.agent_id, row.agent, row.seq),
            None if row.at is None else time_number(row.at),
            *(row.record.kind, row.record.version, row.record.payload),
        )
        for row in batch.feed
    ]


def changed_asks(batches: Mapping[int, Batch], stored: Rows) -> tuple[Rows, ...]:
    """The rows by which the store gets what the agents of batches ask now: what differs.

    Args:
        batches: by the keys of the agents' rows.
        stored: agent, id, reminders and escalations of each row that there is of those agents whose
            batches do not know what they asked before.

    Returns:
        The rows that go; those that are new; those of which more people were told; and how many
        each agent has by then.

    """
    there = {key: dict(batch.asks_before or {}) for key, batch in batches.items()}
    for key, id, *told in stored:
        there[key][id] = (told[0], told[1])
    gone, new, more_told, counts = rows = Rows(), Rows(), Rows(), Rows()
    for key, batch in batches.items():
        now = batch.entry.asks
        if not now and not there[key]:
            continue
        changed = changes(there[key], now)
        gone += [(key, id) for id in changed.gone]
        new += [(key, *_columns(ask)) for ask in changed.new]
        more_told += [(key, a.id, a.told.reminders, a.told.escalations) for a in changed.told]
        if changed.gone or changed.new:
            counts.append((key, len(now)))
    return rows


def _columns(ask: Ask) -> tuple[Any, ...]:
    record, expires_at = ask.encode(), ask.expires_at
    return (
        *(ask.id, ask.kind, ask.tool, *request_words(ask.asked), time_number(ask.asked_at)),
        NEVER if expires_at is None else time_number(expires_at),
        *(ask.told.reminders, ask.told.escalations, record.version, record.payload),
    )


def refusal(
    batch: Batch, there: Sequence[Any], *, claimer: str | None = None, is_own: bool = True
) -> Refusal | None:
    """Why a batch may not be added; None if it may.

    Args:
        batch: it.
        there: `deleted`, `incarnation`, `epoch` and `last_seq` of its agent; empty if it has no
            row.
        claimer: the host that owns it.
        is_own: whether this host owns it.

    """
    deleted, incarnation, epoch, last_seq = there or (True, 0, 0, 0)
    why = ""
    if deleted:
        why = "it was deleted" if there else "the store has no such agent"
    elif incarnation != batch.incarnation:
        why = f"its incarnation is {incarnation} by now, not {batch.incarnation}"
    elif epoch != batch.epoch:
        by = "" if claimer is None else f" by {claimer!r}"
        why = f"it was claimed{by} in epoch {epoch}, after epoch {batch.epoch}"
    elif not is_own:
        why = "this runtime has released or lost it"
    if why:
        return Fenced(agent_id=batch.agent_id, why=why)
    if last_seq + 1 != batch.first_seq:
        return StoreConflict(agent_id=batch.agent_id, expected=last_seq + 1, got=batch.first_seq)
    return None

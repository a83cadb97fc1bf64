"""The reading half of the PostgreSQL backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from understudy.errors import StoreDamaged
from understudy.journal.asks import StoredAsk
from understudy.journal.checkpoints import Checkpoint, Segment
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import (
    NO_TIME,
    IndexStatus,
    StoredAgent,
    StoredRecords,
    listed_agent,
    stored_agent,
    time_number,
)
from understudy.journal.feed import FeedKey, FeedPage, stored_feed_row
from understudy.journal.lists import (
    AgentKey,
    AgentQuery,
    AskKey,
    AskQuery,
    agents_where,
    asks_where,
    listed_ask,
)
from understudy.journal.postgres import checkpoint_sql, feed_sql, sql
from understudy.journal.postgres.sql import Fetch, Rows, is_storable_id
from understudy.journal.shared import SharedBackend

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection, PsycopgConnection


T = TypeVar("T")


class PostgresReader(SharedBackend):
    """Reads on a connection that reconnects by itself: to read twice does no harm.

    Args:
        connections: of the writer, the reader and the heartbeat.
        host: the name of this runtime.

    """

    def __init__(self, connections: Sequence[PostgresConnection], host: str) -> None:
        self._writing: PostgresConnection
        self._reading: PostgresConnection
        self._heartbeat: PostgresConnection
        self._writing, self._reading, self._heartbeat = connections
        self._host = host
        self._host_id: int | None = None

    @property
    def host(self) -> str:
        return self._host

    @property
    def host_id(self) -> int | None:
        return self._host_id

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        return self._load(agent_id, after, None)

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None:
        return self._load(agent_id, after, limit)

    def _load(self, agent_id: str, after: int, limit: int | None) -> StoredRecords | None:
        if not is_storable_id(agent_id):
            return None
        query: tuple[str, list[Any]] = sql.RECORDS, [agent_id, after]
        if limit is not None:
            query = sql.PART_OF_RECORDS, [agent_id, after, limit]

        def read(connection: PsycopgConnection) -> tuple[Rows, Rows]:
            with _one_moment(connection):
                agent = connection.execute(sql.AGENT, [agent_id])
                records = connection.execute(*query, binary=True)
            return agent.fetchall(), records.fetchall()

        agents, rows = self._reading.run_repeatable(read)
        return _stored(agents, after, rows, limit)

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        if not is_storable_id(agent_id):
            return None

        def read(connection: PsycopgConnection) -> tuple[Rows, Rows, Rows, Rows]:
            with _one_moment(connection):
                agent = connection.execute(sql.AGENT, [agent_id])
                head = connection.execute(checkpoint_sql.CHECKPOINT, [agent_id], binary=True)
                segments = connection.execute(checkpoint_sql.SEGMENTS, [agent_id], binary=True)
                records = connection.execute(
                    checkpoint_sql.RECORDS_BEHIND, [agent_id, agent_id], binary=True
                )
            return agent.fetchall(), head.fetchall(), segments.fetchall(), records.fetchall()

        agents, heads, segments, rows = self._reading.run_repeatable(read)
        checkpoint: Checkpoint | None = None
        for seq, head, crc in heads:
            parts = (
                Segment(number=number, messages=messages, payload=payload, crc=crc)
                for number, messages, payload, crc in segments
            )
            checkpoint = Checkpoint(seq=seq, head=head, crc=crc, segments=tuple(parts))
        stored = _stored(agents, checkpoint.seq if checkpoint is not None else 0, rows)
        return None if stored is None else (checkpoint, stored)

    def load_blobs(self, agent_id: str, hashes: Collection[str] | None) -> Mapping[str, bytes]:
        if not is_storable_id(agent_id):
            return {}
        wanted = None if hashes is None else [bytes.fromhex(hash) for hash in hashes]
        values = {"agent_id": agent_id, "hashes": wanted}

        def read(connection: PsycopgConnection) -> Rows:
            return connection.execute(sql.READ_BLOBS, values, binary=True).fetchall()

        return {hash.hex(): kept for hash, kept in self._reading.run_repeatable(read)}

    def message_runs(self, agent_id: str, message_ids: Collection[str] | None) -> Mapping[str, str]:
        if not is_storable_id(agent_id):
            return {}
        wanted = None if message_ids is None else [id for id in message_ids if is_storable_id(id)]
        return dict(self._read(sql.MESSAGE_RUNS, {"agent_id": agent_id, "ids": wanted}))

    def key_secret(self) -> bytes:
        ((found,),) = self._read(sql.OF_STORE, [])
        return bytes(found)

    def has_old_keys(self, before: datetime) -> bool:
        ((found,),) = self._read(sql.HAS_OLD_KEYS, [time_number(before)])
        return bool(found)

    def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        if not is_storable_id(agent_id):
            return False
        ((found,),) = self._read(sql.HAS_TEXT, [agent_id, list(kinds), text.encode()])
        return bool(found)

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        if index_statuses is not None and not index_statuses:
            return []
        query = sql.AGENTS if index_statuses is None else sql.agents_of(frozenset(index_statuses))
        return self._listed(query, [after_id, limit])

    def find_agents(self, agent_ids: Collection[str]) -> list[StoredAgent]:
        return self._listed(sql.FOUND_AGENTS, [[id for id in agent_ids if is_storable_id(id)]])

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        first = (NO_TIME, "") if after is None else (time_number(after[0]), after[1])
        return self._listed(sql.DUE, [time_number(until), *first, limit])

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        where, values = agents_where(query, after, limit, table="a", id="agent_id", mark="%s")
        rows = self._in_order(f"{sql.LISTED_AGENTS} AND {where}", values)
        return [listed_agent(row) for row in rows]

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        where, values = asks_where(query, after, limit, mark="%s")
        return [listed_ask(row) for row in self._in_order(f"{sql.LISTED_ASKS} AND {where}", values)]

    def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        def read(connection: PsycopgConnection) -> tuple[Rows, Rows, Rows]:
            with connection.pipeline():
                # Of one moment: what was removed before it, and the rows behind that.
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                state = connection.execute(feed_sql.FEED_STATE)
                if after is None:
                    named = connection.execute(feed_sql.LAST_ROW, binary=True)
                else:
                    named = connection.execute(feed_sql.NAMED_ROW, after, binary=True)
                first = (0, 0) if after is None else after
                wanted = 0 if after is None else limit
                rows = connection.execute(feed_sql.READ_FEED, [*first, wanted], binary=True)
                connection.execute("COMMIT")
            return state.fetchall(), named.fetchall(), rows.fetchall()

        states, named, rows = self._reading.run_repeatable(read)
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
            is_held_up=is_held_up,
        )

    def count_agents(self) -> dict[str, int]:
        return dict(self._read(sql.COUNTED_AGENTS, []))

    def _listed(self, query: str, values: Sequence[Any]) -> list[StoredAgent]:
        return [listed_agent(row) for row in self._read(query, values)]

    def _in_order(self, query: str, values: Sequence[Any]) -> Rows:
        """The rows of a page, found along the index that has their order."""

        def read(connection: PsycopgConnection) -> Rows:
            with connection.pipeline():
                connection.execute("BEGIN READ ONLY")
                connection.execute(sql.FIND_IN_ORDER)
                rows = connection.execute(query, values, binary=True)
                connection.execute("COMMIT")
            return rows.fetchall()

        return self._reading.run_repeatable(read)

    def _read(self, query: str, values: Sequence[Any] | dict[str, Any]) -> Rows:
        """The rows of a statement that may be repeated."""
        return self._reading.run_repeatable(
            lambda connection: connection.execute(query, values, binary=True).fetchall()
        )

    def _beat(self, function: Callable[[PsycopgConnection], T]) -> T:
        """Call it with the heartbeat's connection."""
        return self._heartbeat.run_repeatable(function)

    def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        rows = self._read(sql.LOST_ATTEMPTS, [agent_id, run_id])
        return frozenset(number for (numbers,) in rows for number in numbers)

    def load_behind(self, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
        return load_behind(self._read, agent_id, after)


@contextmanager
def _one_moment(connection: PsycopgConnection) -> Iterator[None]:
    """All queries of the block are sent at once, and see the same moment."""
    with connection.pipeline():
        # Race: this against a compaction (test_what_is_read_is_of_one_moment).
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield
        connection.execute("COMMIT")


def load_behind(fetch: Fetch, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
    """As `SharedBackend.load_behind`, by either connection."""
    rows = fetch(checkpoint_sql.BEHIND, [after, agent_id])
    if not rows:
        return None
    *agent, checkpoint = rows[0][:-3]
    records = [row[-3:] for row in rows if row[-1] is not None]
    stored = _stored([tuple(agent)], after, records)
    return None if stored is None else (checkpoint, stored)


def _stored(
    agents: Rows, after: int, records: Rows, limit: int | None = None
) -> StoredRecords | None:
    """An agent with its records above a number; None if there is no such agent."""
    if not agents:
        return None
    agent = stored_agent(agents[0])
    first = max(after, agent.floor) + 1
    last = agent.last_seq if limit is None else min(agent.last_seq, first + limit - 1)
    if len(records) != max(0, last - first + 1):
        raise StoreDamaged(
            what=f"agent {agent.agent_id!r}",
            cause=f"of the records {first} to {last} only {len(records)} exist",
        )
    return StoredRecords(
        agent=agent, first_seq=first, records=tuple(EncodedRecord(*row) for row in records)
    )

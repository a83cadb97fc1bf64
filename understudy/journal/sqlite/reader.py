"""The reading half of the SQLite backend: a connection of its own, which no write blocks."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from understudy.errors import StoreBroken, StoreDamaged
from understudy.journal.asks import StoredAsk
from understudy.journal.backend import Backend
from understudy.journal.checkpoints import Checkpoint
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
from understudy.journal.feed import FeedKey, FeedPage
from understudy.journal.lists import (
    AgentKey,
    AgentQuery,
    AskKey,
    AskQuery,
    agents_where,
    asks_where,
    listed_ask,
)
from understudy.journal.sqlite import blobs, call_keys, checkpoints, feed
from understudy.journal.sqlite.connection import connect_reader
from understudy.journal.sqlite.errors import UNREADABLE, damaged, is_undecodable, store_error
from understudy.journal.sqlite.lock import SidecarLock
from understudy.journal.sqlite.schema import SEQ_BITS

T = TypeVar("T")

MOST_VALUES = 500
"""Parameters of one statement. Some builds of SQLite take 999."""

_AGENT = """
    SELECT no, id, definition, incarnation, epoch, last_seq, floor, index_status,
        (SELECT host FROM meta WHERE meta.tenure = agents.tenure), due, status, status_at,
        run_version
    FROM agents WHERE NOT deleted AND
"""
# The asks come first: SQLite takes the tables of a CROSS JOIN in this order.
_ASK = """
    SELECT k.no, a.id, k.definition, k.kind, k.tool, k.asked_at, k.expires_at, k.reminders,
        k.escalations, k.version, k.payload
    FROM asks k CROSS JOIN agents a ON a.no = k.agent
    WHERE NOT a.deleted AND
"""
_RECORDS = """
    SELECT kind, version, payload FROM records WHERE id BETWEEN ? AND ? ORDER BY id
"""
_HAS_TEXT = """
    SELECT 1 FROM records WHERE id BETWEEN ? AND ? AND kind IN ({}) AND instr(payload, ?) LIMIT 1
"""


_ALL_MESSAGE_RUNS = (
    "SELECT m.message_id, m.run_id FROM message_runs m JOIN agents a ON a.no = m.agent "
    "WHERE a.id = ? AND NOT a.deleted"
)
_MESSAGE_RUN = f"{_ALL_MESSAGE_RUNS} AND m.message_id = ?"


class SqliteReader(Backend):
    """Reads a store while another connection writes to it. Each result is of one moment.

    It connects at the first call, read-only and without the sidecar lock, so a process that only
    reads can have one on a database that another process uses.
    """

    def __init__(self, path: str) -> None:
        self._path: str = str(Path(path).resolve())  # one lock for all links to the file
        self._lock: SidecarLock = SidecarLock(self._path)
        self._reading: sqlite3.Connection | None = None
        self._is_closed = False
        # Race: `close` comes from another thread, perhaps in the middle of a read. Closing a
        # connection that is in use crashes the process
        # (test_closing_while_another_thread_reads_disturbs_neither).
        self._busy = threading.Lock()

    def _open_reader(self) -> None:
        """After `_close_reader`: connect at the next call."""
        with self._busy:
            self._is_closed = False

    def open_to_read(self) -> None:
        self._open_reader()
        self._read(lambda _: None)

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        found = self._load(agent_id, after)
        return None if found is None else found[1]

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None:
        found = self._load(agent_id, after, limit)
        return None if found is None else found[1]

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        return self._load(agent_id, None)

    def _load(
        self, agent_id: str, after: int | None, limit: int | None = None
    ) -> tuple[Checkpoint | None, StoredRecords] | None:
        return self._read(
            lambda connection: self._load_from(connection, agent_id, after, limit),
            what=f"agent {agent_id!r}",
        )

    def _load_from(
        self, connection: sqlite3.Connection, agent_id: str, after: int | None, limit: int | None
    ) -> tuple[Checkpoint | None, StoredRecords] | None:
        """The records above a number; None: those above the checkpoint, and that."""
        checkpoint: Checkpoint | None = None
        with _Snapshot(connection):
            row = connection.execute(f"{_AGENT} id = ?", (agent_id,)).fetchone()
            if row is None:
                return None
            agent = stored_agent(row[1:])
            if after is None:
                checkpoint = checkpoints.read(connection, row[0], agent)
                after = checkpoint.seq if checkpoint is not None else 0
            after = max(after, agent.floor)
            last = agent.last_seq if limit is None else min(agent.last_seq, after + limit)
            first = row[0] << SEQ_BITS
            rows = connection.execute(_RECORDS, (first + after + 1, first + last))
            records = tuple(EncodedRecord(*record) for record in rows)
        if len(records) != max(0, last - after):
            raise StoreDamaged(
                what=f"agent {agent_id!r}",
                cause=f"of the records {after + 1} to {last} only {len(records)} exist",
            )
        return checkpoint, StoredRecords(agent=agent, first_seq=after + 1, records=records)

    def load_blobs(self, agent_id: str, hashes: Collection[str] | None) -> Mapping[str, bytes]:
        def read(connection: sqlite3.Connection) -> Mapping[str, bytes]:
            with _Snapshot(connection):
                row = connection.execute(f"{_AGENT} id = ?", (agent_id,)).fetchone()
                return {} if row is None else blobs.read(connection, row[0], hashes)

        return self._read(read, what=f"agent {agent_id!r}")

    def message_runs(self, agent_id: str, message_ids: Collection[str] | None) -> Mapping[str, str]:
        if message_ids is None:
            return dict(
                self._read(lambda db: db.execute(_ALL_MESSAGE_RUNS, (agent_id,)).fetchall())
            )

        def read(connection: sqlite3.Connection) -> Mapping[str, str]:
            found = (connection.execute(_MESSAGE_RUN, (agent_id, id)) for id in message_ids)
            return {id: run_id for rows in found for id, run_id in rows}

        return self._read(read)

    def key_secret(self) -> bytes:
        return self._read(call_keys.secret)

    def has_old_keys(self, before: datetime) -> bool:
        return self._read(lambda db: call_keys.has_old(db, before))

    def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        def find(connection: sqlite3.Connection) -> bool:
            row = connection.execute(f"{_AGENT} id = ?", (agent_id,)).fetchone()
            if row is None:
                return False
            agent, first = stored_agent(row[1:]), row[0] << SEQ_BITS
            values = (first + agent.floor + 1, first + agent.last_seq, *kinds, text.encode())
            query = _HAS_TEXT.format(", ".join("?" * len(kinds)))
            return connection.execute(query, values).fetchone() is not None

        return self._read(find)

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        return self._listed(
            lambda connection: self._agents(connection, index_statuses, after_id, limit)
        )

    def _agents(
        self,
        connection: sqlite3.Connection,
        index_statuses: Collection[IndexStatus] | None,
        after_id: str,
        limit: int,
    ) -> list[StoredAgent]:
        if index_statuses is None:
            rows = connection.execute(
                f"{_AGENT} id > ? ORDER BY id LIMIT ?", (after_id, limit)
            ).fetchall()
            return [listed_agent(row[1:]) for row in rows]
        # One walk along the index for each status. For several at once SQLite would sort all agents
        # with them, again for every page.
        query = f"{_AGENT} index_status = ? AND id > ? ORDER BY id LIMIT ?"
        with _Snapshot(connection):
            found = [
                listed_agent(row[1:])
                for index_status in set(index_statuses)
                for row in connection.execute(query, (index_status.value, after_id, limit))
            ]
        return sorted(found, key=lambda agent: agent.agent_id)[:limit]

    def find_agents(self, agent_ids: Collection[str]) -> list[StoredAgent]:
        ids = list(agent_ids)
        return [
            agent
            for at in range(0, len(ids), MOST_VALUES)
            for agent in self._listed_where(
                f"id IN ({', '.join('?' * len(ids[at : at + MOST_VALUES]))})",
                tuple(ids[at : at + MOST_VALUES]),
            )
        ]

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        first = (NO_TIME, "") if after is None else (time_number(after[0]), after[1])
        where = "due IS NOT NULL AND due <= ? AND (due, id) > (?, ?) ORDER BY due, id LIMIT ?"
        return self._listed_where(where, (time_number(until), *first, limit))

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        where, values = agents_where(query, after, limit, table="agents", id="id", mark="?")
        return self._listed_where(where, values)

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        where, values = asks_where(query, after, limit, mark="?")
        rows = self._listed(lambda db: db.execute(f"{_ASK} {where}", values).fetchall())
        return [listed_ask(row) for row in rows]

    def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        def read(connection: sqlite3.Connection) -> FeedPage | None:
            with _Snapshot(connection):
                return feed.read(connection, after, limit)

        return self._listed(read)

    def count_agents(self) -> dict[str, int]:
        query = "SELECT status, count(*) FROM agents WHERE NOT deleted GROUP BY status"
        return dict(self._read(lambda connection: connection.execute(query).fetchall()))

    def _listed_where(self, where: str, values: Sequence[Any]) -> list[StoredAgent]:
        return self._listed(
            lambda connection: [
                listed_agent(row[1:])
                for row in connection.execute(f"{_AGENT} {where}", values).fetchall()
            ]
        )

    def _listed(self, find: Callable[[sqlite3.Connection], T]) -> T:
        """What it finds, also where a text of some row is not UTF-8: that is told with the row."""

        def found(connection: sqlite3.Connection) -> T:
            try:
                return find(connection)
            except sqlite3.OperationalError as error:
                if not is_undecodable(error):
                    raise
            connection.text_factory = lambda text: text.decode(errors="surrogateescape")
            try:
                return find(connection)
            finally:
                connection.text_factory = str

        return self._read(found)

    def _read(self, read: Callable[[sqlite3.Connection], T], *, what: str = "") -> T:
        """Read, and say of what is damaged that it is of `what`, if that is given."""
        with self._busy:
            try:
                return read(self._reading_connection())
            except sqlite3.Error as error:
                raise store_error(error, self._path, what) from error
            except UNREADABLE as error:
                raise damaged(error, self._path, what) from error

    def _reading_connection(self) -> sqlite3.Connection:
        self._lock.check_process()
        if self._is_closed:  # a read that was under way when the store was closed
            raise StoreBroken(cause=f"{self._path!r} is not open", remedy="Open the store.")
        if self._reading is None:
            self._reading = connect_reader(self._path)
        return self._reading

    def _close_reader(self) -> None:
        """Disconnect for good: until `_open_reader`."""
        with self._busy:
            self._is_closed = True
            if self._reading is not None and not self._lock.forked:  # else it is the parent's
                self._reading.close()
                self._reading = None


class _Snapshot:
    """A read transaction: several queries see the same moment."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        if self._connection.in_transaction:  # some errors end it by themselves
            self._connection.execute("ROLLBACK")

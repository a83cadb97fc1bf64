"""The reading half of the SQLite backend: a connection of its own, which no write blocks."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from understudy.errors import StoreBroken
from understudy.journal.retirement import OLD_TOMBSTONES, RAISE_FLOOR
from understudy.journal.sql_backend import Query, agents_query, sqlite_query
from understudy.journal.sql_notes import SqlNotes
from understudy.journal.sqlite.connection import connect_reader
from understudy.journal.sqlite.errors import (
    UNREADABLE,
    damaged,
    is_undecodable,
    read_twice,
    store_error,
)
from understudy.journal.sqlite.lock import SidecarLock
from understudy.journal.sqlite.schema import SEQ_BITS

if TYPE_CHECKING:
    from understudy.journal.sqlite.search import SqliteSearch

T = TypeVar("T")

_HOST = "(SELECT host FROM meta WHERE meta.tenure = a.tenure)"
# Not `<<`, which drops bits of a damaged key, and leads to the records of another agent
# (test_a_damaged_key_of_an_agent_leads_to_the_records_of_no_other_one).
_FIRST = f"a.key * {1 << SEQ_BITS}"


class SqliteReader(SqlNotes):
    """Reads a store while another connection writes to it. Each result is of one moment.

    It connects at the first call, read-only and without the sidecar lock, so a process that only
    reads can have one on a database that another process uses.
    """

    agents_where: str = agents_query(_HOST, "agents a")
    # SQLite takes the tables of a CROSS JOIN in this order.
    records_where: str = (
        "agents a CROSS JOIN records r WHERE {of} AND NOT a.deleted"
        f" AND r.id BETWEEN {_FIRST} + max(a.floor, {{after}}) + 1 AND {_FIRST} + a.last_seq"
    )
    records_order: str = "r.id"
    has_bytes: str = "instr(r.payload, %s)"
    settled_agent: str = (
        "SELECT incarnation, epoch, last_seq, index_status, %(takeable)s FROM agents"
        " WHERE agent_id = %(agent_id)s AND NOT deleted"
    )
    delete_records: str = (
        f"DELETE FROM records WHERE id >= %(key)s * {1 << SEQ_BITS}"  # noqa: S608
        f" AND id < %(key)s * {1 << SEQ_BITS} + min(%(below)s, {1 << SEQ_BITS})"
    )
    old_tombstones: str = OLD_TOMBSTONES.format(more="")
    raise_floor: str = RAISE_FLOOR.format(greatest="max")
    # The last row stays, for its number would be given again; and that with the newest mark, for
    # the file would seem to be an older copy without it.
    delete_rows: str = """
        DELETE FROM agents WHERE deleted AND key < (SELECT max(key) FROM agents)
            AND mark < (SELECT max(mark) FROM agents)"""
    feed_xid: str = "0"
    # Commits come in the order of its rows: one runtime writes.
    feed_state: str = "SELECT feed, 0, feed_floor, 0, 0 FROM meta WHERE feed_on"
    feed_rows: str = "FROM feed WHERE no > %(no)s ORDER BY no"
    feed_row: str = "FROM feed WHERE no = %(no)s"
    last_feed_row: str = "FROM feed ORDER BY no DESC LIMIT 1"

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
        self._look(lambda: None)

    def _look(
        self,
        make: Callable[..., T],
        *queries: Query,
        what: str = "",
        is_list: bool = False,
        in_order: bool = False,
    ) -> T:
        with self._busy:
            try:
                connection = self._reading_connection()
                try:
                    return read_twice(lambda: _read(connection, make, queries))
                except sqlite3.OperationalError as error:
                    if not (is_list and is_undecodable(error)):
                        raise
                # A text of some row is not UTF-8: that is told with the row.
                connection.text_factory = lambda text: text.decode(errors="surrogateescape")
                try:
                    return read_twice(lambda: _read(connection, make, queries))
                finally:
                    connection.text_factory = str
            except sqlite3.Error as error:
                raise store_error(error, self._path, what) from error
            except UNREADABLE as error:
                raise damaged(error, self._path, what) from error

    @cached_property
    def _search(self) -> SqliteSearch:
        from understudy.journal.sqlite.search import SqliteSearch  # few stores have one

        return SqliteSearch(self)

    def _reading_connection(self) -> sqlite3.Connection:
        self._lock.check_process()
        if self._is_closed:  # a read that was under way when the store was closed
            raise StoreBroken(cause=f"{self._path!r} is not open", remedy="Open the store.")
        if self._reading is None:
            self._reading = read_twice(lambda: connect_reader(self._path))
        return self._reading

    def _close_reader(self) -> None:
        """Disconnect for good: until `_open_reader`."""
        with self._busy:
            self._is_closed = True
            if self._reading is not None and not self._lock.forked:  # else it is the parent's
                self._reading.close()
                self._reading = None


def _read(connection: sqlite3.Connection, make: Callable[..., T], queries: tuple[Query, ...]) -> T:
    """What is made of the rows of these, of one moment."""
    connection.execute("BEGIN")
    try:
        rows = [connection.execute(sqlite_query(text), each) for text, each in queries]
        return make(*(cursor.fetchall() for cursor in rows))
    finally:
        if connection.in_transaction:  # some errors end it by themselves
            connection.execute("ROLLBACK")

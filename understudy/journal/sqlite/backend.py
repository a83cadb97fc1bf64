"""The SQLite store: one file, one runtime, nothing to install.

It is in WAL mode: reads continue during a write, and a commit costs one sync of one file. Only the
runtime with the sidecar lock (see `lock`) may write. Epochs are checked all the same, so a second
writer is refused even if the lock file is deleted.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Concatenate, NoReturn, ParamSpec, TypeVar

from understudy.errors import (
    StoreBroken,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from understudy.journal.contracts import (
    Batch,
    Durability,
    Owned,
    StoredAgent,
    check_durability,
    time_number,
)
from understudy.journal.kept import ALL_KEPT, Kept
from understudy.journal.notices import turn_sqlite_triggers
from understudy.journal.retirement import AT_REST
from understudy.journal.sql_backend import LAST_FACT, Rows, Values, feed_rows, sqlite_query
from understudy.journal.sqlite import writer
from understudy.journal.sqlite.connection import connect_writer
from understudy.journal.sqlite.errors import (
    UNREADABLE,
    damaged,
    is_io_error,
    read_twice,
    store_error,
)
from understudy.journal.sqlite.lock import Watermark
from understudy.journal.sqlite.reader import SqliteReader
from understudy.journal.sqlite.schema import TABLES

if TYPE_CHECKING:
    from understudy.journal.spending import CounterSums
    from understudy.journal.spending_books import Decision, KeptSpending

P = ParamSpec("P")
T = TypeVar("T")
_logger = logging.getLogger(__name__)


_ADD_TO_FEED = """
    INSERT INTO feed (agent_id, definition, seq, at, kind, version, payload)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
# The last row to go: before a time, or behind the newest ones. The newest one stays: it has the
# number behind which the next rows come.
_LAST_TO_GO = """
    SELECT min(
        max(
            coalesce((SELECT no FROM feed WHERE at < ? ORDER BY no DESC LIMIT 1), 0),
            coalesce((SELECT no FROM feed ORDER BY no DESC LIMIT 1 OFFSET ?), 0)
        ),
        coalesce((SELECT max(no) FROM feed), 0) - 1
    )
"""


_RELEASE = f"""
    UPDATE agents AS a SET tenure = NULL WHERE {SqliteReader.owned_where} RETURNING key
"""  # noqa: S608 - of a constant
# The row stays, as the tombstone.
_DELETE = """
    UPDATE agents AS a SET deleted = 1, tenure = NULL, mark = ?, due = NULL, ask_count = 0,
        run_version = NULL
    WHERE a.agent_id = ?"""
_ENTOMBED = " AND NOT a.deleted RETURNING key"
_RETIRE = f"""{_DELETE} AND a.incarnation = ? AND a.epoch = ? AND a.last_seq = ?
    AND {AT_REST}{_ENTOMBED}"""

_RENAME_FEED = "UPDATE meta SET feed = lower(hex(randomblob(8)))"
"""Makes it another feed: the cursors of before are answered by a gap."""
# The newest mark of all agents, and the oldest of those with an open run or something due.
_MARKS = """
    SELECT coalesce(max(mark), 0),
        min(mark) FILTER (
            WHERE NOT deleted AND (index_status NOT IN ('rest', 'queued') OR due IS NOT NULL))
    FROM agents
"""

_INCREMENTAL = 2
"""The mode of a file that gives pages back one by one."""


class SqliteBackend(SqliteReader):
    """A `Backend` on one SQLite file, for one runtime at a time.

    `load` and `agents` need no `open`: a process that only reads may do so while another one
    writes. Space that a deletion frees is used again; the file itself does not shrink.

    Args:
        path: of the database. A missing file is made; its folder must exist. Next to it are
            `<path>.lock` and, while it is open, `<path>-wal` and `<path>-shm`.
        durability: what a commit survives. `"full"`: a power cut. `"normal"`: the death of the
            process; a power cut may lose the newest commits, never an older one. `"off"`: as
            `"normal"`, but a power cut may damage the whole file.
        host: the name of this runtime, for the error that a second one gets.
        max_pages: the largest size of the file, in pages of 4 KiB; None: what the disk holds.

    Raises:
        UsageError: if `durability` is unknown, or `path` names no file.

    """

    keeps: Collection[Kept] = ALL_KEPT
    restored: bool
    """After `open`: whether this database is a copy that is older than the one last used here, and
    some agent with an open run has not been written since. What its calls did before is unknown. It
    stays True in later openings until each of these agents was written once."""

    def __init__(
        self,
        path: str,
        *,
        durability: Durability = "full",
        host: str,
        max_pages: int | None = None,
    ) -> None:
        check_durability(durability)
        if not path or path.startswith((":memory:", "file:")):
            raise UsageError(
                f"`path` must be the path of a file, got {path!r}; a store in memory is 'memory:'"
            )
        super().__init__(path)
        self.restored = False
        self._durability = durability
        self._host = host
        self._max_pages = max_pages
        self._writer: sqlite3.Connection | None = None
        self._final_error: StoreError | None = None
        self._tenure = 0
        self._wal = f"{self._path}-wal"
        self._files: list[tuple[int, int]] = []
        self.keeps_feed: bool = False
        self._last_fact = 0  # of the log of trust, when it was opened
        self._mark = 0  # of the open transaction, or of the last one
        self._marked = False  # whether that changed records

    @property
    def host(self) -> str:
        return self._host

    @property
    def trust_seen(self) -> int:
        return self._last_fact

    # ------------------------------------------------------------ opening and closing

    def open(self) -> None:
        self.close()
        watermark = self._lock.acquire(self._host)
        try:
            read_twice(lambda: self._become_host(watermark))
            self._open_reader()
        except sqlite3.Error as error:
            raised = store_error(error, self._path)  # while what was opened is open
            self._disconnect()
            raise raised from error
        except UNREADABLE as error:
            self._disconnect()
            raise damaged(error, self._path) from error
        except BaseException:
            self._disconnect()
            raise

    def _connect(self) -> sqlite3.Connection:
        return connect_writer(self._path, self._durability, self._max_pages)

    def _become_host(self, watermark: Watermark | None) -> None:
        self._close_writer()
        db = self._writer = self._connect()
        db.execute("BEGIN IMMEDIATE")
        TABLES.make(db)
        self.restored, database = self._begin_tenure(db, watermark)
        self.keeps_feed = bool(db.execute("SELECT feed_on FROM meta").fetchone()[0])
        (self._last_fact,) = db.execute(LAST_FACT).fetchone()
        db.execute("COMMIT")
        self._lock.write_watermark(Watermark(database, self._mark))
        self._files = self._files_now()

    def _begin_tenure(self, db: sqlite3.Connection, last: Watermark | None) -> tuple[bool, str]:
        """Begin the next tenure.

        Args:
            db: the connection.
            last: of the database that was last used at this path.

        Returns:
            Whether the database is or was older than its watermark, and some agent with an open run
            was not written since; and the database's id.

        """
        query = "SELECT database, tenure, restored_mark FROM meta"
        database, tenure, restored_mark = db.execute(query).fetchone()
        self._mark, oldest = db.execute(_MARKS).fetchone()
        if last is not None and last.database == database and last.mark > self._mark:
            # Numbers continue above those of the history that was replaced, so that a copy of that
            # history counts as older too
            # (test_a_copy_from_a_history_that_was_left_behind_is_restored_too).
            restored_mark, self._mark = self._mark, last.mark
            db.execute(_RENAME_FEED)
            _logger.warning(
                "%r is older than the database that was used here last: what its agents did since "
                "then is unknown",
                self._path,
            )
        self._tenure = tenure + 1
        begun = "UPDATE meta SET tenure = ?, host = ?, restored_mark = ?"
        db.execute(begun, (self._tenure, self._host, restored_mark))
        return oldest is not None and oldest <= restored_mark, database

    def close(self) -> None:
        try:
            if self._writer is not None and self._final_error is None and not self._lock.forked:
                self.rollback()
                self._writer.execute("UPDATE meta SET tenure = tenure + 1, host = NULL")
        except sqlite3.Error as error:
            _logger.warning("%r is closed, but its agents are not released: %s", self._path, error)
        self._disconnect()

    def _disconnect(self) -> None:
        self._close_reader()
        self._close_writer()
        self._lock.release()
        self._final_error = None

    def _close_writer(self) -> None:
        if self._writer is not None and not self._lock.forked:  # else it is the parent's
            self._writer.close()
            self._writer = None

    def reconnect(self) -> None:
        self._check_usable()
        self._close_writer()
        try:
            self._writer = read_twice(self._connect)
            row = self._writer.execute("SELECT tenure FROM meta").fetchone()
            self._files = self._files_now()
        except sqlite3.Error as error:
            raise self._store_error(error) from error
        except UNREADABLE as error:
            raise damaged(error, self._path) from error
        # Meanwhile the path may have got another file, with a lock file of its own
        # (test_epochs_hold_where_the_lock_file_was_removed).
        if row != (self._tenure,):
            self._stop_for_good("was replaced, or opened by another runtime, meanwhile")

    def _stop_for_good(self, what: str) -> NoReturn:
        self._final_error = StoreBroken(
            cause=f"{self._path!r} {what}", remedy="Open the store again.", is_final=True
        )
        raise self._final_error

    def _files_now(self) -> list[tuple[int, int]]:
        """Which files are at the paths of the database and of its write-ahead log."""
        found = [os.stat(name) for name in (self._path, self._wal)]  # noqa: PTH116  # twice as fast
        return [(file.st_dev, file.st_ino) for file in found]

    # ----------------------------------------------------------------- transactions

    def begin(self) -> None:
        self._check_usable()
        self._mark += 1
        self._marked = False
        self._run(sqlite3.Connection.execute, "BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._run(sqlite3.Connection.execute, "COMMIT")
        # SQLite goes on writing to a file that was deleted or replaced meanwhile, and what it has
        # committed there is gone with it. Two calls of `stat` take 3 µs
        # (test_a_database_that_is_deleted_or_replaced_while_it_is_open_is_not_written_any_more).
        try:
            unchanged = self._files_now() == self._files
        except OSError:
            unchanged = False
        if not unchanged:
            self._stop_for_good("or its write-ahead log was deleted or replaced while it was open")
        # After the commit: a crash in between leaves a watermark that is too low, which harms
        # nothing. One above the database would mean a restored copy.
        if self._marked:
            self._lock.advance_watermark(self._mark)

    def rollback(self) -> None:
        try:
            if self._writer is not None and self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error as error:  # what is not committed does not count
            _logger.warning("Rolling back in %r: %s", self._path, error)

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        rows = self._fetch(writer.CLAIM_EXISTING, [self._tenure, agent_id])
        if not rows and agent is not None:
            rows = self._fetch(writer.CLAIM_NEW, [agent_id, agent, self._tenure, self._mark])
            self._marked = True
        return writer.owned(agent_id, *rows) if rows else None

    def append(self, batch: Batch) -> None:
        key = self._run(writer.append, batch, self._mark)
        if batch.key_ends:
            self._end_keys(key, batch)
        if batch.decided:
            self._add_decided(key, batch)
        if batch.used:
            self._add_used(batch.used, 0)
        if batch.settlements:
            from understudy.journal.sqlite import spending  # who has no budget does without it

            self._run(spending.settle, key, batch)
        if batch.feed:
            self._run(sqlite3.Connection.executemany, _ADD_TO_FEED, feed_rows(batch))
        self._marked = True

    def release(self, owned: Owned) -> bool:
        return bool(self._fetch(_RELEASE, self._claim_values(owned)))

    def delete(self, agent_id: str) -> bool:
        deleted = [key for (key,) in self._fetch(f"{_DELETE}{_ENTOMBED}", [self._mark, agent_id])]
        self._forget(deleted)
        return bool(deleted)

    def retire_all(self, agents: Sequence[StoredAgent]) -> list[bool]:
        keys, answers = list[int](), list[bool]()
        for agent in agents:
            is_it = [agent.agent_id, agent.incarnation, agent.epoch, agent.last_seq]
            found = self._fetch(_RETIRE, [self._mark, *is_it])
            keys += [key for (key,) in found]
            answers.append(bool(found))
        self._forget(keys)
        return answers

    def _forget(self, keys: Sequence[int]) -> None:
        if not keys:
            return
        self._marked = True
        super()._forget(keys)
        for key in keys:
            if self._fetch("SELECT 1 FROM spending WHERE agent = ? AND is_open LIMIT 1", [key]):
                from understudy.journal.sqlite import spending

                self._run(spending.leave, key)

    def load_spending(self) -> KeptSpending:
        from understudy.journal.sqlite import spending

        return self._run(spending.load)

    def keep_reserved(self, decision: Decision) -> None:
        from understudy.journal.sqlite import spending

        self._run(spending.keep, decision)

    def counters(self, budgets: Collection[str] | None) -> list[CounterSums]:
        from understudy.journal.spending_books import Books
        from understudy.journal.sqlite import spending

        kept = self._look(spending.kept_of, (spending.LINES, ()), (spending.BUCKETS, ()))
        return list(Books(kept).counters(budgets))

    def free_pages(self, limit: int) -> int | None:
        ((mode,),) = self._fetch("PRAGMA auto_vacuum")
        if mode != _INCREMENTAL:
            return None
        self._fetch(f"PRAGMA incremental_vacuum({limit:d})")
        ((left,),) = self._fetch("PRAGMA freelist_count")
        return int(left)

    def size(self) -> int:
        return self._look(
            lambda pages, size: int(pages[0][0] * size[0][0]),
            ("PRAGMA page_count", ()),
            ("PRAGMA page_size", ()),
        )

    def vacuum(self, *, whole: bool) -> None:
        self._check_usable()
        connection = self._connect()
        try:
            ((mode,),) = connection.execute("PRAGMA auto_vacuum").fetchall()
            if mode != _INCREMENTAL and not whole:
                raise UsageError(
                    f"{self._path!r} gives no room back while it is open: end the runtime, and run "
                    f"`understudy vacuum --store sqlite:///{self._path}` once"
                )
            if whole:
                connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
                connection.execute("VACUUM")
            connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if whole else 'PASSIVE'})")
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error
        finally:
            connection.close()

    def turn_feed(self, on: bool) -> None:
        if on:
            self._fetch("UPDATE meta SET feed_on = 1")
        else:
            self._fetch("DELETE FROM feed")
            self._fetch("UPDATE meta SET feed_on = 0, feed_floor = 0")
            self._fetch(_RENAME_FEED)
        self.keeps_feed = on

    def trim_feed(self, before: datetime, keep: int) -> None:
        ((last,),) = self._fetch(_LAST_TO_GO, [time_number(before), keep])
        if self._fetch("DELETE FROM feed WHERE no <= ? RETURNING no", [last]):
            self._fetch("UPDATE meta SET feed_floor = ?", [last])

    def turn_search(self, on: bool) -> None:
        self._search.turn(self._fetch, on)

    def _turn_notices(self, on: bool) -> bool:
        return turn_sqlite_triggers(self._fetch, on)

    def _fetch(self, query: str, values: Values = ()) -> Rows:
        return self._run(_rows, query, values)

    def _run(
        self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kw: P.kwargs
    ) -> T:
        if self._writer is None:
            self._check_usable()
            raise StoreUnavailable(cause=f"{self._path!r} is not connected")
        try:
            return change(self._writer, *args, **kw)
        except sqlite3.Error as error:
            raise self._store_error(error) from error
        except UnicodeEncodeError:
            raise  # what the caller gave
        except UNREADABLE as error:
            raise damaged(error, self._path) from error

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        found = store_error(error, self._path)
        if is_io_error(error):
            # A second sync may succeed although the bytes are lost
            # (test_after_an_io_error_nothing_is_written_until_the_store_is_opened_anew).
            self._final_error = found
        return found

    def _check_usable(self) -> None:
        if self._final_error is not None:
            raise self._final_error
        self._lock.check_held()


def _rows(db: sqlite3.Connection, query: str, values: Values) -> Rows:
    return db.execute(sqlite_query(query), values).fetchall()

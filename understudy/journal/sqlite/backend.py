"""The SQLite store: one file, one runtime, nothing to install.

It is in WAL mode, so that reading goes on during a write, and a commit costs one sync of one file.
The single runtime is the one that holds the sidecar lock (`sqlite_lock`); epochs are checked all
the same, so that even a lost lock file lets no second writer through.
"""

from __future__ import annotations

import logging
import math
import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, get_args

from understudy.errors import (
    Fenced,
    StoreBroken,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from understudy.journal.contracts import Batch, IndexStatus, Owned, StoredAgent, StoredRecords
from understudy.journal.sqlite import writer as changes
from understudy.journal.sqlite.connection import Durability, connect_writer
from understudy.journal.sqlite.errors import is_io_error, store_error
from understudy.journal.sqlite.lock import SidecarLock, Watermark
from understudy.journal.sqlite.reader import SqliteReader
from understudy.journal.sqlite.schema import make_tables
from understudy.journal.sqlite.writer import begin_tenure, end_tenure

__all__ = ["SqliteBackend"]

P = ParamSpec("P")
T = TypeVar("T")
_logger = logging.getLogger(__name__)


class SqliteBackend:
    """A `Backend` on one SQLite file, for one runtime at a time.

    `load` and `agents` need no `open`: a process that only looks may read beside the one that
    writes. What a deletion frees is used again; the file itself does not shrink.

    Args:
        path: of the database. It is made where it does not exist; its folder is not. Beside it lie
            `<path>.lock` and, while it is open, `<path>-wal` and `<path>-shm`.
        durability: what a commit survives.
        host: what a second runtime is told of this one.
        max_pages: of 4 KiB, that the file may have; None: as many as the disk holds.

    Raises:
        UsageError: if `durability` is none, or `path` names no file.

    """

    restored: bool
    """After `open`: whether this database is a copy that is older than the one last used here, and
    an agent with an open run has not been written since it came back: not even what its calls did
    before is known. It stays so in later openings until each of these agents was written once."""

    def __init__(
        self,
        path: str,
        *,
        durability: Durability = "full",
        host: str,
        max_pages: int | None = None,
    ) -> None:
        if durability not in get_args(Durability):
            known = ", ".join(repr(each) for each in get_args(Durability))
            raise UsageError(f"durability={durability!r} is unknown: give one of {known}")
        if not path or path.startswith((":memory:", "file:")):
            raise UsageError(f"{path!r} is no path of a file; a store in memory is 'memory:'")
        self.restored = False
        self._path = str(Path(path).resolve())  # one lock, by whatever link one comes
        self._durability = durability
        self._host = host
        self._max_pages = max_pages
        self._lock = SidecarLock(self._path)
        self._reader = SqliteReader(self._path, self._lock)
        self._writer: sqlite3.Connection | None = None
        self._refusal: StoreError | None = None
        self._tenure = 0
        self._mark = 0  # of the transaction that is open, or was the last
        self._marked = False  # whether it changed records

    @property
    def host(self) -> str:
        return self._host

    # ------------------------------------------------------------- coming and going

    def open(self) -> None:
        self.close()
        watermark = self._lock.take(self._host)
        try:
            self._writer = self._connect()
            self._become_host(self._writer, watermark)
        except sqlite3.Error as error:
            self._disconnect()
            raise store_error(error, self._path) from error
        except BaseException:
            self._disconnect()
            raise

    def _connect(self) -> sqlite3.Connection:
        return connect_writer(self._path, self._durability, self._max_pages)

    def _become_host(self, db: sqlite3.Connection, watermark: Watermark | None) -> None:
        db.execute("BEGIN IMMEDIATE")
        make_tables(db)
        tenure = begin_tenure(db, self._host, watermark)
        db.execute("COMMIT")
        if tenure.was_older:
            _logger.warning(
                "%r is older than the database that was used here last: what its agents did since "
                "is unknown",
                self._path,
            )
        self.restored = tenure.restored
        self._tenure, self._mark = tenure.number, tenure.mark
        self._lock.begin(Watermark(tenure.database, tenure.mark))

    def close(self) -> None:
        try:
            if self._writer is not None and self._refusal is None and not self._lock.forked:
                self.rollback()
                end_tenure(self._writer)
        except sqlite3.Error as error:
            _logger.warning("%r is closed without giving its agents up: %s", self._path, error)
        self._disconnect()

    def _disconnect(self) -> None:
        self._reader.close()
        self._hang_up()
        self._lock.drop()
        self._refusal = None

    def _hang_up(self) -> None:
        if self._writer is not None and not self._lock.forked:  # else it is the parent's
            self._writer.close()
            self._writer = None

    def reconnect(self) -> None:
        self._check_usable()
        self._hang_up()
        try:
            self._writer = self._connect()
            row = self._writer.execute("SELECT tenure FROM meta").fetchone()
        except sqlite3.Error as error:
            raise self._told(error) from error
        if row != (self._tenure,):
            self._refusal = StoreBroken(
                cause=f"{self._path!r} was replaced, or opened by another runtime, meanwhile",
                remedy="Open the store anew.",
                is_final=True,
            )
            raise self._refusal

    def renew(self) -> float:
        return math.inf

    # ----------------------------------------------------------------- transactions

    def begin(self) -> None:
        self._check_usable()
        self._mark += 1
        self._marked = False
        self._do(sqlite3.Connection.execute, "BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._do(sqlite3.Connection.execute, "COMMIT")
        if self._marked:  # and not before: a watermark above the database tells of a restored one
            self._lock.note(self._mark)

    def rollback(self) -> None:
        try:
            if self._writer is not None and self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error as error:  # a failed transaction is undone when it is not committed
            _logger.warning("Rolling back in %r: %s", self._path, error)

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        owned = self._do(changes.claim_anew, agent_id, self._tenure)
        if owned is None and agent is not None:
            owned = self._do(changes.claim_first, agent_id, agent, self._tenure, self._mark)
            self._marked = True
        return owned

    def append(self, batch: Batch) -> None:
        self._do(changes.add, batch, self._mark)
        self._marked = True

    def append_all(self, batches: Sequence[Batch]) -> list[Fenced | StoreConflict | None]:
        answers: list[Fenced | StoreConflict | None] = []
        for batch in batches:
            try:
                self.append(batch)
            except (Fenced, StoreConflict) as refused:
                answers.append(refused)
            else:
                answers.append(None)
        return answers

    def compact(self, batch: Batch) -> None:
        self._do(changes.compact, batch, self._mark)
        self._marked = True

    def release(self, owned: Owned) -> None:
        self._do(changes.release, owned)

    def delete(self, agent_id: str) -> bool:
        existed = self._do(changes.delete, agent_id, self._mark)
        self._marked |= existed
        return existed

    def is_committed(self, batch: Batch) -> bool:
        return self._do(changes.holds, batch)

    def _do(
        self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kw: P.kwargs
    ) -> T:
        if self._writer is None:
            self._check_usable()
            raise StoreUnavailable(cause=f"{self._path!r} is not connected")
        try:
            return change(self._writer, *args, **kw)
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _told(self, error: sqlite3.Error) -> StoreError:
        told = store_error(error, self._path)
        if is_io_error(error):
            self._refusal = told  # a second sync may succeed, and the bytes be lost all the same
        return told

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self._lock.check_held()

    # ------------------------------------------------------------------- the reader

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        return self._reader.load(agent_id, after)

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        return self._reader.agents(index_statuses, after_id, limit)

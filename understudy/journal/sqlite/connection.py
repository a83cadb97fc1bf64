"""The connections to a SQLite file: one that writes, and one that only reads."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from understudy.errors import StoreBroken, StoreDamaged
from understudy.journal.contracts import Durability
from understudy.journal.sqlite.errors import read_only
from understudy.journal.sqlite.schema import check_tables, check_tables_to_read

_PATIENCE = 0.05
"""Seconds that SQLite waits for a lock. After that the store retries."""
# Neither connection is tied to a thread. One thread at a time uses it, but not always the same: a
# store may be opened in one thread, written in another, and closed in any.


def connect_writer(
    path: str, durability: Durability, max_pages: int | None = None
) -> sqlite3.Connection:
    """A connection that writes, in WAL mode. A missing file is made.

    Raises:
        SchemaVersionError: if it has another format.
        StoreBroken: if it is a folder, cannot be written, or belongs to another program.
        sqlite3.Error: for all else that SQLite refuses.

    """
    _check_file(path)
    if Path(path).exists() and not _may_write(path):
        raise read_only(path)  # SQLite would leave behind a -wal that is read-only too
    # What agents know is of the user who runs them, unless somebody says otherwise by `chmod`. What
    # SQLite makes beside the file has the rights of the file.
    with suppress(OSError):  # it is there; or SQLite says why it cannot be made
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=_PATIENCE, check_same_thread=False
    )
    try:
        check_tables(connection)  # before the file is changed: it may not be ours
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreBroken(
                cause=f"SQLite cannot use its write-ahead log for {path!r}",
                remedy="Put the file on a local disk that this user may write to.",
            )
        connection.execute(f"PRAGMA synchronous = {durability}")
        # Only macOS heeds it: there `fsync` does not wait for the disk's own cache.
        connection.execute(f"PRAGMA fullfsync = {durability == 'full'}")
        if max_pages is not None:
            connection.execute(f"PRAGMA max_page_count = {max_pages:d}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """A connection that changes nothing, and makes no file.

    Raises:
        SchemaVersionError: if it has another format.
        StoreBroken: if there is no such file, it is a folder, or belongs to another program.
        StoreDamaged: if it is empty.
        sqlite3.Error: for all else that SQLite refuses.

    """
    _check_file(path)
    if os.access(Path(path).parent, os.X_OK) and not Path(path).exists():
        raise StoreBroken(
            cause=f"there is no SQLite file {path!r}",
            remedy="Check the path: reading makes no file, the first runtime with this store does.",
        )
    connection = sqlite3.connect(
        f"{Path(path).as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        timeout=_PATIENCE,
        check_same_thread=False,
    )
    try:
        if not check_tables_to_read(connection):
            raise StoreDamaged(what=f"the SQLite file {path!r}", cause="it is empty")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_file(path: str) -> None:
    if Path(path).is_dir():  # to SQLite it is an error of the disk
        raise StoreBroken(cause=f"{path!r} is a folder", remedy="Give the path of a file.")
    if Path(path).exists() and not Path(path).is_file():
        # A pipe: to open it would wait for somebody who writes into it, perhaps for ever.
        raise StoreBroken(
            cause=f"{path!r} is no file, but a pipe, a socket or a device",
            remedy="Give the path of a file.",
        )


def _may_write(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)

"""The connections to a SQLite file: one that writes, and one that only reads."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Literal

from understudy.errors import StoreBroken, StoreDamaged
from understudy.journal.sqlite.errors import read_only
from understudy.journal.sqlite.schema import check_tables

__all__ = ["Durability", "connect_reader", "connect_writer"]

Durability = Literal["full", "normal", "off"]
"""What a commit survives. `full`: a power cut. `normal`: the death of the process; a power cut may
lose the newest commits, never an older one. `off`: as `normal`, but a power cut may damage the
whole file."""

_PATIENCE = 0.05  # seconds; whoever finds it locked for longer tries again later
# Neither is tied to a thread, as each is used by one at a time, but not always by the same: a store
# may be opened in one thread and written in another, and closing comes from anywhere.


def connect_writer(
    path: str, durability: Durability, max_pages: int | None = None
) -> sqlite3.Connection:
    """A connection that writes, in WAL mode; the file is made where there is none.

    Raises:
        SchemaVersionError: if a newer version of this library made its tables.
        StoreBroken: if it cannot be written, or is another program's.
        sqlite3.Error: whatever else SQLite finds.

    """
    if Path(path).exists() and not _may_write(path):
        raise read_only(path)  # SQLite would leave a -wal behind that is read-only too
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=_PATIENCE, check_same_thread=False
    )
    try:
        check_tables(connection)  # before anything is changed in a file that is not ours
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreBroken(
                cause=f"SQLite cannot use its write-ahead log for {path!r}",
                remedy="Put the file on a disk of this machine that may be written.",
            )
        connection.execute(f"PRAGMA synchronous = {durability}")
        if max_pages is not None:
            connection.execute(f"PRAGMA max_page_count = {max_pages:d}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """A connection that changes nothing, and makes no file.

    Raises:
        SchemaVersionError: if a newer version of this library made the tables.
        StoreBroken: if the file is another program's.
        StoreDamaged: if it is empty.
        sqlite3.Error: whatever else SQLite finds.

    """
    connection = sqlite3.connect(
        f"{Path(path).as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        timeout=_PATIENCE,
        check_same_thread=False,
    )
    try:
        if check_tables(connection) == 0:
            raise StoreDamaged(what=f"the SQLite file {path!r}", cause="it is empty")
    except BaseException:
        connection.close()
        raise
    return connection


def _may_write(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)

"""The tables of a SQLite store: made at the first opening, checked at each one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from understudy.errors import StoreBroken
from understudy.journal.sql_tables import AGENTS_TABLE, TABLES_OF_AGENTS, sqlite_form
from understudy.journal.store_format import Tables

SEQ_BITS = 32
"""A record's row id is `key << SEQ_BITS | seq`, with the key of its agent: an agent's records are
adjacent, in order."""

_APPLICATION = 0x756E6473  # "unds": names the program that a SQLite file belongs to
_OLDEST_SQLITE = (3, 37, 0)  # the first with STRICT tables

UPGRADES: dict[int, Sequence[str]] = {}
"""By n, the statements that make tables of format n + 1 of those of format n."""

_COLUMNS = """
    SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'
"""
_FIRST_ROW = """
    INSERT INTO meta (only, version, library, format, database, tenure, restored_mark, feed_on,
        feed, feed_floor, key_secret)
    VALUES (1, ?, ?, ?, lower(hex(randomblob(8))), 0, -1, 0, lower(hex(randomblob(8))), 0,
        randomblob(32))
"""

TABLES = Tables(
    "SQLite file",
    # `version`, `library` and `format` say what wrote the file. `key_secret` is that of the hashes
    # of keys. `gone_incarnation` and `gone_epoch` are the highest of the tombstones that went.
    """CREATE TABLE meta (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        version INTEGER NOT NULL,
        library TEXT NOT NULL,
        format TEXT NOT NULL,
        database TEXT NOT NULL,
        tenure INTEGER NOT NULL,
        host TEXT,
        restored_mark INTEGER NOT NULL,
        feed_on INTEGER NOT NULL,
        feed TEXT NOT NULL,
        feed_floor INTEGER NOT NULL,
        key_secret BLOB NOT NULL,
        gone_incarnation INTEGER NOT NULL DEFAULT 0,
        gone_epoch INTEGER NOT NULL DEFAULT 0
    ) STRICT""",
    # `tenure` is the one in which the agent was claimed last, so a new tenure, one row of `meta`,
    # ends all claims at once. `mark` is the transaction that changed its records last; each append
    # writes this row anyway, so the mark costs no further page.
    sqlite_form(AGENTS_TABLE.format(own="tenure bigint,\n        mark bigint NOT NULL")),
    *map(sqlite_form, TABLES_OF_AGENTS),
    # `id` is `key << 32 | seq`. A key of two columns in a table WITHOUT ROWID took 1.5 times as
    # long and 10 to 20 % more bytes: such tables lack SQLite's fast path for appending, and move
    # values larger than a quarter of a page to pages of their own.
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        epoch INTEGER NOT NULL,
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload BLOB NOT NULL
    ) STRICT""",
    # `seq` is 0 for a deletion.
    """CREATE TABLE feed (
        no INTEGER PRIMARY KEY,
        agent_id TEXT NOT NULL,
        definition TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        payload BLOB NOT NULL
    ) STRICT""",
    f"PRAGMA application_id = {_APPLICATION}",
    columns=_COLUMNS,
    first_row=_FIRST_ROW,
    upgrades=UPGRADES,
    value="?",
)


def check_tables(connection: sqlite3.Connection) -> int | None:
    """Check that this file is a store, and of a format that this version reads or upgrades.

    Returns:
        The version of its format; None if it is empty.

    Raises:
        SchemaVersionError: if it has another format.
        StoreBroken: if the file belongs to another program, or this SQLite is too old.
        StoreDamaged: if it does not say which format it has.

    """
    _check_program(connection)
    return TABLES.check(connection)


def check_tables_to_read(connection: sqlite3.Connection) -> bool:
    """As `check_tables`, for who changes nothing. Returns whether the file has tables."""
    _check_program(connection)
    return TABLES.check_to_read(connection)


def _check_program(connection: sqlite3.Connection) -> None:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise StoreBroken(
            cause=f"this Python has SQLite {sqlite3.sqlite_version}",
            remedy="Use a Python with SQLite 3.37 or newer.",
        )
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    is_used = application or connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    if application != _APPLICATION and is_used:
        raise StoreBroken(
            cause="this SQLite file belongs to another program",
            remedy="Give the store a file of its own.",
        )

"""The tables of a SQLite store: made at the first opening, checked at each one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from understudy.errors import StoreBroken
from understudy.journal.sql_tables import (
    AGENTS_TABLE,
    FEED_TABLE,
    META_TABLE,
    TABLES_OF_AGENTS,
    sqlite_form,
)
from understudy.journal.store_format import Tables

SEQ_BITS = 32
"""A record's row id is `key << SEQ_BITS | seq`, with the key of its agent: an agent's records are
adjacent, in order."""

_APPLICATION = 0x756E6473  # "unds": names the program that a SQLite file belongs to
_OLDEST_SQLITE = (3, 37, 0)  # the first with STRICT tables

UPGRADES: dict[int, Sequence[str]] = {}
"""The statements that make tables of format n + 1 of the tables of format n, by n."""

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
    sqlite_form(
        META_TABLE.format(
            own="""only bigint PRIMARY KEY CHECK (only = 1),
        database text NOT NULL,
        tenure bigint NOT NULL,
        host text,
        restored_mark bigint NOT NULL,
        feed_on boolean NOT NULL,
        feed text NOT NULL,
        feed_floor bigint NOT NULL,
        """
        )
    ),
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
    sqlite_form(FEED_TABLE.format(own="no bigint PRIMARY KEY", key="")),
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

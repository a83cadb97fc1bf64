"""The tables of a SQLite store: made at the first opening, checked at each one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from understudy.errors import StoreBroken
from understudy.journal.store_format import Columns, Tables
from understudy.state.record_format import FORMAT_VERSION

SEQ_BITS = 32
"""A record's row id is `agent_no << SEQ_BITS | seq`: an agent's records are adjacent, in order."""

_APPLICATION = 0x756E6473  # "unds": names the program that a SQLite file belongs to
_OLDEST_SQLITE = (3, 37, 0)  # the first with STRICT tables

UPGRADES: dict[int, Sequence[str]] = {}
"""By n, the statements that make tables of format n + 1 of those of format n."""

TABLES = Tables(
    "SQLite file",
    # `version`, `library` and `format` say what wrote the file. `key_secret` is that of the hashes
    # of keys.
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
        key_secret BLOB NOT NULL
    ) STRICT""",
    # A row is never deleted: after a deletion it is the tombstone, which keeps the epoch.
    # `definition` is the name of the agent's. `tenure` is the one in which the agent was claimed
    # last, so a new tenure, one row of `meta`, ends all claims at once. `mark` is the transaction
    # that changed its records last; each append writes this row anyway, so the mark costs no
    # further page. There are `ask_count` rows of it in `asks`.
    """CREATE TABLE agents (
        no INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        definition TEXT NOT NULL,
        incarnation INTEGER NOT NULL DEFAULT 1,
        epoch INTEGER NOT NULL DEFAULT 1,
        last_seq INTEGER NOT NULL DEFAULT 0,
        floor INTEGER NOT NULL DEFAULT 0,
        index_status TEXT NOT NULL DEFAULT 'rest',
        tenure INTEGER,
        mark INTEGER NOT NULL,
        deleted INTEGER NOT NULL DEFAULT 0,
        due INTEGER,
        status TEXT NOT NULL DEFAULT 'idle',
        status_at INTEGER,
        ask_count INTEGER NOT NULL DEFAULT 0,
        run_version TEXT
    ) STRICT""",
    "CREATE INDEX agents_by_index_status ON agents (index_status, id) WHERE NOT deleted",
    "CREATE INDEX agents_by_due ON agents (due, id) WHERE due IS NOT NULL AND NOT deleted",
    "CREATE INDEX agents_by_status ON agents (status, id) WHERE NOT deleted",
    "CREATE INDEX agents_by_definition ON agents (definition, id) WHERE NOT deleted",
    """CREATE INDEX agents_by_change ON agents (status_at, id)
        WHERE status_at IS NOT NULL AND NOT deleted""",
    # `id` is agent_no << 32 | seq. A key of two columns in a table WITHOUT ROWID took 1.5 times as
    # long and 10 to 20 % more bytes: such tables lack SQLite's fast path for appending, and move
    # values larger than a quarter of a page to pages of their own.
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        epoch INTEGER NOT NULL,
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload BLOB NOT NULL
    ) STRICT""",
    # What agents ask; `agent` is the `no` of the agent. `expires_at` is the largest number for what
    # does not expire. `version` and `payload` are of the record that asks.
    """CREATE TABLE asks (
        no INTEGER PRIMARY KEY,
        agent INTEGER NOT NULL,
        id TEXT NOT NULL,
        definition TEXT NOT NULL,
        kind TEXT NOT NULL,
        tool TEXT NOT NULL,
        asked_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        reminders INTEGER NOT NULL,
        escalations INTEGER NOT NULL,
        version INTEGER NOT NULL,
        payload BLOB NOT NULL,
        UNIQUE (agent, id)
    ) STRICT""",
    "CREATE INDEX asks_by_age ON asks (kind, asked_at, no)",
    "CREATE INDEX asks_by_expiry ON asks (kind, expires_at, no)",
    "CREATE INDEX asks_by_tool ON asks (kind, tool, asked_at, no)",
    "CREATE INDEX asks_by_definition ON asks (kind, definition, asked_at, no)",
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
    # One of each agent, by its number. The ids of segments are as those of records: an agent's are
    # adjacent. No column is text: one that is damaged must not keep a row from being read.
    """CREATE TABLE checkpoints (
        agent INTEGER PRIMARY KEY,
        incarnation INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        head BLOB NOT NULL,
        crc INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE checkpoint_segments (
        id INTEGER PRIMARY KEY,
        messages INTEGER NOT NULL,
        payload BLOB NOT NULL,
        crc INTEGER NOT NULL
    ) STRICT""",
    # The bytes of files, of each agent, by its number.
    """CREATE TABLE blobs (
        agent INTEGER NOT NULL,
        hash BLOB NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (agent, hash)
    ) STRICT, WITHOUT ROWID""",
    # The ids of old messages of each agent, by its number, with the runs that took them.
    """CREATE TABLE message_runs (
        agent INTEGER NOT NULL,
        message_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        PRIMARY KEY (agent, message_id)
    ) STRICT, WITHOUT ROWID""",
    # Which calls have a key (`@tool(key=)`), by its hash. `agent` is the `no` of the agent. `place`
    # is the order in which the calls took it: the second one by a person's word, or behind one that
    # is done. `done_at` is null until a call is done. `kept_until` is null while it is open or in
    # doubt; with a null `done_at` its agent was deleted meanwhile.
    """CREATE TABLE call_keys (
        hash BLOB NOT NULL,
        place INTEGER NOT NULL,
        agent INTEGER NOT NULL,
        incarnation INTEGER NOT NULL,
        call_key TEXT NOT NULL,
        tool TEXT NOT NULL,
        tool_call_id TEXT NOT NULL,
        taken_at INTEGER NOT NULL,
        kept INTEGER NOT NULL,
        done_at INTEGER,
        kept_until INTEGER,
        PRIMARY KEY (hash, place),
        UNIQUE (agent, incarnation, call_key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX call_keys_by_end ON call_keys (kept_until) WHERE kept_until IS NOT NULL",
    f"PRAGMA application_id = {_APPLICATION}",
    upgrades=UPGRADES,
)
_COLUMNS = """
    SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'
"""
_SAID = "SELECT version, library, format FROM meta"
_FIRST_ROW = """
    INSERT INTO meta (only, version, library, format, database, tenure, restored_mark, feed_on,
        feed, feed_floor, key_secret)
    VALUES (1, ?, ?, ?, lower(hex(randomblob(8))), 0, -1, 0, lower(hex(randomblob(8))), 0,
        randomblob(32))
"""
_NEXT_FORMAT = "UPDATE meta SET version = ?, library = ?, format = ?"


def check_tables(connection: sqlite3.Connection) -> int | None:
    """Check that this file is a store, and of a format that this version reads or upgrades.

    Returns:
        The version of its format; None if it is empty.

    Raises:
        SchemaVersionError: if it has another format.
        StoreBroken: if the file belongs to another program, or this SQLite is too old.
        StoreDamaged: if it does not say which format it has.

    """
    return TABLES.check(_columns(connection), lambda: _said(connection))


def check_tables_to_read(connection: sqlite3.Connection) -> bool:
    """As `check_tables`, for who changes nothing. Returns whether the file has tables."""
    return TABLES.check_to_read(_columns(connection), lambda: _said(connection))


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables, or upgrade those of an earlier format. Call it inside a transaction.

    Raises:
        As `check_tables`.

    """
    version = check_tables(connection)
    if version == FORMAT_VERSION:
        return
    for statement in TABLES.statements_from(version):
        # SQLite keeps the text: without its indentation all of them need a page less.
        connection.execute(" ".join(statement.split()))
    connection.execute(_FIRST_ROW if version is None else _NEXT_FORMAT, TABLES.format)
    check_tables(connection)  # finds what an upgrade has left out


def _columns(connection: sqlite3.Connection) -> Columns:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise StoreBroken(
            cause=f"this Python has SQLite {sqlite3.sqlite_version}",
            remedy="Use a Python with SQLite 3.37 or newer.",
        )
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != _APPLICATION:
        if connection.execute("SELECT 1 FROM sqlite_schema").fetchone() or application:
            raise StoreBroken(
                cause="this SQLite file belongs to another program",
                remedy="Give the store a file of its own.",
            )
        return {}
    found: dict[str, list[str]] = {}
    for table, column in connection.execute(_COLUMNS):
        found.setdefault(table, []).append(column)
    return found


def _said(connection: sqlite3.Connection) -> tuple[Any, ...] | None:
    row: tuple[Any, ...] | None = connection.execute(_SAID).fetchone()
    return row

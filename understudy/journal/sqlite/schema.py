"""The tables of a SQLite store: created, checked and upgraded to this version."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from understudy.errors import SchemaVersionError, StoreBroken, StoreDamaged
from understudy.journal.call_keys import SECRET_BYTES

SCHEMA_VERSION = 2
SEQ_BITS = 32
"""A record's row id is `agent_no << SEQ_BITS | seq`: an agent's records are adjacent, in order."""
# An agent that version 1 has written last has an `indexed_seq` that is behind: what else its row
# says does not hold, until its records are read.
_INDEXES = (
    "CREATE INDEX agents_by_due ON agents (due, id) WHERE due IS NOT NULL AND NOT deleted",
    "CREATE INDEX agents_by_status ON agents (status, id) WHERE NOT deleted",
    "CREATE INDEX agents_by_name ON agents (agent, id) WHERE NOT deleted",
    """CREATE INDEX agents_by_change ON agents (status_at, id)
        WHERE status_at IS NOT NULL AND NOT deleted""",
)
# What agents ask; `agent` is the `no` of the agent, `name` its definition. `expires_at` is the
# largest number for what does not expire. `version` and `payload` are of the record that asks.
_ASKS = (
    """CREATE TABLE asks (
        no INTEGER PRIMARY KEY,
        agent INTEGER NOT NULL,
        id TEXT NOT NULL,
        name TEXT NOT NULL,
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
    "CREATE INDEX asks_by_name ON asks (kind, name, asked_at, no)",
)
# The feed. `floor` is the `no` of the last row that was removed; the newest row never is, so that
# no number is used twice. `seq` is 0 for a deletion.
_FEED = (
    """CREATE TABLE feed (
        no INTEGER PRIMARY KEY,
        agent_id TEXT NOT NULL,
        name TEXT NOT NULL,
        seq INTEGER NOT NULL,
        at INTEGER,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        payload BLOB NOT NULL
    ) STRICT""",
    """CREATE TABLE feed_state (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        is_on INTEGER NOT NULL,
        feed TEXT NOT NULL,
        floor INTEGER NOT NULL
    ) STRICT""",
    "INSERT INTO feed_state VALUES (1, 0, lower(hex(randomblob(8))), 0)",
)
# One of each agent, by its number. The ids of segments are as those of records: an agent's are
# adjacent. No column is text: one that is damaged must not keep a row from being read.
_CHECKPOINTS = (
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
)
# The bytes of files, of each agent, by its number.
_BLOBS = (
    """CREATE TABLE blobs (
        agent INTEGER NOT NULL,
        hash BLOB NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (agent, hash)
    ) STRICT, WITHOUT ROWID""",
)
# The ids of old messages of each agent, by its number, with the runs that took them.
_MESSAGE_RUNS = (
    """CREATE TABLE message_runs (
        agent INTEGER NOT NULL,
        message_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        PRIMARY KEY (agent, message_id)
    ) STRICT, WITHOUT ROWID""",
)
# Which calls have a key (`@tool(key=)`), by its hash, and the secret of the hashes. `agent` is the
# `no` of the agent. `place` is the order in which the calls took it: the second one by a person's
# word, or behind one that is done. `done_at` is null until a call is done. `kept_until` is null
# while it is open or in doubt; with a null `done_at` its agent was deleted meanwhile.
_CALL_KEYS = (
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
    """CREATE TABLE key_secret (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        secret BLOB NOT NULL
    ) STRICT""",
    f"INSERT INTO key_secret VALUES (1, randomblob({SECRET_BYTES}))",  # noqa: S608 - a constant
)
SCHEMA_UPGRADES: Mapping[int, Sequence[str]] = MappingProxyType(
    {
        1: (
            "ALTER TABLE agents ADD COLUMN due INTEGER",
            "ALTER TABLE agents ADD COLUMN indexed_seq INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE agents ADD COLUMN status TEXT NOT NULL DEFAULT 'idle'",
            "ALTER TABLE agents ADD COLUMN status_at INTEGER",
            "ALTER TABLE agents ADD COLUMN asking INTEGER NOT NULL DEFAULT 0",
            "ALTER TABLE agents ADD COLUMN run_version TEXT",
            *_INDEXES,
            *_ASKS,
            *_FEED,
            *_CHECKPOINTS,
            *_BLOBS,
            *_MESSAGE_RUNS,
            *_CALL_KEYS,
        )
    }
)
"""The statements that make version n + 1 out of version n."""

_APPLICATION = 0x756E6473  # "unds": names the program that a SQLite file belongs to
_OLDEST_SQLITE = (3, 37, 0)  # the first with STRICT tables

# A row of `agents` is never deleted: after a deletion it is the tombstone, which keeps the epoch.
# `tenure` is the one in which the agent was claimed last, so a new tenure, one row of `meta`, ends
# all claims at once. `mark` is the transaction that changed its records last; each append writes
# this row anyway, so the mark costs no further page. `due`, `status` and the rows of `asks`, of
# which there are `asking`, hold if `indexed_seq` is `last_seq`.
# `records.id` is agent_no << 32 | seq. A key of two columns in a table WITHOUT ROWID took 1.5
# times as long and 10 to 20 % more bytes: such tables lack SQLite's fast path for appending, and
# move values larger than a quarter of a page to pages of their own.
_TABLES = (
    """CREATE TABLE meta (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        version INTEGER NOT NULL,
        database TEXT NOT NULL,
        tenure INTEGER NOT NULL,
        host TEXT,
        restored_mark INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE agents (
        no INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        floor INTEGER NOT NULL,
        standing TEXT NOT NULL,
        tenure INTEGER,
        mark INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        due INTEGER,
        indexed_seq INTEGER NOT NULL DEFAULT 0,
        status TEXT NOT NULL DEFAULT 'idle',
        status_at INTEGER,
        asking INTEGER NOT NULL DEFAULT 0,
        run_version TEXT
    ) STRICT""",
    "CREATE INDEX agents_by_standing ON agents (standing, id) WHERE NOT deleted",
    *_INDEXES,
    *_ASKS,
    *_FEED,
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        epoch INTEGER NOT NULL,
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload BLOB NOT NULL
    ) STRICT""",
    *_CHECKPOINTS,
    *_BLOBS,
    *_MESSAGE_RUNS,
    *_CALL_KEYS,
    f"PRAGMA application_id = {_APPLICATION}",
)
_FIRST_ROW = """
    INSERT INTO meta (only, version, database, tenure, restored_mark)
    VALUES (1, ?, lower(hex(randomblob(8))), 0, -1)
"""


def check_tables(connection: sqlite3.Connection, *, known: int = SCHEMA_VERSION) -> int:
    """Check that this file is a store that this version can read.

    Returns:
        The version of its tables; 0 if it is empty.

    Raises:
        SchemaVersionError: if a newer version of this library made them.
        StoreBroken: if the file belongs to another program, or this SQLite is too old.

    """
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
        return 0
    (version,) = connection.execute("SELECT version FROM meta").fetchone()
    if version > known:
        raise SchemaVersionError(version=version, known=known, what="database")
    if version < 1:
        raise StoreDamaged(what="the table `meta`", cause=f"its version is {version}")
    return int(version)


def make_tables(
    connection: sqlite3.Connection,
    *,
    version: int = SCHEMA_VERSION,
    upgrades: Mapping[int, Sequence[str]] = SCHEMA_UPGRADES,
) -> None:
    """Create the tables, or upgrade older ones to `version`. Call it inside a transaction.

    Raises:
        SchemaVersionError: if a newer version of this library made them.
        StoreBroken: if the file belongs to another program, or this SQLite is too old.

    """
    found = check_tables(connection, known=version)
    if found == 0:
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute(_FIRST_ROW, (SCHEMA_VERSION,))
        found = SCHEMA_VERSION
    for older in range(found, version):
        for statement in upgrades[older]:
            connection.execute(statement)
        connection.execute("UPDATE meta SET version = ?", (older + 1,))

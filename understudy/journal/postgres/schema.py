"""The tables of the PostgreSQL store: created at the first opening, upgraded by a newer version.

Imported only where psycopg is installed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from understudy.errors import SchemaVersionError, StoreBroken

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection, PsycopgConnection

_log = logging.getLogger(__name__)

# Which calls have a key (`@tool(key=)`), by its hash, and the secret of the hashes. `place` is the
# order in which the calls took it: the second one by a person's word, or behind one that is done.
# `done_at` is null until a call is done. `kept_until` is null while it is open or in doubt; with a
# null `done_at` its agent was deleted meanwhile. A uuid of the server has 122 random bits.
CALL_KEYS = (
    """CREATE TABLE call_keys (
        hash bytea NOT NULL,
        place integer NOT NULL,
        agent bigint NOT NULL,
        incarnation bigint NOT NULL,
        call_key text NOT NULL,
        tool text NOT NULL,
        tool_call_id text NOT NULL,
        taken_at bigint NOT NULL,
        kept bigint NOT NULL,
        done_at bigint,
        kept_until bigint,
        PRIMARY KEY (hash, place),
        UNIQUE (agent, incarnation, call_key)
    )""",
    "CREATE INDEX call_keys_by_end ON call_keys (kept_until) WHERE kept_until IS NOT NULL",
    "CREATE TABLE key_secret (secret bytea NOT NULL)",
    "INSERT INTO key_secret VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))",
)
UPGRADES: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE schema_version (version integer NOT NULL)",
        "INSERT INTO schema_version VALUES (0)",
        # A row is updated in place while its page has room: a heartbeat leaves no dead rows.
        """CREATE TABLE hosts (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name text NOT NULL,
            opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            lease_until timestamptz NOT NULL
        ) WITH (fillfactor = 50)""",
        # Ids are compared by their bytes, as in the other stores, whatever the database's language.
        # An owner without a row in `hosts` owns nothing: so a host releases all agents at once.
        """CREATE TABLE agents (
            key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent_id text COLLATE "C" NOT NULL UNIQUE,
            agent text NOT NULL,
            incarnation bigint NOT NULL DEFAULT 1,
            epoch bigint NOT NULL DEFAULT 1,
            last_seq bigint NOT NULL DEFAULT 0,
            floor bigint NOT NULL DEFAULT 0,
            standing text NOT NULL DEFAULT 'rest',
            deleted boolean NOT NULL DEFAULT false,
            owner bigint
        ) WITH (fillfactor = 70)""",
        "CREATE INDEX agents_by_standing ON agents (standing, agent_id) WHERE NOT deleted",
        """CREATE TABLE records (
            agent bigint NOT NULL,
            seq bigint NOT NULL,
            incarnation bigint NOT NULL,
            epoch bigint NOT NULL,
            kind text NOT NULL,
            version integer NOT NULL,
            payload bytea NOT NULL,
            PRIMARY KEY (agent, seq)
        )""",
    ),
    (
        # `due`, `status` and the rows of `asks`, of which there are `asking`, hold if `indexed_seq`
        # is `last_seq`: a host of the version before writes none of them. `indexed_seq` is in no
        # index: an append that changes neither status nor due time writes no index.
        "ALTER TABLE agents ADD COLUMN due bigint",
        "ALTER TABLE agents ADD COLUMN indexed_seq bigint NOT NULL DEFAULT 0",
        """CREATE INDEX agents_by_due ON agents (due, agent_id)
            WHERE due IS NOT NULL AND NOT deleted""",
        "ALTER TABLE agents ADD COLUMN status text NOT NULL DEFAULT 'idle'",
        "ALTER TABLE agents ADD COLUMN status_at bigint",
        "ALTER TABLE agents ADD COLUMN asking integer NOT NULL DEFAULT 0",
        "CREATE INDEX agents_by_status ON agents (status, agent_id) WHERE NOT deleted",
        "CREATE INDEX agents_by_name ON agents (agent, agent_id) WHERE NOT deleted",
        """CREATE INDEX agents_by_change ON agents (status_at, agent_id)
            WHERE status_at IS NOT NULL AND NOT deleted""",
        # What agents ask; `name` is the definition of the agent. `expires_at` is the largest number
        # for what does not expire. `version` and `payload` are those of the record that asks.
        """CREATE TABLE asks (
            no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent bigint NOT NULL,
            id text COLLATE "C" NOT NULL,
            name text NOT NULL,
            kind text NOT NULL,
            tool text NOT NULL,
            asked_at bigint NOT NULL,
            expires_at bigint NOT NULL,
            reminders integer NOT NULL,
            escalations integer NOT NULL,
            version integer NOT NULL,
            payload bytea NOT NULL,
            UNIQUE (agent, id)
        )""",
        "CREATE INDEX asks_by_age ON asks (kind, asked_at, no)",
        "CREATE INDEX asks_by_expiry ON asks (kind, expires_at, no)",
        "CREATE INDEX asks_by_tool ON asks (kind, tool, asked_at, no)",
        "CREATE INDEX asks_by_name ON asks (kind, name, asked_at, no)",
        # The feed. The order of numbers is not the order of commits: rows are read in the order of
        # their transactions, below the oldest one that is open. `floor_xid` and `floor` are the
        # last row that was removed. `seq` is 0 for a deletion.
        """CREATE TABLE feed (
            xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
            no bigint GENERATED ALWAYS AS IDENTITY,
            agent_id text NOT NULL,
            name text NOT NULL,
            seq bigint NOT NULL,
            at bigint,
            kind text NOT NULL,
            version integer NOT NULL,
            payload bytea NOT NULL,
            PRIMARY KEY (xid, no)
        )""",
        """CREATE TABLE feed_state (
            is_on boolean NOT NULL,
            feed text NOT NULL,
            floor_xid bigint NOT NULL,
            floor bigint NOT NULL
        )""",
        "INSERT INTO feed_state VALUES (false, md5(clock_timestamp()::text), 0, 0)",
        # The attempts at one run of each agent that were cut off by a takeover while their host
        # lived. Apart from `agents`: a fenced host must not lock the new owner's row.
        """CREATE TABLE lost_attempts (
            agent bigint PRIMARY KEY,
            run text NOT NULL,
            numbers integer[] NOT NULL
        )""",
        # One of each agent. A host of the version before deletes none: so a checkpoint holds for
        # its incarnation, from the floor up.
        """CREATE TABLE checkpoints (
            agent bigint PRIMARY KEY,
            incarnation bigint NOT NULL,
            seq bigint NOT NULL,
            head bytea NOT NULL,
            crc bigint NOT NULL
        )""",
        """CREATE TABLE checkpoint_segments (
            agent bigint NOT NULL,
            number integer NOT NULL,
            messages integer NOT NULL,
            payload bytea NOT NULL,
            crc bigint NOT NULL,
            PRIMARY KEY (agent, number)
        )""",
        # Whether nothing of the agent goes on: then another host may take it from a living owner.
        # As `due`, it holds if `indexed_seq` is `last_seq`.
        "ALTER TABLE agents ADD COLUMN takeable boolean NOT NULL DEFAULT false",
        # The channel on which a host listens; null: it is never taken from, and nothing is posted
        # to it, as to one of the version before.
        "ALTER TABLE hosts ADD COLUMN ear text",
        # Calls of one host to an agent that runs at another one. `id` is the order in which those
        # of one agent are done. `nonce` tells a call that is posted again because the answer to the
        # commit was lost. `reply` is null until it is done. `begun`: it is done once at most, and
        # this attempt has begun it.
        """CREATE TABLE inbox (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent bigint NOT NULL,
            incarnation bigint NOT NULL,
            nonce text NOT NULL UNIQUE,
            kind text NOT NULL,
            body bytea NOT NULL,
            asker bigint NOT NULL,
            asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
            begun text,
            reply bytea
        )""",
        "CREATE INDEX inbox_by_agent ON inbox (agent, id) WHERE reply IS NULL",
        # Which process a host is, where that is known (`journal.postgres.sharing.processes`), and
        # what it has.
        "ALTER TABLE hosts ADD COLUMN place text",
        "ALTER TABLE hosts ADD COLUMN pid bigint",
        "ALTER TABLE hosts ADD COLUMN started bigint",
        "ALTER TABLE hosts ADD COLUMN labels text[] NOT NULL DEFAULT '{}'",
        "ALTER TABLE hosts ADD COLUMN definitions bigint[] NOT NULL DEFAULT '{}'",
        "ALTER TABLE hosts ADD COLUMN draining boolean NOT NULL DEFAULT false",
        # The definitions that hosts have, or had. Of one version, the one with the higher `no` is
        # newer. `needs` and `continues_older` are as the last host of it said.
        """CREATE TABLE definitions (
            no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            agent text COLLATE "C" NOT NULL,
            fingerprint text COLLATE "C" NOT NULL,
            version bigint NOT NULL,
            needs text[] NOT NULL,
            continues_older boolean NOT NULL,
            UNIQUE (agent, fingerprint)
        )""",
        # The fingerprint under which the open run was begun; null: none is open, or it is unknown.
        # As `due`, it holds if `indexed_seq` is `last_seq`.
        "ALTER TABLE agents ADD COLUMN run_version text",
        """CREATE INDEX agents_with_open_run ON agents (agent_id)
            WHERE run_version IS NOT NULL AND NOT deleted""",
        # The bytes of files. A host of the version before deletes none where it compacts or deletes
        # an agent: the next compaction or deletion by a newer one does.
        """CREATE TABLE blobs (
            agent bigint NOT NULL,
            hash bytea NOT NULL,
            payload bytea NOT NULL,
            PRIMARY KEY (agent, hash)
        )""",
        # The ids of old messages of each agent, with the runs that took them.
        """CREATE TABLE message_runs (
            agent bigint NOT NULL,
            message_id text NOT NULL,
            run_id text NOT NULL,
            PRIMARY KEY (agent, message_id)
        )""",
        *CALL_KEYS,
    ),
)
"""The n-th upgrades version n of the tables to n + 1. Only add to tables: hosts of the version
before may continue to write."""

SERVER = "SELECT getdatabaseencoding(), current_setting('fsync')"
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(x'756e64657273'::bigint)"
"""Held by the host that makes or upgrades the tables."""

VERSION_TABLE = """
SELECT EXISTS (
    SELECT FROM pg_class WHERE relname = 'schema_version' AND relnamespace = n.oid
) FROM pg_namespace n WHERE nspname = %s"""
"""Whether there is the schema (a row), and the table (its value). From the catalogue itself:
`to_regclass` and its like read a cache, which lacks what another host made while we waited for its
lock (test_several_hosts_may_open_a_new_store_at_once)."""

VERSION = "SELECT version FROM schema_version"
SET_VERSION = "UPDATE schema_version SET version = %s"


def check_server(connection: PostgresConnection, *, durable: bool) -> None:
    """Check that the database can store every text, and whether a commit can be durable.

    Raises:
        StoreBroken: if its encoding is not UTF-8.

    """
    with connection.use() as server:
        ((encoding, fsync),) = server.execute(SERVER).fetchall()
    if encoding != "UTF8":
        raise StoreBroken(
            cause=f"the database's encoding is {encoding}",
            remedy="Create the database with ENCODING 'UTF8'.",
        )
    if durable and fsync == "off":
        _log.warning("fsync is off on the server: a crash of its machine may lose everything")


def prepare_schema(connection: PostgresConnection, schema: str) -> None:
    """Create or upgrade the tables. Of several hosts that try at once, one does it.

    Raises:
        SchemaVersionError: if a newer version of this library made them.

    """
    with connection.use() as server:
        if _version(server, schema)[0] == len(UPGRADES):
            return
        with server.transaction():
            server.execute("SET LOCAL lock_timeout = '60s'")  # while another host does it
            server.execute("SET LOCAL statement_timeout = 0")
            server.execute(LOCK_SCHEMA)
            # Under the lock, the version is read again: another host may have upgraded meanwhile
            # (test_several_hosts_may_open_a_new_store_at_once).
            _upgrade(server, schema)


def check_schema(connection: PostgresConnection, schema: str) -> None:
    """Check that this version made the tables.

    Raises:
        SchemaVersionError: if another version did.
        StoreBroken: if there are none.

    """
    with connection.use() as server:
        version, _ = _version(server, schema)
    if version == 0:
        raise StoreBroken(
            cause=f"the database has no tables in the schema {schema!r}",
            remedy="Open the store by a runtime first, which makes them.",
        )
    if version != len(UPGRADES):  # a runtime upgrades them; who reads changes nothing
        raise SchemaVersionError(version=version, known=len(UPGRADES), what="database")


def _upgrade(server: PsycopgConnection, schema: str) -> None:
    version, has_schema = _version(server, schema)
    if not has_schema:  # IF NOT EXISTS needs the right to create even if it exists
        server.execute(f"CREATE SCHEMA {schema}")
    for statements in UPGRADES[version:]:
        for statement in statements:
            server.execute(statement)
    server.execute(SET_VERSION, [len(UPGRADES)])


def _version(server: PsycopgConnection, schema: str) -> tuple[int, bool]:
    """The version of the tables (0: there are none), and whether the schema exists."""
    found = server.execute(VERSION_TABLE, [schema]).fetchall()
    if found != [(True,)]:
        return 0, bool(found)
    ((version,),) = server.execute(VERSION).fetchall()
    if version > len(UPGRADES):
        raise SchemaVersionError(version=version, known=len(UPGRADES), what="database")
    return version, True

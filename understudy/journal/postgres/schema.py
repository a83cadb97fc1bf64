"""The tables of the PostgreSQL store: made at the first opening, checked at each one.

Imported only where psycopg is installed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from understudy.errors import StoreBroken
from understudy.journal.postgres.spending_sql import SPENDING
from understudy.journal.sql_tables import AGENTS_TABLE, FEED_TABLE, META_TABLE, TABLES_OF_AGENTS
from understudy.journal.store_format import Tables
from understudy.state.record_format import FORMAT_VERSION

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection

_log = logging.getLogger(__name__)

UPGRADES: dict[int, Sequence[str]] = {}
"""The statements that make tables of format n + 1 of the tables of format n, by n."""

_COLUMNS = """
SELECT t.relname, c.attname
FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_attribute c ON c.attrelid = t.oid
WHERE n.nspname = current_setting('search_path') AND t.relkind IN ('r', 'p') AND c.attnum > 0
    AND NOT c.attisdropped"""
"""The columns of the store's tables, from the catalogue itself: `to_regclass` and its like read a
cache, which lacks what another host made while we waited for its lock
(test_several_hosts_may_open_a_new_store_at_once)."""

FIRST_ROW = """
INSERT INTO meta (version, library, format, key_secret)
VALUES (%s, %s, %s, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))"""
"""A uuid of the server has 122 random bits."""

TABLES = Tables(
    "PostgreSQL database",
    META_TABLE.format(own=""),
    # A row is updated in place while its page has room: a heartbeat leaves no dead rows. `channel`
    # is the one on which the host listens; null: it is never taken from, and nothing is posted to
    # it. `place`, `pid` and `started` say which process it is, where that is known
    # (`journal.postgres.sharing.processes`). `trust` is the number of the last fact of the log of
    # trust by which the host judges. `has` is what it has, of what a store may require.
    """CREATE TABLE hosts (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL,
        opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        lease_until timestamptz NOT NULL,
        channel text,
        place text,
        pid bigint,
        started bigint,
        labels text[] NOT NULL DEFAULT '{}',
        definitions bigint[] NOT NULL DEFAULT '{}',
        draining boolean NOT NULL DEFAULT false,
        trust bigint NOT NULL DEFAULT 0,
        has text[] NOT NULL DEFAULT '{}'
    ) WITH (fillfactor = 50)""",
    # The definitions that hosts have, or had. Of one version, the one with the higher `no` is
    # newer. `needs` and `continues_older` are as the last host of it said.
    """CREATE TABLE definitions (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL,
        fingerprint text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        needs text[] NOT NULL,
        continues_older boolean NOT NULL,
        UNIQUE (name, fingerprint)
    )""",
    # An owner without a row in `hosts` owns nothing: so a host releases all agents at once.
    # `takeable`: nothing of it goes on, so another host may take it from a living owner.
    AGENTS_TABLE.format(own="owner bigint,\n        takeable boolean NOT NULL DEFAULT false")
    + " WITH (fillfactor = 70)",
    *TABLES_OF_AGENTS,
    """CREATE INDEX agents_with_open_run ON agents (agent_id)
        WHERE run_version IS NOT NULL AND NOT deleted""",
    # They are of the incarnation that the row of the agent has. The columns are small because most
    # rows are: 100 to 300 bytes.
    """CREATE TABLE records (
        agent bigint NOT NULL,
        seq integer NOT NULL,
        epoch integer NOT NULL,
        version smallint NOT NULL,
        kind text NOT NULL,
        payload bytea NOT NULL,
        PRIMARY KEY (agent, seq)
    )""",
    # The order of numbers is not the order of commits: rows are read in the order of their
    # transactions, below the oldest one that is open.
    FEED_TABLE.format(
        own="""xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
        no bigint GENERATED ALWAYS AS IDENTITY""",
        key=",\n        PRIMARY KEY (xid, no)",
    ),
    # `floor_xid` and `floor` are the last row that was removed.
    """CREATE TABLE feed_state (
        is_on boolean NOT NULL,
        feed text NOT NULL,
        floor_xid bigint NOT NULL,
        floor bigint NOT NULL
    )""",
    "INSERT INTO feed_state VALUES (false, md5(clock_timestamp()::text), 0, 0)",
    # The attempts at one run of each agent that were cut off by a takeover while their host lived.
    # Apart from `agents`: a fenced host must not lock the new owner's row.
    """CREATE TABLE lost_attempts (
        agent bigint PRIMARY KEY,
        run text NOT NULL,
        numbers integer[] NOT NULL
    )""",
    # Calls of one host to an agent that runs at another one. `id` is the order in which those of
    # one agent are done. `nonce` tells a call that is posted again because the answer to the commit
    # was lost. `reply` is null until it is done. `begun`: it is done once at most, and this attempt
    # has begun it.
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
    *SPENDING,
    columns=_COLUMNS,
    first_row=FIRST_ROW,
    upgrades=UPGRADES,
)

_SERVER = "SELECT getdatabaseencoding(), current_setting('fsync')"
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(x'756e64657273'::bigint)"
"""Held by the host that makes or upgrades the tables."""

_HAS_SCHEMA = "SELECT 1 FROM pg_namespace WHERE nspname = current_setting('search_path')"


def check_server(connection: PostgresConnection, *, durable: bool) -> None:
    """Check that the database can store every text, and whether a commit can be durable.

    Raises:
        StoreBroken: if its encoding is not UTF-8.

    """
    with connection.use() as server:
        ((encoding, fsync),) = server.execute(_SERVER).fetchall()
    if encoding != "UTF8":
        raise StoreBroken(
            cause=f"the database's encoding is {encoding}",
            remedy="Create the database with ENCODING 'UTF8'.",
        )
    if durable and fsync == "off":
        _log.warning("fsync is off on the server: a crash of its machine may lose everything")


def prepare_schema(connection: PostgresConnection, schema: str) -> None:
    """Make the tables, or upgrade those of an earlier format. Of several hosts, one does it.

    Raises:
        SchemaVersionError: if the store has another format.
        StoreDamaged: if it does not say which.

    """
    with connection.use() as server:
        if TABLES.check(server) == FORMAT_VERSION:
            return
        with server.transaction():
            server.execute("SET LOCAL lock_timeout = '60s'")  # while another host does it
            server.execute("SET LOCAL statement_timeout = 0")
            server.execute(LOCK_SCHEMA)
            if not server.execute(_HAS_SCHEMA).fetchall():
                # IF NOT EXISTS needs the right to create even if it exists
                server.execute(f"CREATE SCHEMA {schema}")
            # Under the lock, it is looked again: another host may have made them meanwhile
            # (test_several_hosts_may_open_a_new_store_at_once).
            TABLES.make(server)


def check_schema(connection: PostgresConnection, schema: str) -> None:
    """Check the tables, for who changes nothing.

    Raises:
        SchemaVersionError: if the store has another format.
        StoreDamaged: if it does not say which.
        StoreBroken: if there are no tables.

    """
    with connection.use() as server:
        found = TABLES.check_to_read(server)
    if not found:
        raise StoreBroken(
            cause=f"the database has no tables in the schema {schema!r}",
            remedy="Open the store by a runtime first, which makes them.",
        )

"""The tables of the PostgreSQL store: created at the first opening, upgraded by a newer version.

Imported only where psycopg is installed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from understudy.errors import SchemaVersionError, StoreBroken
from understudy.journal.postgres import sql

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection, PsycopgConnection

_log = logging.getLogger(__name__)


def check_server(connection: PostgresConnection, *, durable: bool) -> None:
    """Check that the database can store every text, and whether a commit can be durable.

    Raises:
        StoreBroken: if its encoding is not UTF-8.

    """
    with connection.use() as server:
        ((encoding, fsync),) = server.execute(sql.SERVER).fetchall()
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
        if _version(server, schema)[0] == len(sql.UPGRADES):
            return
        with server.transaction():
            server.execute("SET LOCAL lock_timeout = '60s'")  # while another host does it
            server.execute("SET LOCAL statement_timeout = 0")
            server.execute(sql.LOCK_SCHEMA)
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
    if version != len(sql.UPGRADES):  # a runtime upgrades them; who reads changes nothing
        raise SchemaVersionError(version=version, known=len(sql.UPGRADES), what="database")


def _upgrade(server: PsycopgConnection, schema: str) -> None:
    version, has_schema = _version(server, schema)
    if not has_schema:  # IF NOT EXISTS needs the right to create even if it exists
        server.execute(f"CREATE SCHEMA {schema}")
    for statements in sql.UPGRADES[version:]:
        for statement in statements:
            server.execute(statement)
    server.execute(sql.SET_VERSION, [len(sql.UPGRADES)])


def _version(server: PsycopgConnection, schema: str) -> tuple[int, bool]:
    """The version of the tables (0: there are none), and whether the schema exists."""
    found = server.execute(sql.VERSION_TABLE, [schema]).fetchall()
    if found != [(True,)]:
        return 0, bool(found)
    ((version,),) = server.execute(sql.VERSION).fetchall()
    if version > len(sql.UPGRADES):
        raise SchemaVersionError(version=version, known=len(sql.UPGRADES), what="database")
    return version, True

"""The tables of the PostgreSQL store: made at the first opening, upgraded by a newer version.

Imported only where psycopg is installed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from understudy.errors import SchemaVersionError, StoreBroken
from understudy.journal.postgres import sql

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import Connection, Line

__all__ = ["check_server", "prepare_schema"]

_log = logging.getLogger(__name__)


def check_server(line: Line, *, durable: bool) -> None:
    """Whether the server can keep what is asked of it.

    Raises:
        StoreBroken: if it cannot keep every text.

    """
    with line.use() as connection:
        ((encoding, fsync),) = connection.execute(sql.SERVER).fetchall()
    if encoding != "UTF8":
        raise StoreBroken(
            cause=f"the database's encoding is {encoding}",
            remedy="Create the database with ENCODING 'UTF8'.",
        )
    if durable and fsync == "off":
        _log.warning("fsync is off on the server: a crash of its machine may lose everything")


def prepare_schema(line: Line, schema: str) -> None:
    """Make the tables what this version needs; of several hosts that try, one does it.

    Raises:
        SchemaVersionError: if a newer version of this library made them.

    """
    with line.use() as connection:
        if _version(connection, schema)[0] == len(sql.UPGRADES):
            return
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '60s'")  # while another host does it
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute(sql.CREATE_LOCK)
            _upgrade(connection, schema)


def _upgrade(connection: Connection, schema: str) -> None:
    version, has_schema = _version(connection, schema)
    if not has_schema:  # not IF NOT EXISTS: that needs the right to create, even where it exists
        connection.execute(f"CREATE SCHEMA {schema}")
    for statements in sql.UPGRADES[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(sql.NOTE_VERSION, [len(sql.UPGRADES)])


def _version(connection: Connection, schema: str) -> tuple[int, bool]:
    """Of the tables (0: there are none), and whether there is the schema."""
    found = connection.execute(sql.VERSION_TABLE, [schema]).fetchall()
    if found != [(True,)]:
        return 0, bool(found)
    ((version,),) = connection.execute(sql.VERSION).fetchall()
    if version > len(sql.UPGRADES):
        raise SchemaVersionError(version=version, known=len(sql.UPGRADES), what="database")
    return version, True

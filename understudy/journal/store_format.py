"""The format of a store: its tables, what it says of itself, and whether this version reads it.

A store keeps who made it, in which format, in its table `meta`. At each opening that is compared
with the format of this version, and the columns of the tables with those that it makes. So a store
of another format is refused before anything is read or written.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeAlias

from understudy._base.json_values import digest
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.state.record_format import FORMAT_VERSION, record_format

Columns: TypeAlias = Mapping[str, Collection[str]]
"""The names of the columns of each table."""
Upgrades: TypeAlias = Mapping[int, Sequence[str]]

_SAID = "SELECT version, library, format FROM meta"
_NEXT_FORMAT = "UPDATE meta SET version = {0}, library = {0}, format = {0}"
_TABLE = re.compile(r"\s*CREATE TABLE (\w+) \(\n(.*)\n\s*\)", re.DOTALL)
_COLUMN = re.compile(r"^\s*([a-z]\w*) ", re.MULTILINE)


class StoreFormat(NamedTuple):
    """What a store says of itself: the columns of `meta` that no later format changes."""

    version: int
    library: str
    """The version of the library that made it, or upgraded it last."""
    format: str
    """The fingerprint of its record types and tables."""


@cache
def library_version() -> str:
    """The version of this library."""
    try:
        return importlib.metadata.version("understudy")
    except importlib.metadata.PackageNotFoundError:  # its files were copied, not installed
        return "unknown"


class Tables:
    """The tables of one kind of database.

    Args:
        what: the kind, for errors.
        statements: make the tables and their indexes. Each column of a table has a line of its own,
            which begins with its name; lines of constraints begin with a capital letter.
        columns: the query of the columns that there are, each with its table before it.
        first_row: inserts the row of `meta`, with the values of `format`.
        value: the place of a value in a statement.
        upgrades: the statements that make tables of format n + 1 of those of format n, by n.

    """

    def __init__(
        self,
        what: str,
        *statements: str,
        columns: str,
        first_row: str,
        upgrades: Upgrades,
        value: str = "%s",
    ) -> None:
        self.what = what
        self._columns = columns
        self._first_row = first_row
        self._next_format = _NEXT_FORMAT.format(value)
        self._statements = statements
        self._upgrades = upgrades
        made = (_TABLE.match(statement) for statement in statements)
        self.columns: Columns = {
            table[1]: frozenset(_COLUMN.findall(table[2])) for table in made if table is not None
        }

    @cached_property
    def format(self) -> StoreFormat:
        """What a store says of itself that this version makes."""
        words = [statement.split() for statement in self._statements]
        fingerprint = digest([record_format(), words])[:16]
        return StoreFormat(FORMAT_VERSION, library_version(), fingerprint)

    def statements_from(self, version: int | None) -> Sequence[str]:
        """Make the tables, or make them of those of an earlier format. See `check`."""
        if version is None:
            return self._statements
        steps = range(version, FORMAT_VERSION)
        return [statement for step in steps for statement in self._upgrades[step]]

    def make(self, database: Any) -> None:
        """Make the tables, or upgrade those of an earlier format. Call it in a transaction.

        Raises:
            As `check`.

        """
        version = self.check(database)
        if version == FORMAT_VERSION:
            return
        for statement in self.statements_from(version):
            # SQLite keeps the text: without its indentation all of them need a page less. A
            # function of PostgreSQL keeps its lines.
            database.execute(statement if "$$" in statement else " ".join(statement.split()))
        row = self._first_row if version is None else self._next_format
        database.execute(row, self.format)
        self.check(database)  # finds what an upgrade has left out

    def check(self, database: Any) -> int | None:
        """Check that a database has these tables, or some that can be upgraded to them.

        Other tables in the same database are none of ours. In ours each column counts: one that is
        not known here is not kept in step with the others.

        Args:
            database: a connection, of `sqlite3` or of psycopg.

        Returns:
            The version of its format; None if it has none of these tables.

        Raises:
            SchemaVersionError: if it has another format.
            StoreDamaged: if it does not say which.

        """
        found: dict[str, list[str]] = {}
        for table, column in database.execute(self._columns).fetchall():
            found.setdefault(table, []).append(column)
        if not found.keys() & self.columns.keys():
            return None
        said = self._said(found, database)
        if said is not None and said.version != FORMAT_VERSION:
            if said.version < FORMAT_VERSION and all(
                version in self._upgrades for version in range(said.version, FORMAT_VERSION)
            ):
                return said.version
            raise self._refusal(said, [])
        differences = [*self._differences(found)]
        if not differences and said is not None and said.format != self.format.format:
            differences = ["its records or tables are of another form"]
        if said is None or differences:
            raise self._refusal(said, differences)
        return FORMAT_VERSION

    def check_to_read(self, database: Any) -> bool:
        """As `check`, for who changes nothing. Returns whether it has these tables.

        Raises:
            SchemaVersionError: also if a runtime must upgrade it first.

        """
        version = self.check(database)
        if version not in (None, FORMAT_VERSION):
            raise SchemaVersionError(
                version=version, known=FORMAT_VERSION, what=self.what, can_upgrade=True
            )
        return version is not None

    def _said(self, found: Columns, database: Any) -> StoreFormat | None:
        """What the store says of itself; None if it has no place for that."""
        if not set(StoreFormat._fields) <= set(found.get("meta", ())):
            return None
        row = database.execute(_SAID).fetchone()
        if row is None or [type(value) for value in row] != [int, str, str]:
            raise StoreDamaged(what="the table `meta`", cause=f"it says {row!r} of its format")
        return StoreFormat(*row)

    def _differences(self, found: Columns) -> Iterator[str]:
        for table, columns in self.columns.items():
            there = found.get(table)
            if there is None:
                yield f"the table {table!r} is missing"
                continue
            for column in sorted(set(columns).symmetric_difference(there)):
                why = "missing" if column in columns else "not known"
                yield f"the column '{table}.{column}' is {why}"

    def _refusal(self, said: StoreFormat | None, differences: Sequence[str]) -> SchemaVersionError:
        return SchemaVersionError(
            version=None if said is None else said.version,
            known=FORMAT_VERSION,
            what=self.what,
            library="" if said is None else said.library,
            format="" if said is None else said.format,
            differences=differences,
        )

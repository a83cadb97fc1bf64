"""The frozen databases, loaded where the code of today can open them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from tests.support.postgres import Hosts
from understudy.journal.backend import Backend
from understudy.journal.sqlite.backend import SqliteBackend

__all__ = ["DATA", "Place", "PostgresPlace", "SqlitePlace", "frozen"]

DATA = Path(__file__).parents[2] / "data" / "v1"

Columns = dict[str, list[tuple[Any, ...]]]


def frozen(name: str) -> Any:
    """The content of a frozen JSON file."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))


class Place(ABC):
    """A database that holds the frozen store, not opened yet; or an empty one."""

    backend: Backend

    @abstractmethod
    def columns(self) -> Columns:
        """What each table has: names, types and defaults."""

    @abstractmethod
    def empty_columns(self) -> list[str]:
        """The columns that are NULL in every row."""


class SqlitePlace(Place):
    def __init__(self, path: Path, *, is_empty: bool = False) -> None:
        if not is_empty:
            shutil.copy(DATA / "store.sqlite", path)
        self._path = path
        self.backend = SqliteBackend(str(path), durability="off", host="here")

    def columns(self) -> Columns:
        tables = self._rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        return {
            table: self._rows(f'SELECT name, type, "notnull", pk FROM pragma_table_info({table!r})')
            for (table,) in tables
        }

    def empty_columns(self) -> list[str]:
        return [
            f"{table}.{column}"
            for table, columns in self.columns().items()
            for column, *_ in columns
            if self._rows(f"SELECT count({column}) FROM {table}") == [(0,)]
        ]

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(query).fetchall()


class PostgresPlace(Place):
    def __init__(self, hosts: Hosts, *, is_empty: bool = False) -> None:
        self._hosts = hosts
        if not is_empty:
            dump = (DATA / "store.sql").read_text(encoding="utf-8")
            # The dump names its schema in each statement; the payloads are hexadecimal.
            own = dump.replace("understudy.", f"{hosts.schema}.")
            with psycopg.connect(hosts.url) as connection:
                connection.execute(
                    own.replace("SCHEMA understudy;", f"SCHEMA {hosts.schema};").encode()
                )
        self.backend = hosts.new("here")

    def columns(self) -> Columns:
        rows = self._hosts.sql(
            "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name"
            " FROM information_schema.columns WHERE table_schema = %s"
            " ORDER BY table_name, ordinal_position",
            self._hosts.schema,
        )
        tables: Columns = {}
        for table, *column in rows:
            tables.setdefault(str(table), []).append(tuple(column))
        return tables

    def empty_columns(self) -> list[str]:
        return [
            f"{table}.{column}"
            for table, columns in self.columns().items()
            for column, *_ in columns
            if self._hosts.sql(f"SELECT count({column}) FROM {table}") == [(0,)]
        ]

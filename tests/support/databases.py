"""One database for each kind of store, and the hosts that have it open."""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path

from tests.support.postgres import Hosts
from understudy.journal.backend import Backend
from understudy.journal.sqlite.backend import SqliteBackend

__all__ = ["Database", "PostgresDatabase", "SqliteDatabase"]


class Database(ABC):
    """A database that starts empty, and the hosts that were opened on it."""

    seq: str
    """What brings the number of a row of `records`, in SQL."""
    many_hosts: bool
    """Whether several runtimes may have it open at once."""

    def __init__(self) -> None:
        self._opened: list[Backend] = []

    @abstractmethod
    def backend(self, host: str) -> Backend:
        """A backend that is not open yet."""

    @abstractmethod
    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """What somebody else says to the database. Bytes are written as `x'00ff'`."""

    def open(self, host: str = "here") -> Backend:
        """A host; it is closed when the test ends."""
        backend = self.backend(host)
        backend.open()
        self._opened.append(backend)
        return backend

    def close(self) -> None:
        for backend in self._opened:
            backend.close()


class SqliteDatabase(Database):
    many_hosts = False
    seq = "(id & 4294967295)"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = str(folder / "store.db")

    def backend(self, host: str) -> Backend:
        return SqliteBackend(self._path, durability="off", host=host)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(statement).fetchall()


class PostgresDatabase(Database):
    many_hosts = True
    seq = "seq"

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self._hosts = hosts

    def backend(self, host: str) -> Backend:
        return self._hosts.new(host)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self._hosts.sql(re.sub(r"x'([0-9a-f]*)'", r"'\\x\1'::bytea", statement))

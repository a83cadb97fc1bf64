"""One database for each kind of store, and the hosts that have it open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from tests.support.postgres import Hosts
from understudy.journal.contracts import Backend
from understudy.journal.sqlite.backend import SqliteBackend

__all__ = ["Database", "PostgresDatabase", "SqliteDatabase"]


class Database(ABC):
    """A database that starts empty, and the hosts that were opened on it."""

    many_hosts: bool
    """Whether several runtimes may have it open at once."""

    def __init__(self) -> None:
        self._opened: list[Backend] = []

    @abstractmethod
    def backend(self, host: str) -> Backend:
        """A backend that is not open yet."""

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

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = str(folder / "store.db")

    def backend(self, host: str) -> Backend:
        return SqliteBackend(self._path, durability="off", host=host)


class PostgresDatabase(Database):
    many_hosts = True

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self._hosts = hosts

    def backend(self, host: str) -> Backend:
        return self._hosts.new(host)

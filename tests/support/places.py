"""Stores for tests of agents in them: opened again and again, and as a crash would leave them."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import Hosts
from understudy.journal import Store
from understudy.journal.database_store import DatabaseStore
from understudy.journal.memory import MemoryStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.sqlite.backend import SqliteBackend

__all__ = ["NewStore", "Place", "SqlitePlace", "new_store", "place", "sqlite"]


class Place(ABC):
    """Where the agents of one test are kept."""

    @abstractmethod
    def store(self) -> Store:
        """As the next runtime opens it, after the one before has stopped."""

    @abstractmethod
    def after_crash(self) -> Store:
        """As another process finds it if this one ends now, in the middle of whatever it does."""


class MemoryPlace(Place):
    def __init__(self) -> None:
        self._store = MemoryStore()

    def store(self) -> Store:
        return self._store

    def after_crash(self) -> Store:
        return self._store  # who claims an agent takes it over


class SqlitePlace(Place):
    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self._folder = folder
        self._copies = count(1)

    def backend(self, **options: Any) -> SqliteBackend:
        return SqliteBackend(str(self.path), durability="off", host="here", **options)

    def store(self) -> DatabaseStore:
        return DatabaseStore(self.backend())

    def after_crash(self) -> Store:
        return self.copied().store()

    def copied(self) -> SqlitePlace:
        """A copy of the files, as they are if this process ends now."""
        copy = self.beside()
        for file in self._folder.glob(f"{self.path.name}*"):
            if not file.name.endswith((".lock", "-shm")):
                shutil.copy(file, copy.path.parent)
        return copy

    def beside(self) -> SqlitePlace:
        """Another place, where no store is."""
        other = SqlitePlace(self._folder / f"copy{next(self._copies)}")
        other.path.parent.mkdir()
        return other


class PostgresPlace(Place):
    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._numbers = count(1)
        self._newest: PostgresBackend

    def store(self) -> Store:
        self._newest = self._hosts.new(f"host{next(self._numbers)}", durability="off")
        return DatabaseStore(self._newest)

    def after_crash(self) -> Store:
        self._hosts.end_for_good(self._newest)
        return self.store()


STORES = [
    pytest.param("memory", marks=pytest.mark.slow),
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
]
"""What `make test` shows of one of them, `make test-slow` shows of the others."""


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield MemoryPlace()
    elif request.param == "sqlite":
        yield SqlitePlace(tmp_path)
    else:
        yield PostgresPlace(request.getfixturevalue("hosts"))


@pytest.fixture
def sqlite(tmp_path: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path)


NewStore = Callable[[], Store]


@pytest.fixture(params=STORES)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Makes stores of one database, one after the other."""
    if request.param == "memory":
        memory = MemoryStore()
        return lambda: memory
    if request.param == "postgres":
        hosts: Hosts = request.getfixturevalue("hosts")
        return lambda: DatabaseStore(hosts.new())
    path = str(tmp_path / "store.db")
    return lambda: DatabaseStore(SqliteBackend(path, durability="off", host="here"))

"""Our stores, and the plainest one, keep the contract of all stores (J6, J7)."""

from __future__ import annotations

from functools import cached_property

import pytest

from tests.support.databases import smallest
from tests.support.plain_store import PlainStore
from tests.support.postgres import Hosts
from understudy.journal import DatabaseStore, MemoryStore, Store
from understudy.journal.sqlite import SqliteBackend
from understudy.testing.contracts import StoreContract


class TestMemory(StoreContract):
    @cached_property
    def store(self) -> Store:
        return MemoryStore()

    def new_store(self) -> Store:
        return self.store


class TestPlain(TestMemory):
    """A store that has the abstract methods alone."""

    @cached_property
    def store(self) -> Store:
        return PlainStore()


class TestSqlite(StoreContract):
    def new_store(self) -> Store:
        path = str(self.folder / "store.db")
        return DatabaseStore(SqliteBackend(path, durability="off", host="here"))


class TestSmallest(StoreContract):
    """A store on the backend of the page on backends."""

    def new_store(self) -> Store:
        return DatabaseStore(smallest(self.folder, "here"))


@pytest.mark.postgres
class TestPostgres(StoreContract):
    hosts: Hosts

    @pytest.fixture(autouse=True)
    def with_hosts(self, hosts: Hosts) -> None:
        self.hosts = hosts

    def new_store(self) -> Store:
        return DatabaseStore(self.hosts.new(durability="off"))

"""Our backends keep the contract of all backends (J6, J7, J16, J17, J21, J22, J33, J97, V8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.databases import smallest
from tests.support.postgres import Hosts
from understudy.journal.backend import Backend
from understudy.journal.sqlite import SqliteBackend
from understudy.testing.contracts import BackendContract

pytestmark = pytest.mark.quick


class Ours(BackendContract):
    """The whole contract; what takes long is marked."""

    @pytest.mark.slow
    def test_any_mix_of_changes_leaves_what_a_list_would_hold(self, case: Any) -> None:
        super().test_any_mix_of_changes_leaves_what_a_list_would_hold(case)

    @pytest.mark.slow
    def test_what_is_read_is_of_one_moment(self) -> None:
        super().test_what_is_read_is_of_one_moment()


class TestSqlite(Ours):
    def new_backend(self, host: str) -> Backend:
        return SqliteBackend(str(self.folder / "store.db"), durability="off", host=host)


class TestSmallest(Ours):
    """The backend of the page on backends."""

    def new_backend(self, host: str) -> Backend:
        return smallest(self.folder, host)


@pytest.mark.postgres
class TestPostgres(Ours):
    hosts: Hosts

    @pytest.fixture(autouse=True)
    def with_hosts(self, hosts: Hosts) -> None:
        self.hosts = hosts

    def new_backend(self, host: str) -> Backend:
        return self.hosts.new(host)

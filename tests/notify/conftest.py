"""What tests of notices are given: a clock, and a store of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.certificates import one_certificate
from tests.support.notify_servers import (
    FakeSlack,
    HttpServer,
    SmtpServer,
    http_server,
    smtp_server,
)
from tests.support.postgres import Hosts
from understudy import SimulatedClock
from understudy.journal import Store
from understudy.journal.database_store import DatabaseStore

__all__ = ["one_certificate"]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Store:
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    hosts: Hosts = request.getfixturevalue("hosts")
    assert hosts.schema, "its tables get triggers: no other test has them"
    return DatabaseStore(hosts.new())


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    with http_server(HttpServer()) as found:
        yield found


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    server = FakeSlack()
    with http_server(server):
        yield server


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[SmtpServer]:
    with smtp_server(SmtpServer(tmp_path)) as found:
        yield found

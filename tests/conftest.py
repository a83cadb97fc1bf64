"""Fixtures for all tests, and what no test may leave behind."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator

import pykka
import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.loops import own_tasks  # noqa: E402  # after its asserts are rewritten
from tests.support.places import place, sqlite  # noqa: E402
from tests.support.postgres import cutter, hosts, postgres_server, postgres_url  # noqa: E402
from understudy.actors import LoopActorRegistry  # noqa: E402

__all__ = ["cutter", "hosts", "place", "postgres_server", "postgres_url", "sqlite"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server; where only one kind of store does, that parameter is marked."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "postgres_url" in fixtures or "postgres_server" in fixtures:
            item.add_marker(pytest.mark.postgres)


def pytest_configure() -> None:
    """No garbage is collected while tests are: nearly all that is made stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What is there by now is not looked through again: twice as fast, all in all."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def leaves_no_actor_behind() -> Iterator[None]:
    yield
    LoopActorRegistry.stop_all(block=True, timeout=10)
    pykka.ActorRegistry.stop_all(block=True, timeout=10)
    assert LoopActorRegistry.get_all() == []
    assert pykka.ActorRegistry.get_all() == []


@pytest.fixture(autouse=True)
def leaves_no_task_behind(request: pytest.FixtureRequest, leaves_no_actor_behind: None) -> None:
    """Of async tests. Their loop ends before actors are looked for: its end is theirs."""
    if "anyio_backend" in request.fixturenames:
        request.getfixturevalue("own_tasks_end")


@pytest.fixture
async def own_tasks_end() -> AsyncIterator[None]:
    yield
    assert not own_tasks(), "the test leaves tasks behind"

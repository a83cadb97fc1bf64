"""Fixtures for all tests, and what no test may leave behind."""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import gc
import inspect
import os
import sys
from collections.abc import Generator, Iterator

import hypothesis
import pykka
import pytest

# No garbage is collected while modules are loaded and tests are: nearly all that is made stays.
gc.disable()
pytest.register_assert_rewrite("tests.support")

from tests.support.agents import stage  # noqa: E402  # after its asserts are rewritten
from tests.support.interrupts import ctrl_c_raises  # noqa: E402
from tests.support.left_out import left_out  # noqa: E402
from tests.support.loops import own_tasks  # noqa: E402
from tests.support.places import new_store, place, sqlite  # noqa: E402
from tests.support.postgres import cutter, hosts, postgres_server, postgres_url  # noqa: E402
from tests.support.scratch import scratch  # noqa: E402
from tests.support.sqlite_connections import left_open, note_connections  # noqa: E402
from understudy.actors import LoopActorRegistry  # noqa: E402

# No test is about time, and a loaded machine is slow.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")
note_connections()
STDERR = pytest.StashKey[int]()
SECONDS_TO_CLEAN_UP = 60
__all__ = [
    "ctrl_c_raises",
    "cutter",
    "hosts",
    "left_out",
    "new_store",
    "place",
    "postgres_server",
    "postgres_url",
    "sqlite",
    "stage",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a server; where only one kind of store does, that parameter is marked.

    Unless a time limit is given, for all or by its mark, a test of faults may take longer than
    another one before it counts as hanging: it plays hundreds of stories.
    """
    # The client of one provider loads 3,000 modules. The first tests of a worker are its own: what
    # another worker takes over are the last ones.
    items.sort(key=lambda item: "wire" not in item.path.parts)
    limited = config.getoption("timeout") is not None
    for item in items:
        has_limit = limited or item.get_closest_marker("timeout") is not None
        if item.get_closest_marker("faults") and not has_limit:
            item.add_marker(pytest.mark.timeout(1500))
        fixtures = getattr(item, "fixturenames", ())
        if "postgres_url" in fixtures or "postgres_server" in fixtures:
            item.add_marker(pytest.mark.postgres)


def pytest_configure(config: pytest.Config) -> None:
    """Folders of tests are in memory, where there is room: no test is about the disk."""
    if folder := scratch():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)
    config.stash[STDERR] = os.dup(2)  # it is not captured yet


def pytest_collection_finish() -> None:
    """What is there by now is not looked through again: twice as fast, all in all.

    What tests make nearly all goes away by itself, so it is looked through seldom.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """After a failure what follows may hang as well, and pytest has stopped its own timer."""
    if isinstance(node, pytest.Item) and not node.config.getoption("usepdb"):
        stderr = node.config.stash[STDERR]
        faulthandler.dump_traceback_later(SECONDS_TO_CLEAN_UP, exit=True, file=stderr)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """An async test leaves no task on its loop; one that hangs says where each task waits."""
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def alone(**arguments: object) -> None:
            before = own_tasks()  # those of its fixtures
            try:
                await test(**arguments)
            except asyncio.CancelledError:
                for task in asyncio.all_tasks():
                    task.print_stack(file=sys.stderr)
                raise
            for _ in range(100):  # what is cancelled by now comes to its end
                if own_tasks() <= before:
                    break
                await asyncio.sleep(0)
            else:
                raise AssertionError("the test leaves tasks behind")

        pyfuncitem.obj = alone
    return (yield)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def repeats_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repeats of idempotent calls come without their waits."""
    monkeypatch.setattr("understudy.modes.steps.tool_call.retry.SOON", (0, 0))


@pytest.fixture(autouse=True)
def leaves_no_connection_open() -> Iterator[None]:
    left_open()  # those of fixtures that several tests share
    yield
    assert left_open() == [], "the test leaves connections to SQLite open"


@pytest.fixture(autouse=True)
def leaves_no_actor_behind(leaves_no_connection_open: None) -> Iterator[None]:
    yield
    LoopActorRegistry.stop_all(block=True, timeout=60)
    pykka.ActorRegistry.stop_all(block=True, timeout=60)
    assert LoopActorRegistry.get_all() == []
    assert pykka.ActorRegistry.get_all() == []

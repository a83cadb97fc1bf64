"""Fixtures for all tests, and what no test may leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pykka
import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.places import place, sqlite  # noqa: E402  # after their asserts are rewritten
from tests.support.postgres import (  # noqa: E402
    cutter,
    hosts,
    postgres_server,
    postgres_url,
)
from understudy.actors import LoopActorRegistry  # noqa: E402

__all__ = ["cutter", "hosts", "place", "postgres_server", "postgres_url", "sqlite"]


@pytest.fixture(autouse=True)
def stop_all_actors() -> Iterator[None]:
    yield
    LoopActorRegistry.stop_all(block=True, timeout=10)
    pykka.ActorRegistry.stop_all(block=True, timeout=10)
    assert LoopActorRegistry.get_all() == []
    assert pykka.ActorRegistry.get_all() == []

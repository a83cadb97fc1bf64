"""No test of actors leaves one running."""

from __future__ import annotations

from collections.abc import Iterator

import pykka
import pytest

from tests.actors.stores import place, sqlite
from tests.journal.postgres_server import cutter, hosts, postgres_server, postgres_url
from understudy.actors import LoopActorRegistry

__all__ = ["cutter", "hosts", "place", "postgres_server", "postgres_url", "sqlite"]


@pytest.fixture(autouse=True)
def stop_all_actors() -> Iterator[None]:
    yield
    LoopActorRegistry.stop_all(block=True, timeout=10)
    pykka.ActorRegistry.stop_all(block=True, timeout=10)
    assert LoopActorRegistry.get_all() == []
    assert pykka.ActorRegistry.get_all() == []

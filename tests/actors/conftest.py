"""What many tests of agents are given: a clock, a store, a desk, a list of what ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plans import Desk
from understudy import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.slow), "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def ran() -> list[str]:
    """What the tools have done."""
    return []

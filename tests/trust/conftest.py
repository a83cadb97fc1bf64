"""What tests of trust are given: a clock and a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy import SimulatedClock


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.slow), "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'store.db'}"

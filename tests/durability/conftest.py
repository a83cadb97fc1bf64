"""One pair of fork servers, and the undisturbed scenario, for all tests of durability."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.durability.checks import SUITE, Stage
from benchmarks.durability.forks import Forks

SEED = 1


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks("benchmarks.durability.stories") as servers:
        yield servers


@pytest.fixture(scope="session")
def stage(forks: Forks) -> Stage:
    return Stage.of(forks, SUITE, SEED)

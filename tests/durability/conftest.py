"""One pair of fork servers, and the undisturbed scenario, for all tests of durability."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.durability.checks import SUITE, Stage
from tests.support.durability.forks import Forks

SEED = 1


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks("tests.support.durability.stories") as servers:
        yield servers


@pytest.fixture(scope="session")
def stage(forks: Forks) -> Stage:
    return Stage.of(forks, SUITE, SEED)

"""One pair of fork servers for all tests of durability."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.durability.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks("tests.support.durability.stories") as servers:
        yield servers

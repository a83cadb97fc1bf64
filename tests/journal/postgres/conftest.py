"""A store of its own for each test, whose tables the first host makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.postgres import Hosts


@pytest.fixture
def hosts(postgres_url: str) -> Iterator[Hosts]:
    with closing(Hosts(postgres_url)) as hosts:
        yield hosts

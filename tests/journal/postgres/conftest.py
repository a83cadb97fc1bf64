"""A store whose tables no test has had before: its first host makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.postgres import Hosts


@pytest.fixture
def new_hosts(postgres_url: str) -> Iterator[Hosts]:
    with closing(Hosts(postgres_url)) as hosts:
        yield hosts

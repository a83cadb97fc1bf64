"""Every provider, and both ways to run an agent."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.wire.providers import PROVIDERS, WAYS, Provider, Way


@pytest.fixture(params=PROVIDERS, ids=str)
def provider(request: pytest.FixtureRequest) -> Provider:
    given: Provider = request.param
    return given


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    given: Way = request.param
    return given


@pytest.fixture(autouse=True, scope="module")
def _leaks_show_in_this_module() -> Iterator[None]:
    yield
    gc.collect()  # what was not closed warns now

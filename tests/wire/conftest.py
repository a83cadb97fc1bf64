"""Every provider, and both ways to run an agent."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.certificates import one_certificate
from tests.support.wire.providers import PROVIDERS, WAYS, Provider, Way

__all__ = ["one_certificate"]


def _marked(provider: Provider) -> Any:
    """`make test` asks one model of each of two clients, `make test-slow` all the others."""
    quick = provider.name in ("openai-chat", "anthropic")
    return provider if quick else pytest.param(provider, marks=pytest.mark.slow)


@pytest.fixture(params=map(_marked, PROVIDERS), ids=str)
def provider(request: pytest.FixtureRequest) -> Provider:
    given: Provider = request.param
    return given


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    given: Way = request.param
    return given


@pytest.fixture(autouse=True, scope="package")
def _leaks_show_in_this_package() -> Iterator[None]:
    """What was not closed warns at the end of the last test here.

    The modules that a client loads at its first use stay, and are not looked through.
    """
    import anthropic.resources  # noqa: F401  # nearly 3,000 modules

    gc.collect()
    gc.freeze()
    yield
    gc.collect()

"""Every provider, and both ways to run an agent."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import certifi
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


@pytest.fixture(autouse=True, scope="package")
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each client loads all certificates that it may need, which takes ten times as long as a run.

    The server here needs none.
    """
    end = "-----END CERTIFICATE-----\n"
    first, _, _ = Path(certifi.where()).read_text().partition(end)
    path = tmp_path_factory.mktemp("wire") / "one.pem"
    path.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield


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

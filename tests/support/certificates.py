"""One certificate in the place of all that a machine trusts: tests ask no server by TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

__all__ = ["one_certificate"]


@pytest.fixture(autouse=True, scope="package")
def one_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each HTTP client loads all certificates that it may need: longer than many a test takes."""
    end = "-----END CERTIFICATE-----\n"
    first, _, _ = Path(certifi.where()).read_text().partition(end)
    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    path.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield

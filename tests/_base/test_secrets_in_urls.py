"""URLs of databases as they are shown: no secret of them is."""

from __future__ import annotations

import pytest

from understudy import UsageError
from understudy._base.secrets_in_urls import secrets_of, without_secrets
from understudy.cli.servers import store_name
from understudy.journal.opening import open_store

SECRET = "hunter2"
URLS = [
    "postgresql://ann:hunter2@host/db",
    "postgresql://host/db?password=hunter2",
    "postgresql://host/db?PASSWORD=hunter2&sslmode=require",
    "postgresql://host/db?pass%77ord=hunter2",
    "postgresql://host/db?sslmode=require&sslPassword=hunter2",
    "postgresql://ann:what?hunter2@host/db",
    "postgresql://host/db?passfile=/home/ann/hunter2",
    "postgresql://host/db?oauth_client_secret=hunter2",
    "postgresql://host/db?PASSWORD=a@hunter2",
    "postgresql+psycopg://ann:hunter2@host/db",
    "mysql://ann:hunter2@host/db?PASSWORD=hunter2",
]


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_shown_without_what_is_secret_in_it(url: str) -> None:
    assert SECRET not in without_secrets(url)
    assert SECRET in "".join(secrets_of(url))


@pytest.mark.parametrize("url", URLS)
def test_no_error_and_no_name_of_a_store_tells_a_secret(url: str) -> None:
    """`?PASSWORD=` stood in errors, in the file of a server, and in what `doctor` prints."""
    if url.startswith("postgresql://"):
        assert SECRET not in store_name(url)
    for given in (url, url.replace("postgresql:", "postgres1:"), f"{url}&nonsense=%zz"):
        if given.startswith("postgresql://") and "nonsense" not in given:
            continue  # it is a store, or its database is asked
        with pytest.raises(UsageError) as refused:
            open_store(given)
        assert SECRET not in f"{refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize(
    "url", ["postgresql://ann@host:5432/db?sslmode=require", "postgresql://a,b:1/db", "memory:"]
)
def test_what_is_no_secret_is_shown(url: str) -> None:
    assert without_secrets(url) == url

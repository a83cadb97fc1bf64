"""Each test of a backend runs on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import Database, PostgresDatabase, SqlDatabase, SqliteDatabase
from understudy.journal.backend import Backend


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlDatabase]:
    found: SqlDatabase
    if request.param == "sqlite":
        found = SqliteDatabase(tmp_path)
    else:
        found = PostgresDatabase(request.getfixturevalue("hosts"))
    yield found
    found.close()


@pytest.fixture
def backend(database: Database) -> Backend:
    return database.open()

"""A disk of which a read fails: once, or each time (J16)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.batches import append, claim, texts
from tests.support.failing_disk import failing_reads
from understudy import Agent, Completed, Runtime, ScriptedModel
from understudy.errors import StoreError, StoreUnavailable
from understudy.journal.sqlite.backend import SqliteBackend

MANY = 200


def _filled(path: Path) -> SqliteBackend:
    """A closed store whose records are in the file, and not in its write-ahead log."""
    backend = SqliteBackend(str(path), host="here", durability="off")
    backend.open()
    for number in range(MANY):
        append(backend, claim(backend, f"a{number}"), "x" * 1000)
    backend.close()
    return backend


def _look(backend: SqliteBackend) -> None:
    backend.open_to_read()
    assert len(backend.agents(None, "", MANY + 1)) == MANY
    assert texts(backend, "a7") == ["x" * 1000]


def test_a_read_that_fails_once_is_no_damage(tmp_path: Path) -> None:
    """Whichever page it is: of the file's head, of an index or of records."""
    path = (tmp_path / "store.db").resolve()
    backend = _filled(path)
    failures, ended = 0, []
    for after in range(12):
        with failing_reads(path, 1, after=after) as failed:
            try:
                _look(backend)
            except StoreUnavailable as error:
                ended.append(str(error))
            failures += failed()
        backend.close()
    assert failures == 12
    assert all("its disk could not be read" in each for each in ended)


def test_a_runtime_works_where_each_read_fails_once(tmp_path: Path) -> None:
    path = (tmp_path / "store.db").resolve()
    _filled(path)
    failures = 0
    for after in range(14):
        with failing_reads(path, 1, after=after) as failed:
            try:
                agent = Agent("support", ScriptedModel(["hi"]))
                with Runtime([agent], store=f"sqlite:///{path}") as runtime:
                    ref = runtime.spawn("support", f"new{after}")
                    assert isinstance(ref.run("go").get(timeout=60), Completed)
            except StoreUnavailable as error:  # of the first page, at the opening
                assert "its disk could not be read" in str(error)  # noqa: PT017 - or none is raised
            failures += failed()
    assert failures > 8


def test_a_disk_that_cannot_be_read_is_told_as_what_it_may_be(tmp_path: Path) -> None:
    path = (tmp_path / "store.db").resolve()
    backend = _filled(path)
    with failing_reads(path, 10**6, after=6) as failed:
        with pytest.raises(StoreError) as raised:
            _look(backend)
        assert failed()
    backend.close()
    assert "disk" in str(raised.value)
    assert "log" in str(raised.value)
    _look(backend)
    backend.close()

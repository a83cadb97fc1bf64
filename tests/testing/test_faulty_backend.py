"""`FaultyBackend`: the n-th call of a method fails, before or behind what it does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from understudy import UsageError
from understudy.errors import Fenced, StoreUnavailable
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.testing import FaultyBackend


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[FaultyBackend]:
    given = FaultyBackend(SqliteBackend(str(tmp_path / "s.db"), durability="off", host="here"))
    given.open()
    yield given
    given.close()


def claim(backend: FaultyBackend) -> int:
    backend.begin()
    try:
        owned = backend.claim("t", "desk")
        backend.commit()
    except BaseException:
        backend.rollback()
        raise
    return int(owned.epoch)


def test_it_is_of_the_class_of_the_backend_below(backend: FaultyBackend) -> None:
    assert isinstance(backend, SqliteBackend)
    assert backend.host == "here"


def test_the_calls_that_are_planned_fail_and_no_other_ones(backend: FaultyBackend) -> None:
    backend.fail("claim", at=2, times=2)
    assert claim(backend) == 1
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            claim(backend)
    assert claim(backend) == 2
    assert backend.failed.is_set()
    assert backend.mend()


def test_what_is_done_before_the_answer_is_lost_is_done(backend: FaultyBackend) -> None:
    backend.fail("commit", after=True, fault=lambda: KeyError("the answer"))
    with pytest.raises(KeyError):
        claim(backend)
    assert claim(backend) == 2


def test_each_call_fails_until_it_is_mended(backend: FaultyBackend) -> None:
    backend.fail("begin", times=None)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            claim(backend)
    assert backend.mend()
    assert claim(backend) == 1
    assert not backend.mend()


def test_a_lease_is_given_and_lost_as_it_is_told(backend: FaultyBackend) -> None:
    assert backend.renew() == float("inf")
    backend.lease = 4.0
    assert backend.renew() == 4.0
    backend.lease_lost = True
    with pytest.raises(Fenced):
        backend.renew()
    assert not backend.renewed.is_set()
    assert backend.renew() == 4.0
    assert backend.renewed.is_set()


@pytest.mark.parametrize("options", [{"at": 0}, {"times": 0}, {"at": True}])
def test_a_call_that_cannot_be_is_refused(backend: FaultyBackend, options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"FaultyBackend.fail: `\w+` must be a whole number"):
        backend.fail("claim", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        ("append", "a store calls `append_all`. Name that"),
        ("commit_all", "in its steps. Name `begin`, `append_all` or `commit`"),
        ("rollback", "it raises nothing. Name `commit`"),
        ("close", "it raises nothing. Name `open`"),
        ("apend", "`SqliteBackend` has no such method"),
        ("host", "`SqliteBackend` has no such method"),
    ],
)
def test_a_method_whose_calls_never_fail_is_refused(
    backend: FaultyBackend, method: str, remedy: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(remedy)):
        backend.fail(method)

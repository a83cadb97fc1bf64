"""What a backend says that it keeps, and what it has methods for."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import smallest
from understudy.errors import StoreBroken, UsageError
from understudy.journal import Backend, DatabaseStore, StoreReads
from understudy.journal.contracts import Batch, IndexEntry, IndexStatus
from understudy.journal.kept import ALL_KEPT, KEPT
from understudy.journal.postgres import PostgresBackend
from understudy.journal.shared import SharedBackend, check_kept
from understudy.journal.sqlite import SqliteBackend
from understudy.testing import FaultyBackend

Smallest: Any = type(smallest(Path(), "here"))


class Promises(Smallest):  # type: ignore[misc]  # of the page on backends
    keeps = ("checkpoints", "notices")


class Defective(Smallest):  # type: ignore[misc]
    def append(self, batch: Batch) -> None:
        self._add(batch)

    def _add(self, batch: Batch) -> None:
        raise KeyError(batch.agent_id)


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_store_whose_backend_keeps_what_it_has_no_methods_for_is_not_opened(
    wrapped: bool, tmp_path: Path
) -> None:
    backend: Backend = Promises(tmp_path / "agents", "here")
    store = DatabaseStore(FaultyBackend(backend) if wrapped else backend)
    expected = (
        "`Promises` declares 'checkpoints' in `keeps` but does not define `write_checkpoint`, "
        "`load_latest`: define what is missing, or leave 'checkpoints' out of `keeps`"
    )
    for opening in (store.open(lambda: None), store.reader.open_to_read()):
        with pytest.raises(UsageError, match=re.escape(expected)):
            await opening
    assert not (tmp_path / "agents.lock").exists()


@pytest.mark.parametrize("keeps", [("files", "blobs"), "files"])
def test_a_kind_that_no_backend_keeps_is_refused(keeps: Any, tmp_path: Path) -> None:
    backend: Any = SqliteBackend(str(tmp_path / "s.db"), host="here")
    backend.keeps = keeps
    with pytest.raises(UsageError, match=r"in `keeps`, which must have values of 'checkpoints', "):
        check_kept(backend)


def test_our_backends_have_the_methods_of_what_they_keep(tmp_path: Path) -> None:
    sqlite = SqliteBackend(str(tmp_path / "s.db"), host="here")
    for backend in (sqlite, PostgresBackend("postgresql://nowhere", host="here")):
        assert frozenset(backend.keeps) == ALL_KEPT
        check_kept(backend)


def test_each_kind_has_a_line_with_methods_and_fields_in_the_docstring_of_a_backend() -> None:
    text = re.sub(r"\s+", " ", inspect.getdoc(Backend) or "")
    for name, kind in KEPT.items():
        methods = ", ".join(f"`{method}`" for method in kind.methods)
        fields = ", ".join(f"`{field}`" for field in kind.fields)
        line = f'- `"{name}"`: {kind.feature}. Methods: {methods}.'
        if kind.fields:
            line += f" Of `Batch`: {fields}."
        assert line in text
    assert KEPT.keys() == ALL_KEPT
    assert text.count("Methods: ") == len(KEPT)


def test_a_kind_names_methods_and_fields_that_there_are() -> None:
    for kind in KEPT.values():
        for is_shared, owner in ((False, Backend), (True, SharedBackend)):
            for method in kind.methods_of(is_shared=is_shared):
                assert hasattr(owner, method), method
                assert method not in owner.__abstractmethods__
        assert set(kind.fields) <= Batch.__dataclass_fields__.keys()


def test_the_docstring_of_a_backend_names_the_methods_that_must_be_written() -> None:
    found = re.search(r"A database must define (.*?)\. ", inspect.getdoc(Backend) or "", re.DOTALL)
    assert found is not None
    assert set(re.findall(r"`(\w+)`", found[1])) == Backend.__abstractmethods__


def test_what_a_store_does_not_keep_is_refused_by_the_name_of_its_class(tmp_path: Path) -> None:
    backend = smallest(tmp_path, "here")
    with pytest.raises(UsageError, match=r"^<FileBackend> keeps no spending: 'spending' is not in"):
        backend.load_spending()
    store: StoreReads = DatabaseStore(FaultyBackend(backend))
    assert repr(store) == "<DatabaseStore of FileBackend>"


async def test_an_error_that_a_backend_may_not_raise_is_kept_with_the_method_that_raised_it(
    tmp_path: Path,
) -> None:
    store = DatabaseStore(Defective(tmp_path / "agents", "here"))
    await store.open(lambda: None)
    try:
        owned = await store.claim("a", "desk")
        assert owned is not None
        entry = IndexEntry(IndexStatus.REST)
        batch = Batch(agent_id="a", incarnation=1, epoch=1, first_seq=1, records=(), entry=entry)
        expected = (
            r"Defective\.append raised KeyError\('a'\)\. This is a defect of Defective: report"
        )
        with pytest.raises(StoreBroken, match=expected) as caught:
            await store.change(lambda: store.backend.append(batch))
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.__cause__.__traceback__ is not None
    finally:
        await asyncio.shield(store.close())

"""Agents and records of a backend, in the words of `Backend`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

from understudy.errors import StoreError
from understudy.journal.backend import Backend
from understudy.testing.contracts.backends.batches import (
    agent_with,
    append,
    append_batch,
    batch,
    claim,
    commit,
    ids,
    knowing,
    loaded,
    record,
    stored,
    texts,
)

__all__ = [
    "agent_with",
    "append",
    "append_batch",
    "batch",
    "claim",
    "commit",
    "ids",
    "knowing",
    "loaded",
    "meanwhile",
    "record",
    "refused",
    "stored",
    "texts",
]

T = TypeVar("T")


def refused(backend: Backend, change: Callable[[], object]) -> type[Exception]:
    """The error of a change; the rest of its transaction continues."""
    backend.begin()
    with pytest.raises(StoreError) as caught:
        change()
    backend.commit()
    return caught.type


@contextmanager
def meanwhile(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Do it in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)

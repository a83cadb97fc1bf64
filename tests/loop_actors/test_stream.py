"""Streams: what comes over time is iterated in a thread or on a loop, by the same steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.loops import soon
from understudy.loop_actors.future import Future
from understudy.loop_actors.stream import Stream


class Batches(Stream[int]):
    """The items of futures, which come one after the other."""

    def __init__(self, *batches: Future[list[int]]) -> None:
        self._batches = batches

    def _steps(self) -> Iterator[int | Future[Any]]:
        for batch in self._batches:
            yield batch
            yield from batch.get()


def of(items: list[int]) -> Future[list[int]]:
    future: Future[list[int]] = Future()
    future.set(items)
    return future


def failed() -> Future[list[int]]:
    future: Future[list[int]] = Future()
    try:
        raise ValueError("no")
    except ValueError:
        future.set_exception()
    return future


def test_a_thread_gets_what_the_steps_bring() -> None:
    assert list(Batches(of([1, 2]), of([]), of([3]))) == [1, 2, 3]


async def test_a_loop_gets_what_the_steps_bring() -> None:
    assert [item async for item in Batches(of([1, 2]), of([]), of([3]))] == [1, 2, 3]


async def test_an_iteration_waits_for_a_step_that_is_not_there_yet() -> None:
    later: Future[list[int]] = Future()
    items = aiter(Batches(of([1]), later))
    assert await anext(items) == 1
    later.set([2])
    assert await soon(anext(items)) == 2


async def test_an_error_of_a_step_is_raised_where_the_step_wants_the_value() -> None:
    items = aiter(Batches(of([1]), failed()))
    assert await anext(items) == 1
    with pytest.raises(ValueError, match="no"):
        await anext(items)
    with pytest.raises(ValueError, match="no"):
        list(Batches(failed()))

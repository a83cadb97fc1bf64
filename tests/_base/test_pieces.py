"""Long work on a loop: in pieces, one in an iteration (A13)."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Generator

import pytest

from tests.support.loops import soon, until
from understudy._base.pieces import ITEMS, at_once, each, give_way, in_pieces, turn


def work(name: str, pieces: int, done: list[str]) -> Generator[None, None, str]:
    for number in range(pieces):
        if number:
            yield
        done.append(name)
    return name


async def test_others_have_their_turn_between_two_pieces() -> None:
    done: list[str] = []

    async def other() -> None:
        for _ in range(20):
            done.append("other")
            await asyncio.sleep(0)

    told = asyncio.create_task(other())
    assert await soon(in_pieces(work("piece", 5, done))) == "piece"
    between = "".join(each[0] for each in done)
    assert "pp" not in between, between
    await soon(told)


async def test_work_of_one_piece_is_done_at_once() -> None:
    done: list[str] = []
    coroutine = in_pieces(work("piece", 1, done))
    with pytest.raises(StopIteration) as ended:  # it has waited for nothing
        coroutine.send(None)
    assert (ended.value.value, done) == ("piece", ["piece"])


async def test_one_piece_has_its_turn_in_an_iteration_of_however_many_works() -> None:
    """A13."""
    done: list[str] = []
    iterations: list[int] = []
    is_over = False

    async def count() -> None:
        while not is_over:
            before = len(done)
            await asyncio.sleep(0)
            iterations.append(len(done) - before)

    counting = asyncio.create_task(count())
    works = [in_pieces(work(name, 30, done)) for name in "abcdef"]
    await soon(asyncio.gather(*works))
    is_over = True
    await soon(counting)
    # The first piece of each is no longer than short work is, and is done at once.
    assert sorted(iterations)[-2] <= 1, iterations
    assert max(iterations) <= len(works)


async def test_works_have_their_turns_one_after_the_other() -> None:
    done: list[str] = []
    await soon(asyncio.gather(*(in_pieces(work(name, 4, done)) for name in "abc")))
    assert "".join(done) == "abc" * 4


async def test_work_whose_wait_is_cancelled_ends_between_two_pieces() -> None:
    done: list[str] = []
    ended: list[str] = []

    def cut_off() -> Generator[None, None, None]:
        try:
            yield from work("piece", 100, done)
        finally:
            ended.append("ended")

    task = asyncio.create_task(in_pieces(cut_off()))
    await until(lambda: len(done) > 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    count = len(done)
    await soon(in_pieces(work("next", 3, done)))  # the turn of the cancelled one is given back
    assert (ended, done[count:]) == (["ended"], ["next"] * 3)


async def test_what_a_piece_raises_is_raised() -> None:
    def fails() -> Generator[None, None, None]:
        yield
        raise LookupError("in the second piece")

    with pytest.raises(LookupError, match="second piece"):
        await soon(in_pieces(fails()))


def test_works_on_two_loops_have_turns_of_their_own() -> None:
    for _ in range(2):
        assert asyncio.run(in_pieces(work("piece", 3, []))) == "piece"


def test_work_is_done_at_once_where_nobody_waits() -> None:
    done: list[str] = []
    assert at_once(work("piece", 5, done)) == "piece"
    assert len(done) == 5


@pytest.mark.parametrize(("items", "pieces"), [(0, 1), (1, 1), (ITEMS, 1), (ITEMS + 1, 2)])
def test_so_many_items_are_one_piece(items: int, pieces: int) -> None:
    done: list[int] = []
    assert 1 + sum(1 for _ in each(range(items), done.append)) == pieces
    assert done == list(range(items))


def test_a_large_item_is_a_piece_of_its_own() -> None:
    sizes = [1, 1, ITEMS, 1, 3 * ITEMS, 1]
    done: list[int] = []
    counts = [len(done) for _ in each(sizes, done.append, size=lambda size: size)]
    assert counts == [2, 3, 4, 5]
    assert done == sizes


READS = """
import asyncio, gc, weakref
from understudy._base.pieces import MOST_POSTPONED, in_pieces

assert gc.isenabled()
collected = []
gc.callbacks.append(lambda phase, info: collected.append((phase, info["generation"])))


class Node:
    def __init__(self):
        self.own = self


def reads():
    for number in range(2 * MOST_POSTPONED):
        kept.extend([number] for _ in range(1_000))
        left.append(weakref.ref(Node()))
        yield


kept, left = [], []
asyncio.run(in_pieces(reads()))
print(collected.count(("start", 2)), sum(each() is not None for each in left) // MOST_POSTPONED)
"""


@pytest.mark.slow
def test_a_long_read_seldom_has_all_collected_and_garbage_goes_at_last() -> None:
    """In a process of its own: what these tests have in memory is frozen."""
    ran = subprocess.run(
        [sys.executable, "-c", READS], capture_output=True, text=True, timeout=60, check=True
    )
    collections, left = map(int, ran.stdout.split())
    assert (collections, left) == (2, 0)


@pytest.mark.slow
async def test_what_an_application_has_frozen_stays_frozen() -> None:
    give_way()
    gc.freeze()  # as `tests/conftest.py` does: nothing is thawed, or later tests take longer
    frozen = gc.get_freeze_count()
    give_way()
    await soon(turn())
    assert gc.get_freeze_count() > frozen // 2 > 0  # some of them were freed

"""Long work on an event loop, in pieces: everything else on the loop has its turn between them.

What takes as long as the history of an agent is written as a generator that yields between two
pieces. Who runs it chooses how: `in_pieces` on a loop, or `at_once` where nobody waits. It is not
done in a thread, but for reads and writes of a database, which block: what a thread shares with the
loop would need a lock, and a thread that computes keeps the interpreter for five milliseconds at a
time, in each of the loop's iterations. So such a thread calls `give_way` between two pieces.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import weakref
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
ItemT = TypeVar("ItemT")

ITEMS = 100
"""So many records or messages are one piece. To decode so many messages takes 2 to 3 ms."""

THREAD_ITEMS = 50
"""So many of them are one piece of a thread, which reads and decodes: it takes 1 ms."""
MOST_POSTPONED = 1_000
"""After so many pieces garbage is collected, whatever it takes: that is 100,000 records."""
_PAUSE = 0.0001
_is_ours = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether nobody else freezes objects, in an interpreter that has generations of them."""

_postponed = 0
"""Pieces since all garbage was collected last."""

_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
    weakref.WeakKeyDictionary()
)


async def turn() -> None:
    """Let the loop go on, until it is the caller's turn to do a piece of long work.

    In one iteration of a loop one piece has its turn, of however many works that are under way.
    """
    loop = asyncio.get_running_loop()
    lock = _turns.get(loop)
    if lock is None:
        lock = _turns[loop] = asyncio.Lock()
    # The piece is done right behind this block, in the same step of the caller's task: who waits
    # next for the lock is woken in a later iteration
    # (test_one_piece_has_its_turn_in_an_iteration_of_however_many_works).
    async with lock:
        await asyncio.sleep(0)


async def in_pieces(work: Generator[None, None, T]) -> T:
    """Do the work on this loop. The first piece is done at once: short work waits for nothing.

    Where the wait is cancelled, the work ends between two pieces.
    """
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                value: T = done.value
                return value
            _postpone_collection()
            await turn()
    finally:
        work.close()


def at_once(work: Generator[None, None, T]) -> T:
    """Do the work without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            value: T = done.value
            return value


def give_way() -> None:
    """Let other threads go on, in a thread that computes: a loop may wait for the interpreter.

    A pause of nothing would not do: this thread would go on before the loop's has awoken.
    """
    _postpone_collection()
    time.sleep(_PAUSE)


def _postpone_collection() -> None:
    """Let the objects that a piece has made be old ones, as if they had outlived collections.

    The interpreter collects all that the process has in memory when so many new objects are there
    as a long history has: for 100 ms and more, in one piece, and to find that nothing of it is
    garbage. So they are not counted as new. Freezing and thawing moves them without a look at them.
    Who has frozen objects already keeps them frozen.
    """
    global _is_ours, _postponed
    # The count is that of a list: where it is long, it is counted once. Python 3.12 begins with
    # some hundred objects of its own.
    _is_ours = _is_ours and gc.get_freeze_count() < 1_000
    if not _is_ours or not gc.isenabled():
        return
    _postponed += 1
    if _postponed < MOST_POSTPONED:
        gc.freeze()
        gc.unfreeze()
    else:
        # What others leave in cycles was moved, too, and nothing counts it any more: it would stay
        # as long as there is work
        # (test_a_long_read_seldom_has_all_collected_and_garbage_goes_at_last).
        _postponed = 0
        gc.collect()


def each(
    items: Iterable[ItemT],
    do: Callable[[ItemT], object],
    *,
    size: Callable[[ItemT], int] | None = None,
) -> Generator[None, None, None]:
    """Call a function with each item: `ITEMS` of them are one piece.

    Args:
        items: these.
        do: the function.
        size: as how many items one counts; None: each as one.

    """
    done = 0
    for item in items:
        count = 1 if size is None else size(item)
        if done and done + count > ITEMS:
            yield
            done = 0
        do(item)
        done += count

"""Which actors live on which event loop: they are held strongly until they stop.

When a loop shuts down (the end of `asyncio.run`, of a `LoopThread`), the actors still on it are
ended, so that no ask of theirs stays without an answer and none is held for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator
from typing import Protocol

__all__ = ["Resident", "move_in", "move_out", "residents", "watch_running_loop"]


class Resident(Protocol):
    """What a loop's end asks of an actor."""

    def _lose_loop(self) -> None: ...


class _House:
    __slots__ = ("actors", "guard")

    def __init__(self) -> None:
        self.actors: set[Resident] = set()
        self.guard: AsyncGenerator[None] | None = None


_lock = threading.RLock()
_houses: dict[asyncio.AbstractEventLoop, _House] = {}


def move_in(actor: Resident, loop: asyncio.AbstractEventLoop) -> None:
    house = _houses.get(loop)
    if house is None:
        _clear_closed_loops()
        with _lock:
            house = _houses.setdefault(loop, _House())
    house.actors.add(actor)


def move_out(actor: Resident, loop: asyncio.AbstractEventLoop) -> None:
    house = _houses.get(loop)
    if house is not None:
        house.actors.discard(actor)


def residents(loop: asyncio.AbstractEventLoop) -> int:
    """How many started actors live on `loop`."""
    house = _houses.get(loop)
    return 0 if house is None else len(house.actors)


def watch_running_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Have the actors of `loop`, which runs here, ended when it shuts down.

    A loop tells nobody of its end, but it closes the asynchronous generators that began on it:
    so one that waits for nothing else begins here.
    """
    house = _houses.get(loop)
    if house is None or house.guard is not None:
        return
    house.guard = _guard(loop)
    with contextlib.suppress(StopIteration):  # it has come to its `yield`
        house.guard.__anext__().send(None)


async def _guard(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _clear(loop)


def _clear_closed_loops() -> None:
    for loop in [loop for loop in list(_houses) if loop.is_closed()]:
        _clear(loop)


def _clear(loop: asyncio.AbstractEventLoop) -> None:
    with _lock:
        house = _houses.pop(loop, None)
    for actor in list(house.actors) if house is not None else ():
        actor._lose_loop()

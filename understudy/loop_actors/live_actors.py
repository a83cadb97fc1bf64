"""The live actors of each event loop: kept in memory until they have ended.

This is not a second registry. An actor leaves the registry when it takes no more messages, or when
a caller unregisters it; it leaves here when its last hook has returned. An actor that is here when
its loop shuts down (the end of `asyncio.run`, or of a `LoopThread`) is ended, so that every ask is
answered and nothing is held for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator

from understudy._base.forks import call_in_child


class LiveActor:
    """An actor that has started and not ended. The names are private: no proxy shows them."""

    __slots__ = ()

    def _drain(self) -> None:
        """Take the messages of the mailbox; called on the loop."""
        raise NotImplementedError

    def _loop_closed(self) -> None:
        """End the actor, whose loop has shut down or shuts down; called in any thread."""
        raise NotImplementedError

    def _forked(self) -> None:
        """Take no more messages: this is the child of a fork, and the loop belongs to the
        parent.
        """
        raise NotImplementedError


class _LoopActors:
    __slots__ = ("actors", "guard")

    def __init__(self) -> None:
        # It is a dict of None: a set takes 2 to 8 times as much for each of many.
        self.actors: dict[LiveActor, None] = {}
        self.guard: AsyncGenerator[None] | None = None


_lock = threading.RLock()
_by_loop: dict[asyncio.AbstractEventLoop, _LoopActors] = {}


def register(actor: LiveActor, loop: asyncio.AbstractEventLoop) -> None:
    if loop not in _by_loop:
        end_actors_of_closed_loops()
    # Race with `_end_actors_on`: another thread may shut the loop down at this moment. The actor is
    # either in the entry that is removed there, or in a new entry, never in a removed one.
    with _lock:
        here = _by_loop.get(loop)
        if here is None:
            here = _by_loop[loop] = _LoopActors()
        here.actors[actor] = None


def unregister(actor: LiveActor, loop: asyncio.AbstractEventLoop) -> None:
    here = _by_loop.get(loop)
    if here is not None:
        here.actors.pop(actor, None)


def has_actors(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether an actor of this loop, such as a runtime's, has started and not ended."""
    here = _by_loop.get(loop)
    return here is not None and bool(here.actors)


def watch_running_loop(loop: asyncio.AbstractEventLoop) -> None:
    """End the actors of `loop`, which runs in this thread, when it shuts down.

    asyncio has no callback for that, but a loop that shuts down closes the asynchronous
    generators that were first iterated on it. So a generator that only waits is first iterated
    here.
    """
    here = _by_loop.get(loop)
    if here is None or here.guard is not None:
        return
    here.guard = _guard(loop)
    with contextlib.suppress(StopIteration):  # its `yield` raises it
        here.guard.__anext__().send(None)


def end_actors_of_closed_loops() -> None:
    """End the actors that the end of their loop missed: they were started while it shut down.

    A loop that was closed without `shutdown_asyncgens` missed all of its actors.
    """
    for loop in [loop for loop in list(_by_loop) if loop.is_closed()]:
        _end_actors_on(loop)


async def _guard(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        _end_actors_on(loop)


def _end_actors_on(loop: asyncio.AbstractEventLoop) -> None:
    with _lock:
        here = _by_loop.pop(loop, None)
    for actor in list(here.actors) if here is not None else ():
        actor._loop_closed()


def _close_in_child() -> None:
    """Close the actors of the parent: nothing runs them in the child of a fork."""
    global _lock
    _lock = threading.RLock()  # a thread of the parent may have it
    for here in _by_loop.values():
        for actor in here.actors:
            actor._forked()


call_in_child(_close_in_child)

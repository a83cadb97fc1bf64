"""The event loop of an async test: what runs on it, and waits that order its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["SECONDS", "never", "own_tasks", "skip", "soon", "until"]

T = TypeVar("T")
SECONDS = 60.0
"""A wait that long is a wait for ever: nothing here takes time, but the machine may be busy."""


def own_tasks() -> set[asyncio.Task[Any]]:
    """All tasks on the loop that an async test has started; it runs in one of pytest's own."""
    return {task for task in asyncio.all_tasks() if not _name(task).startswith("TestRunner.")}


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "")


def never() -> asyncio.Future[None]:
    """Something to await that does not come."""
    return asyncio.get_running_loop().create_future()


async def soon(awaited: Awaitable[T]) -> T:
    """What it brings."""
    async with asyncio.timeout(SECONDS):
        return await awaited


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop its turns until the condition holds."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110  # what is waited for sets no event
            await asyncio.sleep(0)


def skip(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Let so many seconds pass on a loop at once, from any thread: what waits for them ends."""

    def pass_them() -> None:
        now = loop.time
        loop.time = lambda: now() + seconds  # type: ignore[method-assign]

    loop.call_soon_threadsafe(pass_them)

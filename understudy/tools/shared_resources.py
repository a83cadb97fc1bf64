"""`SharedResources`: resources that are opened once, used by many, and closed with their owner.

A resource is, for instance, a connection of tools. Its own task holds it open, because it must be
closed in the task that opened it, and its users come and go.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
CLOSING_SECONDS = 10.0
"""The seconds that a resource may take to close before it is cancelled."""


class ToolSource(Protocol[T_co]):
    """A thing that tools share and open once: a connection, a pool. `ctx.shared(source)` returns
    it.

    A runtime opens it for all its agents, at its first use, and closes it when the runtime stops. A
    call of `Agent.execute` or `resume` opens its own, and closes it at the end. A source must be
    hashable, and all users must use the same object.
    """

    def open(self) -> AbstractAsyncContextManager[T_co]:
        """Open it, on the loop of the runtime.

        Leaving the context closes it, which must not take long.
        """


class SharedResources:
    """The resources that one owner has opened, on its event loop."""

    def __init__(self) -> None:
        self._held: dict[ToolSource[Any], _Held[Any]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def get(self, source: ToolSource[T], *, instead_of: T | None = None) -> T:
        """The resource of `source`, opened now if it is not open yet.

        Args:
            source: the source that opens it.
            instead_of: a lost resource: if it is the open one, it is closed and opened anew.

        Raises:
            RuntimeError: if the owner has closed all resources.
            Exception: what `source.open()` raises; the next call tries again.

        """
        held = self._held.get(source)
        if held is not None and (
            held.task.done() or (instead_of is not None and held.value is instead_of)
        ):
            self._end(self._held.pop(source))
            held = None
        if held is None:
            if self._is_closed:
                raise RuntimeError(f"{source!r} is not opened any more: its owner has ended")
            held = self._held[source] = _Held(source)
        return await asyncio.shield(held.ready)

    def _end(self, held: _Held[Any]) -> None:
        held.stop.set()
        if not held.ready.done():  # it is still being opened, and nobody has it
            held.ready.cancel()  # a task that has not begun would not
            held.task.cancel()
        if not held.task.done():
            self._ending.add(held.task)
            held.task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Close all resources. Nothing is opened after that."""
        self._is_closed = True
        if not self._held and not self._ending:
            return
        while self._held:
            self._end(self._held.popitem()[1])
        tasks = set(self._ending)
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=CLOSING_SECONDS)
        finally:
            # This holds also if the wait is cancelled: what a resource has started must not outlive
            # it.
            for task in tasks:
                if not task.done():
                    logger.warning("%s takes too long to close: it is cancelled", task.get_name())
                    task.cancel()
            if any(not task.done() for task in tasks):
                await asyncio.wait(tasks, timeout=CLOSING_SECONDS)


class _Held(Generic[T]):
    """One resource, and the task that holds it open."""

    def __init__(self, source: ToolSource[T]) -> None:
        self.source = source
        self.value: T | None = None
        self.stop = asyncio.Event()
        self.ready: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # The task has its own context, because the user that happens to open it is one of many.
        self.task = asyncio.create_task(
            self._hold(), name=f"understudy: {source!r}", context=contextvars.Context()
        )

    async def _hold(self) -> None:
        try:
            async with self.source.open() as value:
                self.value = value
                self.ready.set_result(value)
                await self.stop.wait()
        except asyncio.CancelledError:
            self.ready.cancel()
            raise
        except BaseException as error:  # errors of foreign code must not end the loop
            if not self.ready.done():
                self.ready.set_exception(error)
                self.ready.exception()  # its waiters may have gone
            elif not isinstance(error, Exception):
                raise
            else:
                logger.info("%r was lost: %r", self.source, error)

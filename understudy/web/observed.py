"""An agent as the pages look at it, beside the runtime that has it: by an `Observer`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

from understudy.actors import AgentEvent, AgentInfo, Future, Observer
from understudy.display import DisplayUpdate
from understudy.history import HistoryPage
from understudy.state.agent_state import AgentState

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
POLL = 1.0
"""Seconds between two looks of a stream into the store."""


class Follows(Protocol[T_co]):
    """What is iterated while it happens."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...
    def close(self) -> None: ...


class Watched(Protocol):
    """What the pages read of an agent: an `AgentRef` has it, and an `ObservedAgent`."""

    def state(self) -> Future[AgentState]: ...
    def info(self) -> Future[AgentInfo]: ...
    def history(
        self, *, after: int = 0, limit: int = 100, before: int | None = None
    ) -> Future[HistoryPage]: ...
    def load_blobs(self, hashes: Sequence[str]) -> Future[dict[str, bytes]]: ...
    def display(self, *, after: int = 0, limit: int | None = None) -> Future[DisplayUpdate]: ...
    def display_events(self, after: int = 0) -> Follows[DisplayUpdate]: ...
    def events(self, after: int = 0) -> Follows[AgentEvent]: ...


class Polled(Generic[T]):
    """What a function brings, again and again. Closed, it ends behind what is there then."""

    def __init__(self, read: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._read = read
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            for each in await self._read():
                yield each
            if self._is_closed:
                return
            await asyncio.sleep(POLL)

    def close(self) -> None:
        """Let it end."""
        self._is_closed = True


class ObservedAgent:
    """One agent of an observer: what is durable of it.

    Args:
        observer: that is open.
        id: of the agent.

    """

    def __init__(self, observer: Observer, id: str) -> None:
        self._observer = observer
        self._id = id

    def state(self) -> Future[AgentState]:
        """Its state."""
        return self._observer.state(self._id)

    def info(self) -> Future[AgentInfo]:
        """Its row of the index."""
        return self._observer.info(self._id)

    def history(
        self, *, after: int = 0, limit: int = 100, before: int | None = None
    ) -> Future[HistoryPage]:
        """What happened to it."""
        return self._observer.history(self._id, after=after, limit=limit, before=before)

    def load_blobs(self, hashes: Sequence[str]) -> Future[dict[str, bytes]]:
        """The bytes that are kept of its files under these hashes."""
        return self._observer.load_blobs(self._id, hashes)

    def display(self, *, after: int = 0, limit: int | None = None) -> Future[DisplayUpdate]:
        """The rows of its conversation."""
        return self._observer.display(self._id, after=after, limit=limit)

    def display_events(self, after: int = 0) -> Follows[DisplayUpdate]:
        """The rows that change: those that are recorded."""
        seen = after

        async def read() -> Sequence[DisplayUpdate]:
            nonlocal seen
            update = await self.display(after=seen)
            seen = seen if update.seq is None else update.seq
            return [update] if update.rows or update.reset else []

        return Polled(read)

    def events(self, after: int = 0) -> Follows[AgentEvent]:
        """Its events: those that are recorded."""
        seen = after

        async def read() -> Sequence[AgentEvent]:
            nonlocal seen
            found = await self._observer.events(self._id, seen)
            seen = max([seen, *(event.seq or 0 for event in found)])
            return found

        return Polled(read)

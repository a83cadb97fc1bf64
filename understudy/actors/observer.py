"""`Observer`: looks at the agents of a store that runtimes have open, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from understudy.actors.agent_directory import checked_id
from understudy.actors.agent_events import AgentEvent
from understudy.actors.export import export
from understudy.actors.stored_agents import (
    AgentInfo,
    PendingRequest,
    info_of,
    loaded_agent,
    stored_events,
    stored_history,
    stored_pending,
    stored_state,
)
from understudy.errors import UsageError
from understudy.history import HistoryPage, check_page
from understudy.journal import DatabaseStore, IndexStatus
from understudy.journal.opening import open_reader
from understudy.loop_actors.future import Future, refuse
from understudy.loop_actors.loop_thread import LoopThread
from understudy.state.agent_state import AgentState

T = TypeVar("T")


class Observer:
    """Reads a store beside the runtimes that use it. It takes no lock, and owns no agent.

    What it tells is what is durable. Its methods are those of a `Runtime` or a ref and return
    futures as they do; each reads in short transactions. No definition is needed.

    Args:
        store: `"sqlite:///path"` or `"postgresql://..."`; or a `DatabaseStore` that is not open.

    Raises:
        UsageError: for any other store.
        StoreUnavailable, StoreBroken, StoreDamaged: by `with` and `async with`, if it cannot be
            read.
        SchemaVersionError: by them, if another version of this library made the tables.

    """

    def __init__(self, store: str | DatabaseStore) -> None:
        self._reader = open_reader(store)
        self._thread = LoopThread("understudy-observer")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._refuse_twice()
        loop = self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._reader.open(), loop).result()
        except BaseException:
            self._thread.stop()
            raise
        self._loop = loop
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._close(), loop).result()
        self._thread.stop()

    async def __aenter__(self) -> Self:
        self._refuse_twice()
        await self._reader.open()
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop = None
        await self._close()

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reader.close()

    def _refuse_twice(self) -> None:
        if self._loop is not None:
            raise UsageError("this Observer is open already")

    # ------------------------------------------------------------------- looking

    def agents(self) -> Future[list[AgentInfo]]:
        """All agents, sorted by id. None is in memory here, so each has the status `PASSIVE`."""

        async def agents() -> list[AgentInfo]:
            return [info_of(stored) async for stored in self._reader.agents()]

        return self._call(agents)

    def pending(self) -> Future[list[PendingRequest]]:
        """The requests of all agents that wait for a person."""

        async def pending() -> list[PendingRequest]:
            return [request async for request in stored_pending(self._reader)]

        return self._call(pending)

    def count(self) -> Future[dict[IndexStatus, int]]:
        """How many agents have each status in the store's index."""

        async def count() -> dict[IndexStatus, int]:
            counts = dict.fromkeys(IndexStatus, 0)
            async for stored in self._reader.agents():
                counts[stored.index_status] += 1
            return counts

        return self._call(count)

    def state(self, id: str) -> Future[AgentState]:
        """The state of an agent; the future raises `UnknownAgent` if there is none."""
        checked_id(id)

        return self._call(lambda: stored_state(self._reader, id))

    def history(self, id: str, *, after: int = 0, limit: int = 100) -> Future[HistoryPage]:
        """As `ref.history`.

        Raises:
            UsageError: for a bad id, `after` below 0 or `limit` below 1.

        """
        checked_id(id)
        check_page(after, limit)
        return self._call(lambda: stored_history(self._reader, id, after, limit))

    def events(self, id: str, after: int = 0) -> Future[list[AgentEvent]]:
        """The recorded events after number `after`, until now. Live events come from a ref.

        Raises:
            UsageError: for a bad id, or `after` below 0.

        """
        checked_id(id)
        check_page(after, 1)

        async def events() -> list[AgentEvent]:
            await loaded_agent(self._reader, id)
            return await stored_events(self._reader, id, after)

        return self._call(events)

    def export(self, id: str) -> Future[dict[str, Any]]:
        """As `runtime.export`."""
        checked_id(id)
        return self._call(lambda: export(self._reader, id))

    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        if self._loop is None:
            raise UsageError("this Observer is not open: use it in `with` or `async with`")
        loop = self._loop
        future: Future[T] = Future()

        async def go() -> None:
            try:
                future.set(await function())
            except asyncio.CancelledError:
                refuse(future, UsageError("the Observer was closed before it answered"))
                raise
            except Exception as error:  # raised to the caller
                refuse(future, error)

        def begin() -> None:
            task = loop.create_task(go())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.call_soon_threadsafe(begin)
        return future

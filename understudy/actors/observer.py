"""`Observer`: looks at the agents of a store that runtimes have open, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from understudy.actors.agent_directory import checked_id
from understudy.actors.agent_events import AgentEvent, Status
from understudy.actors.displays import stored_display
from understudy.actors.export import export
from understudy.actors.feed import Feed, Start
from understudy.actors.listing import Listing
from understudy.actors.lists import Lists
from understudy.actors.stored_agents import (
    AgentInfo,
    PendingRequest,
    loaded_agent,
    stored_events,
    stored_history,
    stored_state,
)
from understudy.display import DisplayUpdate
from understudy.errors import UsageError
from understudy.history import HistoryPage, check_page
from understudy.journal import DatabaseStore
from understudy.journal.lists import AskOrder
from understudy.journal.opening import open_reader
from understudy.loop_actors.future import Future, refuse
from understudy.loop_actors.loop_thread import LoopThread
from understudy.state.agent_state import AgentState
from understudy.state.waits import Wait

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

    def agents(
        self,
        *,
        status: Status | str | None = None,
        agent: str | None = None,
        prefix: str = "",
        updated_since: datetime | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[AgentInfo]:
        """As `Runtime.agents`. None is in memory here, so none `is_active`."""
        return self._lists.agents(
            status=status,
            agent=agent,
            prefix=prefix,
            updated_since=updated_since,
            after=after,
            limit=limit,
        )

    def pending(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[PendingRequest]:
        """As `Runtime.pending`. No definition is known here, so no tool is described."""
        return self._lists.pending(tool=tool, agent=agent, order=order, after=after, limit=limit)

    def waiting(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[Wait]:
        """As `Runtime.waiting`."""
        return self._lists.waiting(tool=tool, agent=agent, order=order, after=after, limit=limit)

    def count(self) -> Future[dict[Status, int]]:
        """As `Runtime.count`."""
        return self._lists.count()

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

    def display(
        self, id: str, *, after: int = 0, limit: int | None = None
    ) -> Future[DisplayUpdate]:
        """As `ref.display`. No definition is needed: what a person reads is recorded.

        Raises:
            UsageError: for a bad id, `after` below 0 or `limit` below 1.

        """
        checked_id(id)
        check_page(after, 1 if limit is None else limit)
        return self._call(lambda: stored_display(self._reader, id, after, limit))

    @overload
    def events(self, id: str, after: int = 0) -> Future[list[AgentEvent]]: ...
    @overload
    def events(self, *, after: str | None = None, start: Start = "now") -> Feed: ...
    def events(
        self, id: str | None = None, after: Any = None, start: Start = "now"
    ) -> Future[list[AgentEvent]] | Feed:
        """The recorded events of one agent until now; or, without `id`, as `Runtime.events`.

        Args:
            id: of the agent. Its live events come from a ref.
            after: the number of the last event of the agent that you have; or a cursor.
            start: as of `Runtime.events`.

        Raises:
            UsageError: for a bad id, cursor or `start`, or a number below 0.

        """
        if id is None:
            return self._feed(after, start)
        number = 0 if after is None else after
        checked_id(id)
        check_page(number, 1)

        async def events() -> list[AgentEvent]:
            await loaded_agent(self._reader, id)
            return await stored_events(self._reader, id, number)

        return self._call(events)

    def _feed(self, after: str | None, start: Start) -> Feed:
        self._open_loop()
        return Feed(
            self._call,
            lambda: self._reader,
            after=after,
            start=start,
            has_ended=lambda: self._loop is None,
        )

    def export(self, id: str) -> Future[dict[str, Any]]:
        """As `runtime.export`."""
        checked_id(id)
        return self._call(lambda: export(self._reader, id))

    @property
    def _lists(self) -> Lists:
        return Lists(lambda: self._reader, self._call, self._open_loop())

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise UsageError("this Observer is not open: use it in `with` or `async with`")
        return self._loop

    def _call(
        self, function: Callable[[], Coroutine[Any, Any, T]], future: Future[T] | None = None
    ) -> Future[T]:
        """Call it on the loop; the future, a new one or this, gets what it returns or raises."""
        try:
            loop = self._open_loop()
        except UsageError as error:
            if future is None:
                raise
            refuse(future, error)
            return future
        return self._call_on(loop, function, Future() if future is None else future)

    def _call_on(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], Coroutine[Any, Any, T]],
        future: Future[T],
    ) -> Future[T]:

        async def go() -> None:
            try:
                future.set(await function())
            except asyncio.CancelledError:
                raise
            except Exception as error:  # raised to the caller
                refuse(future, error)

        def begin() -> None:
            task = loop.create_task(go())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # Also of one that is cancelled before it has begun.
            task.add_done_callback(lambda _: refuse(future, gone))

        gone = UsageError("the Observer was closed before it answered")
        loop.call_soon_threadsafe(begin)
        return future

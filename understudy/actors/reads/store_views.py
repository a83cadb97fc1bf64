"""`StoreViews`: what a `Runtime` and an `Observer` both tell of the agents of a store."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from understudy._base.clock import Clock
from understudy._base.json_values import shown
from understudy.actors.agent.directory import checked_id
from understudy.actors.agent.events import Status
from understudy.actors.agent.stored_agents import AgentInfo, PendingRequest
from understudy.actors.reads.export import export
from understudy.actors.reads.lists import Listing, Lists
from understudy.errors import UsageError
from understudy.journal import Readable
from understudy.journal.lists import AskOrder
from understudy.loop_actors.future import Future, refuse
from understudy.state.doubts import Doubt
from understudy.state.waits import Wait

T = TypeVar("T")


class StoreViews(ABC):
    """Tells of the agents of a store, and activates and loads none of them."""

    _closed_too_soon: ClassVar[str]
    """Of a call that was made in time and could not be answered any more."""

    # ------------------------------------------------------------------- looking

    def agents(
        self,
        *,
        status: Status | str | None = None,
        agent: str | None = None,
        prefix: str = "",
        updated_since: datetime | None = None,
        version: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[AgentInfo]:
        """The agents of the store, and those that are spawned here, sorted by id.

        `await` it, or `.get()` it, for a page, a list with the cursor `after` of the next one.
        `async for` goes over all of them in pages. One whose row in the index is damaged is listed
        with its `damage`.

        Args:
            status: only those with this status.
            agent: only those with a definition of this name.
            prefix: only those whose ids begin with it.
            updated_since: only those whose status has changed since, sorted by when it did. One
                that changes while you go over the pages comes again. With a time zone.
            version: only those with an open run that the definition of this fingerprint has begun;
                or `"other"`: that none of the definitions of this runtime has begun. Those hold up
                a roll-out.
            after: the `after` of the page before, with the same filters.
            limit: how many, at most 10,000; None = all that there are.

        Raises:
            UsageError: if an argument is wrong; it names the argument.

        """
        return self._open_lists().agents(
            status=status,
            agent=agent,
            prefix=prefix,
            updated_since=updated_since,
            version=version,
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
        """The requests of all agents that wait for a person. It activates and loads no agent.

        `await` it, or `.get()` it, for a page, a list with the cursor `after` of the next one.
        `async for` goes over all of them in pages. A tool is described where its definition is
        known: at a runtime, not at an observer.

        Args:
            tool: only those about a tool of this name.
            agent: only those of agents with a definition of this name.
            order: the `"oldest"` first; or the first `"expiring"`, those that never do last.
            after: the `after` of the page before, with the same filters and order.
            limit: how many, at most 10,000; None = all that there are.

        Raises:
            UsageError: if an argument is wrong; it names the argument.

        """
        return self._open_lists().pending(
            tool=tool, agent=agent, order=order, after=after, limit=limit
        )

    def waiting(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[Wait]:
        """The sleeps of tools, and their waits for the outside, of all agents that wait.

        A list in pages, with the arguments of `pending`. It activates and loads no agent.

        Raises:
            UsageError: if an argument is wrong; it names the argument.

        """
        return self._open_lists().waiting(
            tool=tool, agent=agent, order=order, after=after, limit=limit
        )

    def doubts(
        self,
        *,
        tool: str | None = None,
        agent: str | None = None,
        order: AskOrder = "oldest",
        after: str | None = None,
        limit: int | None = None,
    ) -> Listing[Doubt]:
        """The calls in doubt of all agents: a person is asked, or only the model was told.

        A list in pages, with the arguments of `pending`. The first `"expiring"` are those that end
        first by themselves. It activates and loads no agent. `ref.settle(doubt.call_key, how=...)`
        settles a doubt without a `request_id`. One with it is answered, as any request.

        Raises:
            UsageError: if an argument is wrong; it names the argument.

        """
        return self._open_lists().doubts(
            tool=tool, agent=agent, order=order, after=after, limit=limit
        )

    def count(self) -> Future[dict[Status, int]]:
        """How many agents of the store have each status. None is `PASSIVE`: see `AgentInfo`."""
        return self._open_lists().count()

    def now(self) -> Future[datetime]:
        """The time by which the agents of the store live, in UTC: what expires has by this one.

        By the clock of the runtime. By default, and for an observer, that is the machine's; where
        hosts share the store it is the server's, and the machine's may be wrong by minutes.
        """

        async def now() -> datetime:
            return self._clock().now()

        return self._call(now)

    def export(self, id: str) -> Future[dict[str, Any]]:
        """All records of an agent, as JSON-able data for `import_`. The agent is not changed.

        The future raises `UnknownAgent` if there is no such agent.
        """
        checked_id(id)
        return self._call(lambda: export(self._store(), id))

    # -------------------------------------------------------------------- inside

    @abstractmethod
    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """The loop; raises a `UsageError` where it does not run."""

    @abstractmethod
    def _store(self) -> Readable:
        """What is read. Called while the loop runs."""

    @abstractmethod
    def _clock(self) -> Clock:
        """By which its agents live. Called while the loop runs."""

    @abstractmethod
    def _lists(self) -> Lists:
        """Its lists. Called while the loop runs."""

    @abstractmethod
    def _has_ended(self) -> bool:
        """Whether it answers no more."""

    @abstractmethod
    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it in a task that ends with this at the latest. On the loop."""

    def _open_lists(self) -> Lists:
        self._running_loop()
        return self._lists()

    def _call(
        self, function: Callable[[], Coroutine[Any, Any, T]], future: Future[T] | None = None
    ) -> Future[T]:
        """Call it on the loop; the future, a new one or this, gets what it returns or raises."""
        try:
            loop = self._running_loop()
        except UsageError as error:
            if future is None:
                raise
            refuse(future, error)
            return future
        return self._call_on(loop, function, Future(loop) if future is None else future)

    def _call_on(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], Coroutine[Any, Any, T]],
        future: Future[T],
    ) -> Future[T]:

        async def go() -> None:
            try:
                if self._has_ended():
                    raise gone
                value = await function()
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:  # a SystemExit would end the loop
                refuse(
                    future, error if isinstance(error, Exception) else RuntimeError(shown(error))
                )
            else:
                future.set(value)

        gone = UsageError(self._closed_too_soon)

        def begin() -> None:
            # Also of one that is cancelled before it has begun.
            self._start_task(go()).add_done_callback(lambda _: refuse(future, gone))

        loop.call_soon_threadsafe(begin)
        return future

"""Subscriptions to the agents of a cluster, without a gap where hosts end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from understudy.actors import AgentEvent
from understudy.cluster.frames import Target
from understudy.cluster.hosts import HostEnd, HostLost
from understudy.display import DisplayUpdate
from understudy.errors import UsageError
from understudy.loop_actors.future import Future
from understudy.loop_actors.stream import Stream

if TYPE_CHECKING:
    from understudy.cluster.calls import Calls

T = TypeVar("T")


class _Subscription(Stream[T]):
    """A subscription at a host. If the host ends, another host is asked."""

    _method: str
    """The name of the method of a ref that subscribes at the host."""

    def __init__(self, calls: Calls, target: Target, after: int) -> None:
        if not isinstance(after, int) or isinstance(after, bool) or after < 0:
            raise UsageError(
                f"`after` must be the number of an event, or 0 for all of them, got {after!r}"
            )
        self._calls = calls
        self._target = target
        self._last = after
        self._host: HostEnd | None = None
        self._number = 0
        """The number of the subscription at its host."""
        self._is_closed = False

    def _steps(self) -> Iterator[T | Future[list[T]]]:
        while True:
            reading = self._calls.on_loop(self._read)
            yield reading
            found = reading.get()
            if not found:
                return
            yield from found

    def close(self) -> None:
        """End the iteration."""
        self._is_closed = True

        async def closed() -> None:
            if self._host is not None:
                await self._host.ask("unsubscribe", self._number)

        if not self._calls.has_ended:
            self._calls.on_loop(closed)

    async def _read(self) -> list[T]:
        """The next items; none if the subscription has ended."""
        while not self._is_closed and not self._calls.has_ended:
            try:
                if self._host is None:
                    self._number, self._host = await self._calls.call_host(
                        self._target, "subscribe", self._method, self._begin()
                    )
                    if self._is_closed:
                        # `close` has found no host to tell: nobody else ends it there
                        # (test_a_subscription_that_is_closed_while_a_host_begins_it_ends).
                        await self._host.ask("unsubscribe", self._number)
                        break
                found = await self._host.ask("next_events", self._number)
            except HostLost:
                self._host = None
                continue
            if not found and not self._is_closed:
                self._host = None  # its runtime stops: it drains
                continue
            items = self._new(found)
            if items:
                return items
        return []

    @abstractmethod
    def _begin(self) -> int:
        """The number after which the subscription goes on at a host."""

    @abstractmethod
    def _new(self, found: list[T]) -> list[T]:
        """The items that were not brought yet."""


class ClusterSubscription(_Subscription[AgentEvent]):
    """The events of one agent, to iterate with `for` in a thread or with `async for` on a loop.

    It ends when the cluster stops, or with `close()`. Where its host ends it goes on at another
    one, behind the last event that it has brought; events that are not recorded may be missing.
    """

    _method = "events"
    _seen = 0
    """How many events of the record `_last` were brought: they have one number."""
    _skip = 0
    """How many events of the record `_last` another host is going to bring again."""

    def _begin(self) -> int:
        # From the record before: of the last one there may be more events than were brought.
        self._skip = self._seen
        return self._last - 1 if self._seen else self._last

    def _new(self, found: list[AgentEvent]) -> list[AgentEvent]:
        events = []
        for event in found:
            if event.seq is not None:
                if event.seq == self._last and self._skip:
                    self._skip -= 1
                    continue
                if event.seq != self._last:
                    self._last, self._seen, self._skip = event.seq, 0, 0
                self._seen += 1
            events.append(event)
        return events


class ClusterDisplay(_Subscription[DisplayUpdate]):
    """Updates of the rows of one agent, to iterate as `ClusterSubscription`.

    Where its host ends, rows may come again as they are.
    """

    _method = "display_events"

    def _begin(self) -> int:
        return self._last

    def _new(self, found: list[DisplayUpdate]) -> list[DisplayUpdate]:
        numbers = [update.seq for update in found if update.seq is not None]
        self._last = max(numbers, default=self._last)
        return found

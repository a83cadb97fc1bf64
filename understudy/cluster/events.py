"""Subscriptions to the agents of a cluster, without a gap where hosts end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from understudy.actors import AgentEvent
from understudy.actors.agent.events import position_of
from understudy.cluster.frames import Target
from understudy.cluster.hosts import HostEnd, HostLost
from understudy.display import DisplayUpdate
from understudy.history import check_page
from understudy.loop_actors.future import Future
from understudy.loop_actors.stream import Stream

if TYPE_CHECKING:
    from understudy.cluster.calls import Calls

T = TypeVar("T")


class _Subscription(Stream[T]):
    """A subscription at a host. If the host ends, another host is asked."""

    _method: str
    """The name of the method of a ref that subscribes at the host."""

    def __init__(self, calls: Calls, target: Target, after: int | str) -> None:
        self._calls = calls
        self._target = target
        self._last = after
        """What the subscription goes on behind at a host."""
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
                        self._target, "subscribe", self._method, self._last
                    )
                    if self._is_closed:
                        # `close` has found no host to tell: nobody else ends it there
                        # (test_a_subscription_that_is_closed_while_a_host_begins_it_ends).
                        await self._host.ask("unsubscribe", self._number)
                        break
                found: list[T] = await self._host.ask("next_events", self._number)
            except HostLost:
                self._host = None
                continue
            if not found and not self._is_closed:
                self._host = None  # its runtime stops: it drains
                continue
            behind = [place for place in map(self._behind, found) if place is not None]
            self._last = behind[-1] if behind else self._last
            return found
        return []

    @abstractmethod
    def _behind(self, item: T) -> int | str | None:
        """What a subscription goes on behind that has this; None where it is not recorded."""


class ClusterSubscription(_Subscription[AgentEvent]):
    """The events of one agent, to iterate with `for` in a thread or with `async for` on a loop.

    The iteration ends when the cluster stops, or with `close()`. If the host of the agent ends,
    another host continues after the last event that came. Events that are not recorded may be
    missing.
    """

    _method = "events"

    def __init__(self, calls: Calls, target: Target, after: int | str) -> None:
        position_of(after)
        super().__init__(calls, target, after)

    def _behind(self, item: AgentEvent) -> str | None:
        return item.position


class ClusterDisplay(_Subscription[DisplayUpdate]):
    """Updates of the rows of one agent, to iterate as a `ClusterSubscription`.

    If the host of the agent ends, rows may come again unchanged.
    """

    _method = "display_events"

    def __init__(self, calls: Calls, target: Target, after: int) -> None:
        check_page(after, 1)
        super().__init__(calls, target, after)

    def _behind(self, item: DisplayUpdate) -> int | None:
        return item.seq

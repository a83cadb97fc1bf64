"""`ClusterSubscription`: the events of an agent of a cluster, without a gap where hosts end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from understudy.actors import AgentEvent
from understudy.cluster.frames import Target
from understudy.cluster.hosts import HostEnd, HostLost
from understudy.errors import UsageError
from understudy.loop_actors.future import Future

if TYPE_CHECKING:
    from understudy.cluster.calls import Calls


class ClusterSubscription:
    """The events of one agent, to iterate with `for` in a thread or with `async for` on a loop.

    It ends when the cluster stops, or with `close()`. Where its host ends it goes on at another
    one, behind the last event that it has brought; events that are not recorded may be missing.
    """

    def __init__(self, calls: Calls, target: Target, after: int) -> None:
        if not isinstance(after, int) or isinstance(after, bool) or after < 0:
            raise UsageError(
                f"`after` must be the number of an event, or 0 for all of them, got {after!r}"
            )
        self._calls = calls
        self._target = target
        self._last = after
        self._seen = 0
        """How many events of the record `_last` it has brought: they have one number."""
        self._skip = 0
        """How many of those are to come again, after it went to another host."""
        self._host: HostEnd | None = None
        self._number = 0
        """Of the subscription, at its host."""
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[AgentEvent]:
        while events := await self._next():
            for event in events:
                yield event

    def __iter__(self) -> Iterator[AgentEvent]:
        while events := self._next().get():
            yield from events

    def close(self) -> None:
        """End the iteration."""
        self._is_closed = True

        async def closed() -> None:
            if self._host is not None:
                await self._host.ask("unsubscribe", self._number)

        self._calls.on_loop(closed)

    def _next(self) -> Future[list[AgentEvent]]:
        """The next events; none if it has ended."""
        return self._calls.on_loop(self._read)

    async def _read(self) -> list[AgentEvent]:
        while not self._is_closed and not self._calls.has_ended:
            try:
                if self._host is None:
                    await self._subscribe()
                assert self._host is not None, "subscribed"
                found = await self._host.ask("next_events", self._number)
            except HostLost:
                self._host = None
                continue
            if not found and not self._is_closed:
                self._host = None  # its runtime stops: it drains
                continue
            events = self._new(found)
            if events:
                return events
        return []

    async def _subscribe(self) -> None:
        # From the record before: of the last one there may be more events than were brought.
        after = self._last - 1 if self._seen else self._last
        self._number, self._host = await self._calls.subscribe(self._target, after)
        self._skip = self._seen

    def _new(self, events: list[AgentEvent]) -> list[AgentEvent]:
        """Those that it has not brought yet."""
        found = []
        for event in events:
            if event.seq is not None:
                if event.seq == self._last and self._skip:
                    self._skip -= 1
                    continue
                if event.seq != self._last:
                    self._last, self._seen, self._skip = event.seq, 0, 0
                self._seen += 1
            found.append(event)
        return found

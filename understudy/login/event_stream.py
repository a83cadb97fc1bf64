"""`EventStream`: an answer of server-sent events, which ends in time, or with its server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Mapping
from contextlib import aclosing, suppress

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from understudy.login.problems import Problem, problem_response

PING = 15
"""Seconds of silence after which a comment says that the stream is open."""
SEND_SECONDS = 300.0
"""Seconds that a client may take to receive an event; then its connection is cut."""
GRACE = 1.0
"""The seconds in which a stream must end when its server stops; then it is cut off."""
MAX_STREAMS = 100
"""The maximum number of open streams of a user: a visible page has one stream."""
END = "\n"
"""The end of a line."""
Farewell = Callable[[], AsyncIterator[ServerSentEvent]]
"""A function that makes the last events of a stream that ends before its subject does."""


class StreamBound:
    """The number of streams that each user may have open at an application.

    Args:
        most: the maximum number of streams of a user.

    """

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self._most = most
        self._open: Counter[Hashable] = Counter()

    def enter(self, user: Hashable) -> bool:
        """Count a stream of the user. Returns whether there is room for it."""
        if self._open[user] >= self._most:
            return False
        self._open[user] += 1
        return True

    def leave(self, user: Hashable) -> None:
        """Note that a stream of the user has ended."""
        self._open[user] -= 1
        if not self._open[user]:
            del self._open[user]


class EventStream(EventSourceResponse):
    """Sends events as they come. They are closed when the stream ends, or its client is gone.

    Args:
        events: the events to send.
        longest: the seconds after which the stream ends, and the client reconnects; None = never.
        farewell: the last events if the server stops while more events are awaited, so that the end
            of the stream is not taken for the end of the events.
        headers: headers in addition to those of each stream.
        bound: counts the open streams.
        user: the user of the stream.

    """

    def __init__(
        self,
        events: AsyncGenerator[ServerSentEvent, None],
        *,
        longest: float | None = None,
        farewell: Farewell | None = None,
        headers: Mapping[str, str] | None = None,
        bound: StreamBound | None = None,
        user: Hashable = "",
    ) -> None:
        self._events = events
        self._bound = bound
        self._user = user
        self.server_stops: anyio.Event = anyio.Event()
        """An event that is set when the server begins to stop."""
        super().__init__(
            _in_time(events, longest, self.server_stops, farewell),
            ping=PING,
            ping_message_factory=lambda: ServerSentEvent(comment="ping", sep=END),
            sep=END,
            send_timeout=SEND_SECONDS,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})},
            # Without time to end, the answer is cut off: the server logs an error for each stream
            # (test_a_server_that_stops_ends_its_streams_as_complete_answers).
            shutdown_event=self.server_stops,
            shutdown_grace_period=GRACE,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; or that the user has too many streams open."""
        if self._bound is None:
            await self._sent(scope, receive, send)
            return
        if not self._bound.enter(self._user):
            await self._events.aclose()
            problem = Problem(429, "TooManyStreams", "Too many streams are open: close some.")
            refusal = problem_response(scope, problem, {"Retry-After": "5"})
            await refusal(scope, receive, send)
            return
        try:
            await self._sent(scope, receive, send)
        finally:
            self._bound.leave(self._user)

    async def _sent(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(SendTimeoutError):  # the server cuts a connection whose answer has no end
            await super().__call__(scope, receive, send)


async def _in_time(
    events: AsyncGenerator[ServerSentEvent, None],
    longest: float | None,
    server_stops: anyio.Event,
    farewell: Farewell | None,
) -> AsyncGenerator[ServerSentEvent, None]:
    """The events, until they end, the time is over, or the server stops."""
    now = asyncio.get_running_loop().time
    end = None if longest is None else now() + longest
    limit: asyncio.Timeout | None = None

    async def end_with_server() -> None:
        nonlocal end
        await server_stops.wait()
        end = 0.0  # a moment that has passed
        if limit is not None:
            limit.reschedule(end)

    ending = asyncio.create_task(end_with_server())
    try:
        # The client is gone at once when the connection is: nothing waits for a collector
        # (test_a_client_that_goes_while_it_is_sent_to_leaves_no_task).
        async with aclosing(events):
            if longest is not None:
                # It is sent at once, so the client knows that it is connected, and when to
                # reconnect.
                yield ServerSentEvent(comment="open", retry=1000, sep=END)
            # The time is checked for each event: events that are there already never wait, so no
            # limit cuts them off (test_a_stream_whose_events_never_wait_ends_in_time). Before a
            # farewell they are all sent: they may have the end
            # (test_what_has_ended_when_the_server_stops_ends_as_ever).
            while end is None or now() < end or farewell is not None:
                # The limit is not around the `yield`, where it would cancel the task while it sends
                # (test_a_stream_ends_in_order_also_while_it_is_sent_to).
                try:
                    async with asyncio.timeout_at(end) as limit:
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    if limit is not None and limit.expired():
                        break
                    raise
                finally:
                    limit = None
                yield event
        if farewell is not None:
            async for event in farewell():
                yield event
    finally:
        ending.cancel()

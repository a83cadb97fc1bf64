"""Streams of one agent for the pages of an application: its rows, or its events.

They send the same data as the JSON API. A browser that reconnects says by `Last-Event-ID` what it
has, and gets the rest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeAlias

from sse_starlette import ServerSentEvent
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from understudy._base.json_values import shown
from understudy.actors import AgentRef
from understudy.actors.agent.events import is_position, position_of
from understudy.actors.observer import ObservedAgent
from understudy.errors import UsageError
from understudy.history import check_page
from understudy.login.event_stream import EventStream, StreamBound
from understudy.login.redaction import Redact, Redaction
from understudy.login.users import NOBODY, User

LONGEST = 300.0
"""The maximum seconds of one stream."""
Watched: TypeAlias = AgentRef[Any] | ObservedAgent
Seen = Callable[[Any], Any]
"""A function that gives the data as the reader may see it."""


def last_event_id(headers: Headers) -> str | None:
    """The number or position of what a client has; None if it sends none, or something else."""
    last = headers.get("last-event-id", "")
    return last if is_position(last) else None


async def rows_of(
    ref: Watched, after: int | str, seen: Seen
) -> AsyncGenerator[ServerSentEvent, None]:
    """The updates of the rows of an agent."""
    subscription = ref.display_events(position_of(after).seq)
    try:
        async for update in subscription:
            number = None if update.seq is None else str(update.seq)
            yield ServerSentEvent(json.dumps(seen(update.to_dict())), event="rows", id=number)
    finally:
        subscription.close()


async def events_of(
    ref: Watched, after: int | str, seen: Seen, *, follow: bool = True
) -> AsyncGenerator[ServerSentEvent, None]:
    """The events of an agent: recorded events first, then live events."""
    subscription = ref.events(after)
    if not follow:
        subscription.close()  # what is stored can still be read
    try:
        async for found in subscription:
            yield ServerSentEvent(
                json.dumps(seen(found.to_dict())),
                event=found.event.kind,
                id=found.position,
            )
    finally:
        subscription.close()


class AgentStream(EventStream):
    """A response that begins after what its client has.

    Args:
        ref: the agent.
        after: the place at which it begins, if the client sends none.
        events: makes the events after a number or position.
        bound: counts the open streams.
        user: the user of the stream.

    """

    def __init__(
        self,
        ref: Watched,
        after: int | str,
        events: Callable[[int | str], AsyncGenerator[ServerSentEvent, None]],
        *,
        bound: StreamBound | None = None,
        user: str = "",
    ) -> None:
        self._ref = ref
        self._after = after
        self._of = events
        super().__init__(self._behind(), longest=LONGEST, bound=bound, user=user)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events.

        Raises:
            UnknownAgent: before the answer begins, if there is no such agent.

        """
        last = last_event_id(Headers(scope=scope))
        self._after = self._after if last is None else last
        await self._ref.info()
        await super().__call__(scope, receive, send)

    async def _behind(self) -> AsyncGenerator[ServerSentEvent, None]:
        events = self._of(self._after)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()


def rows_response(
    ref: AgentRef[Any], *, after: int = 0, redact: Redact | None = None, user: User | None = None
) -> AgentStream:
    """Return a response that streams the rows of an agent's conversation as they change.

    It is a response of Starlette and FastAPI. It sends server-sent events named `rows`: the updates
    of `ref.display_events()` as JSON. A client that sends `Last-Event-ID`, as browsers do when they
    reconnect, gets what it has not seen. The stream ends after five minutes and when the server
    stops; browsers reconnect. `static/understudy.js` of the pages can read it.

    Args:
        ref: the agent. If there is no agent of this id, the response raises `UnknownAgent` when
            it is called. `add_error_handlers` answers that with 404.
        after: the number of the last update that the client has. Used if the client sends no
            `Last-Event-ID`.
        redact: hides values, as the `redact` of `ui`. Its paths begin with `"rows"`.
        user: the reader, for a `redact` that takes the user.

    Raises:
        UsageError: if an argument is wrong.

    """
    seen = _checked("rows_response", ref, redact, user)
    check_page(after, 1)
    return AgentStream(ref, after, lambda number: rows_of(ref, number, seen))


def events_response(
    ref: AgentRef[Any],
    *,
    after: int | str = 0,
    redact: Redact | None = None,
    user: User | None = None,
) -> AgentStream:
    """Return a response that streams the events of an agent, recorded events first.

    It works as `rows_response`. It sends the events of `ref.events()` as JSON, each under its kind,
    such as `text_delta`.

    Args:
        ref: the agent.
        after: the `position` of the last event that the client has, or the number of a record
            of which it has all events. Used if the client sends no `Last-Event-ID`.
        redact: hides values, as the `redact` of `ui`.
        user: the reader, for a `redact` that takes the user.

    Raises:
        UsageError: if an argument is wrong.

    """
    seen = _checked("events_response", ref, redact, user)
    position_of(after)
    return AgentStream(ref, after, lambda number: events_of(ref, number, seen))


def _checked(what: str, ref: object, redact: Redact | None, user: User | None) -> Seen:
    if not isinstance(ref, AgentRef):
        raise UsageError(f"{what}(ref) takes an agent, such as runtime.get(id), got {shown(ref)}")
    redaction = Redaction(redact, what=f"{what}(redact=...)")
    if user is not None and not isinstance(user, User):
        raise UsageError(f"{what}(user=...) takes a User, got {shown(user)}")
    if user is None and redaction.takes_user:
        raise UsageError(f"{what}(redact=...) takes the user: give `user=` as well")
    return lambda data: redaction.seen(user or NOBODY, data)

"""Events of the API, as server-sent events. A stream ends after some minutes: clients reconnect."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any, cast

from sse_starlette import ServerSentEvent

from understudy.actors.agent.events import is_position, position_of
from understudy.errors import UsageError
from understudy.login.event_stream import EventStream
from understudy.login.problems import refused
from understudy.web.responses import LONGEST, events_of, last_event_id, rows_of
from understudy.web.visit import Visit


def stream(visit: Visit, events: AsyncGenerator[ServerSentEvent, None]) -> EventStream:
    """The events, until they end, the time of the stream is over, or the server stops."""
    user, bound = visit.user.key, visit.site.streams
    return EventStream(events, longest=LONGEST, bound=bound, user=user)


def _after(visit: Visit) -> int:
    last = last_event_id(visit.request.headers)
    return visit.number("after", 0) if last is None else position_of(last).seq


def _position(visit: Visit) -> int | str:
    after = visit.asked("after")
    found = last_event_id(visit.request.headers) or after
    # A value that is no position is refused like a value that is no number.
    return found if found is not None and is_position(found) else visit.number("after", 0)


async def conversation_events(visit: Visit) -> EventStream:
    """The rows of the conversation that change, as they do."""
    after = _after(visit)
    await visit.wait(visit.watched.display(after=after))  # check that the agent exists
    return stream(visit, rows_of(visit.watched, after, visit.redacted))


async def agent_events(visit: Visit) -> EventStream:
    """The events of an agent: recorded events first, then live events."""
    after = _position(visit)
    follow = visit.asked("follow") != "0"
    await visit.state()  # check that the agent exists
    return stream(visit, events_of(visit.watched, after, visit.redacted, follow=follow))


async def feed(visit: Visit) -> EventStream:
    """The events of all agents."""
    after = visit.request.headers.get("last-event-id") or visit.asked("after")
    start = visit.asked("start") or "now"
    found = visit.source.events(after=after, start=cast("Any", start))
    if visit.asked("follow") == "0":
        found = found.until_now()
    try:
        position = await visit.wait(found.position())
    except UsageError as error:
        raise refused(409, "FeedOff", str(error)) from error

    async def events() -> AsyncGenerator[ServerSentEvent, None]:
        yield ServerSentEvent("{}", event="position", id=position)
        async for item in found:
            data = visit.redacted(item.to_dict())
            yield ServerSentEvent(json.dumps(data), event=item.event.kind, id=item.cursor)

    return stream(visit, events())

"""Events of the API, as server-sent events. Each stream ends after some minutes: clients go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

from pydantic_core import to_jsonable_python
from sse_starlette import EventSourceResponse, ServerSentEvent

from understudy.actors import StatusChanged
from understudy.errors import UsageError
from understudy.login.problems import refused
from understudy.web.asks import time_text
from understudy.web.visit import Visit

LONGEST = 300.0
"""Seconds of one stream."""
PING = 15


def stream(events: AsyncIterator[ServerSentEvent]) -> EventSourceResponse:
    """The events, until they end or it is time for the client to come back."""

    async def limited() -> AsyncIterator[ServerSentEvent]:
        # Sent at once: the client knows that it is connected, and when to come back.
        yield ServerSentEvent(comment="open", retry=1000)
        try:
            async with asyncio.timeout(LONGEST):
                async for event in events:
                    yield event
        except TimeoutError:
            return

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(limited(), ping=PING, headers=headers)


def _after(visit: Visit) -> int:
    last = visit.request.headers.get("last-event-id", "")
    return int(last) if last.isdecimal() and len(last) < 16 else visit.number("after", 0)


async def conversation_events(visit: Visit) -> Any:
    """The rows of the conversation that change, as they do."""
    after = _after(visit)
    await visit.wait(visit.watched.display(after=after))  # whether there is such an agent
    ref = visit.watched

    async def events() -> AsyncIterator[ServerSentEvent]:
        subscription = ref.display_events(after)
        try:
            async for update in subscription:
                data = visit.redacted(jsonable(update.to_dict()))
                number = None if update.seq is None else str(update.seq)
                yield ServerSentEvent(json.dumps(data), event="rows", id=number)
        finally:
            subscription.close()

    return stream(events())


async def agent_events(visit: Visit) -> Any:
    """The events of one agent: those that are recorded, then live ones."""
    after = _after(visit)
    follow = visit.asked("follow") != "0"
    await visit.state()  # whether there is such an agent
    ref = visit.watched

    async def events() -> AsyncIterator[ServerSentEvent]:
        subscription = ref.events(after)
        if not follow:
            subscription.close()  # what is stored can still be read
        try:
            async for found in subscription:
                what = found.event
                data = {
                    "agent_id": found.agent_id,
                    "seq": found.seq,
                    "at": time_text(found.at),
                    "event": event_data(what),
                }
                yield ServerSentEvent(
                    json.dumps(visit.redacted(data)),
                    event=what.kind,
                    id=None if found.seq is None else str(found.seq),
                )
        finally:
            subscription.close()

    return stream(events())


async def feed(visit: Visit) -> Any:
    """What happens to all agents."""
    after = visit.request.headers.get("last-event-id") or visit.asked("after")
    start = visit.asked("start") or "now"
    found = visit.source.events(after=after, start=cast("Any", start))
    if visit.asked("follow") == "0":
        found = found.until_now()
    try:
        position = await visit.wait(found.position())
    except UsageError as error:
        raise refused(409, "FeedOff", str(error)) from error

    async def events() -> AsyncIterator[ServerSentEvent]:
        yield ServerSentEvent("{}", event="position", id=position)
        async for item in found:
            data = {
                "agent_id": item.agent_id,
                "agent": item.agent,
                "seq": item.seq,
                "at": time_text(item.at),
                "event": event_data(item.event),
            }
            yield ServerSentEvent(
                json.dumps(visit.redacted(data)), event=item.event.kind, id=item.cursor
            )

    return stream(events())


def event_data(event: Any) -> Any:
    """An event as JSON."""
    if isinstance(event, StatusChanged):
        return {"kind": event.kind, "status": event.status.value}
    return jsonable(event)


def jsonable(data: Any) -> Any:
    """As JSON; what JSON lacks as text."""
    return to_jsonable_python(data, fallback=repr, inf_nan_mode="strings")

"""The live part of a page: one connection, which sends the part again when it has changed.

What is sent has the digest of the part as its id. A browser that comes back says by `Last-Event-ID`
what it shows, so it misses nothing, gets nothing twice, and it may come back to another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from sse_starlette import ServerSentEvent

from understudy._base.json_values import digest
from understudy.actors import Feed
from understudy.errors import UnderstudyError
from understudy.login.event_stream import EventStream
from understudy.login.problems import problem_of
from understudy.web.streams import stream
from understudy.web.visit import Visit

Watch = Callable[[Visit, asyncio.Event], Awaitable[None]]
"""Sets the event whenever something has happened, until it is cancelled."""
POLL = 2.0
"""Seconds between two looks at what a page shows."""
SHORTEST = 0.3
"""Seconds between two looks that are asked for by events."""
SLOWEST = 10.0
"""Seconds between two looks where the feed says when something happens: ages change, too."""


def version(part: str) -> str:
    """What a browser that shows this part says that it has."""
    return digest(part)[:16]


def live(
    visit: Visit, part: Callable[[], Awaitable[str]], watch: Watch | None = None
) -> EventStream:
    """The stream of a page, whose part `part` renders.

    Args:
        visit: of the page.
        part: renders what is live.
        watch: says when something has happened; by default the feed of the store does.

    """
    seen = visit.request.headers.get("last-event-id") or visit.asked("seen") or ""

    async def events() -> AsyncGenerator[ServerSentEvent, None]:
        shown = seen
        signal = asyncio.Event()
        is_away = False
        watching = begin(watch or _follow_feed, visit, signal)
        try:
            while True:
                try:
                    text = await part()
                except Exception as error:  # the agent is deleted, or the store is away
                    problem = problem_of(error)
                    if problem.status < 500:
                        return
                    if not is_away:
                        is_away = True
                        yield ServerSentEvent("{}", event="away")
                    await asyncio.sleep(POLL)
                    continue
                if is_away:
                    is_away = False
                    yield ServerSentEvent("{}", event="back")
                    if watching.done():
                        watching = begin(watch or _follow_feed, visit, signal)
                if version(text) != shown:
                    shown = version(text)
                    yield ServerSentEvent(text, id=shown)
                # Also where nothing has changed: most of what happens is about other agents
                # (test_an_open_page_looks_now_and_then_however_much_happens).
                await asyncio.sleep(SHORTEST)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL if watching.done() else SLOWEST):
                        await signal.wait()
                signal.clear()
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    return stream(events())


def begin(watch: Watch, visit: Visit, signal: asyncio.Event) -> asyncio.Task[None]:
    """Begin to watch. The task ends, and sets the signal, where nothing more can be told."""

    async def watching() -> None:
        try:
            await watch(visit, signal)
        except UnderstudyError:
            pass  # a store without a feed, or one that goes away: the next look tells what is wrong
        except Exception as error:
            problem_of(error)  # which logs it: the page goes on by looking
        finally:
            signal.set()  # a store that goes away ends it: look at once

    return asyncio.create_task(watching())


async def _follow_feed(visit: Visit, signal: asyncio.Event) -> None:
    """Set the signal when anything happens."""
    feed: Feed = visit.source.events()
    await feed.position()
    # Race: what happens between the first look and this is not told
    # (test_what_happens_while_an_open_page_begins_to_follow_is_on_it).
    signal.set()
    async for _ in feed:
        signal.set()

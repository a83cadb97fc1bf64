"""The live part of a page: one connection, which sends the part again when it has changed.

What is sent has the digest of the part as its id. A browser that comes back says by `Last-Event-ID`
what it shows, so it misses nothing, gets nothing twice, and it may come back to another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from sse_starlette import ServerSentEvent

from understudy._base.json_values import digest
from understudy.actors import Feed
from understudy.errors import UnderstudyError
from understudy.login.problems import problem_of
from understudy.web.streams import stream
from understudy.web.visit import Visit

POLL = 2.0
"""Seconds between two looks at what a page shows."""
SHORTEST = 0.3
"""Seconds between two looks that are asked for by events."""
SLOWEST = 10.0
"""Seconds between two looks where the feed says when something happens: ages change, too."""


def version(part: str) -> str:
    """What a browser that shows this part says that it has."""
    return digest(part)[:16]


Watch = Callable[[Visit, asyncio.Event], Awaitable[None]]


def live(visit: Visit, part: Callable[[], Awaitable[str]], watch: Watch | None = None) -> Any:
    """The stream of a page, whose part `part` renders.

    Args:
        visit: of the page.
        part: renders what is live.
        watch: sets an event whenever something has happened; by default the feed of the store.

    """
    seen = visit.request.headers.get("last-event-id") or visit.asked("seen") or ""

    async def events() -> AsyncIterator[ServerSentEvent]:
        shown = seen
        signal = asyncio.Event()
        is_away = False

        async def look_out() -> None:
            # A store without a feed, or one that goes away: the next look tells what is wrong.
            with suppress(UnderstudyError):
                await (watch or _watch)(visit, signal)

        def begin() -> asyncio.Future[None]:
            task = asyncio.ensure_future(look_out())
            # A store that goes away ends it: look at once.
            task.add_done_callback(lambda _: signal.set())
            return task

        watching = begin()
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
                    watching = begin() if watching.done() else watching
                if version(text) != shown:
                    shown = version(text)
                    yield ServerSentEvent(text, id=shown)
                    await asyncio.sleep(SHORTEST)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL if watching.done() else SLOWEST):
                        await signal.wait()
                signal.clear()
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await watching

    return stream(events())


async def _watch(visit: Visit, signal: asyncio.Event) -> None:
    """Set the signal when anything happens."""
    feed: Feed = visit.source.events()
    async for _ in feed:
        signal.set()

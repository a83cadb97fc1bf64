"""The live part of a page: one connection, which sends the part again when it has changed.

Each message has the digest of the part as its id. A browser that reconnects says by `Last-Event-ID`
what it shows, so it misses nothing and gets nothing twice, even if it reconnects to another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from sse_starlette import ServerSentEvent

from understudy._base.json_values import digest
from understudy._base.lookout import Hints
from understudy.actors import Feed, FeedEvent
from understudy.errors import UnderstudyError
from understudy.login.event_stream import EventStream
from understudy.login.problems import problem_of
from understudy.web.streams import stream
from understudy.web.visit import Visit

Watch = Callable[[Visit, Hints], Awaitable[None]]
"""A function that gives a hint whenever something has happened, until it is cancelled."""
Beside = Callable[[Visit, Callable[[], None]], Callable[[], None]]
"""A function that starts giving hints while a page is open, and returns the function that ends
it."""
POLL = 2.0
"""Seconds between two reads of what a page shows."""
SHORTEST = 0.3
"""The minimum seconds between two reads, however much happens."""
SLOWEST = 10.0
"""Seconds between two reads while the feed reports what happens, because ages change too."""


def version(part: str) -> str:
    """The text by which a browser says that it shows this part."""
    return digest(part)[:16]


def live(
    visit: Visit,
    part: Callable[[], Awaitable[str]],
    watch: Watch | None = None,
    *,
    beside: Beside | None = None,
) -> EventStream:
    """The stream of a page, whose part `part` renders.

    Args:
        visit: of the page.
        part: renders the live part.
        watch: reports when something has happened; by default the feed of the store.
        beside: gives hints of what no feed has: notes of people beside requests, and viewers.

    """
    seen = visit.request.headers.get("last-event-id") or visit.asked("seen") or ""

    async def events() -> AsyncGenerator[ServerSentEvent, None]:
        shown = seen
        is_away = False
        watching = Watching(watch or _follow_feed, visit)
        leave = None if beside is None else beside(visit, watching.hint)
        try:
            while True:
                try:
                    text = await part()
                except Exception as error:  # the agent is deleted, or the store cannot be reached
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
                    watching.begin()
                if version(text) != shown:
                    shown = version(text)
                    yield ServerSentEvent(text, id=shown)
                # The pause is kept even if nothing has changed: most events are about other agents
                # (test_an_open_page_looks_now_and_then_however_much_happens).
                await asyncio.sleep(SHORTEST)
                await watching.wait(POLL, SLOWEST)
        finally:
            if leave is not None:
                leave()
            await watching.end()

    return stream(visit, events())


class Watching:
    """Decides when a page is read again: when something happens, and now and then.

    Args:
        watch: gives the hints. If it ends, as without a feed, the reads come more often.
        visit: the visit of the page.

    """

    def __init__(self, watch: Watch, visit: Visit) -> None:
        self._watch = watch
        self._visit = visit
        self._hints = Hints()
        self._seen = 0
        self._task: asyncio.Task[None] | None = None
        self.begin()

    def begin(self) -> None:
        """Watch again, unless a watch is still under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watched())

    async def wait(self, poll: float, slowest: float) -> None:
        """Wait until something happens, for a limited time.

        Args:
            poll: the maximum seconds without a feed.
            slowest: the maximum seconds with a feed.

        """
        assert self._task is not None, "it is begun"
        self._seen = await self._hints.wait(poll if self._task.done() else slowest, self._seen)

    def hint(self) -> None:
        """Note that something has happened that the watch does not report. Called on the loop."""
        self._hints.give()

    async def end(self) -> None:
        """Stop watching."""
        assert self._task is not None, "it is begun"
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _watched(self) -> None:
        try:
            await self._watch(self._visit, self._hints)
        except UnderstudyError:
            pass  # without a feed, or without an answer: the next read shows the problem
        except Exception as error:
            problem_of(error)  # it logs the error; the page continues without hints
        finally:
            self._hints.give()  # the watch has ended, so read at once


async def _follow_feed(visit: Visit, hints: Hints) -> None:
    """Give a hint when anything happens."""
    await follow_feed(visit, hints, lambda _: True)


async def follow_feed(visit: Visit, hints: Hints, concerns: Callable[[FeedEvent], bool]) -> None:
    """Give a hint when something happens that concerns what is shown."""
    feed: Feed = visit.source.events()
    await feed.position()
    # Race: events between the first read and this are not reported
    # (test_what_happens_while_an_open_page_begins_to_follow_is_on_it).
    hints.give()
    async for event in feed:
        if concerns(event):
            hints.give()

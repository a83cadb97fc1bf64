"""The client: N users who begin anew as soon as they are done, or so many runs a second."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar
from urllib.parse import quote

from benchmarks.service.connections import Connection, Pool

__all__ = ["Driven", "Level", "drive", "until_it_answers"]

R = TypeVar("R")
PATIENCE = 60.0
"""Seconds to wait for runs to end, at both ends of the window."""
DRAIN = 30.0
"""Seconds to wait for the runs that are under way at the end."""
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Level:
    """How much load: by the number of users, or by the rate of runs."""

    users: int = 0
    rate: float = 0.0

    def __str__(self) -> str:
        if not self.users:
            return f"{self.rate:g} runs a second"
        return "1 user" if self.users == 1 else f"{self.users} users"


@dataclass(slots=True)
class Driven(Generic[R]):
    """What a level brought. Seconds are the clock's."""

    before: R
    """What was read when the window of the measurement began, and when it ended."""
    after: R
    seconds: float
    """Of the window."""
    runs: float
    """Within the window. Each of a run's two requests that ended there is half of one."""
    durations: list[float]
    """Of the runs that ended within the window."""
    all: int
    """The runs that ended, those outside of the window too."""
    errors: list[str]
    late: int
    """Runs that were still under way long after the end, as those of an app that falls behind."""


@dataclass(slots=True)
class _Tally:
    requests: list[float] = field(default_factory=list)
    """When each request ended."""
    ended: list[tuple[float, float]] = field(default_factory=list)
    """When each run ended, and how long it took."""
    errors: list[str] = field(default_factory=list)
    late: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def done(self) -> int:
        """The runs that have ended or failed."""
        return len(self.ended) + len(self.errors)

    def tell(self) -> None:
        """Wake who waits for a number of runs."""
        self.changed.set()

    async def until(self, done: int) -> None:
        """Wait for so many, and no longer than one is patient."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while self.done < done:
                    self.changed.clear()
                    await self.changed.wait()


async def drive(
    port: int, level: Level, read: Callable[[], R], *, warm: float, seconds: float
) -> Driven[R]:
    """Load the app, and read what is to be read at both ends of the window.

    The window begins when each user has ended a run, and ends when as many runs have ended in it:
    it is longer than `seconds` where runs are slow. With a rate, one run is enough.
    """
    tally, ended = _Tally(), asyncio.Event()
    async with _loaded(port, level, tally, ended):
        least = max(1, level.users)
        await asyncio.sleep(warm)
        await tally.until(least)
        before, start = read(), time.perf_counter()
        due = tally.done + least
        await asyncio.sleep(seconds)
        await tally.until(due)
        after, end = read(), time.perf_counter()
        ended.set()
    return Driven(
        before,
        after,
        seconds=end - start,
        runs=sum(start <= at <= end for at in tally.requests) / 2,
        durations=[took for at, took in tally.ended if start <= at <= end],
        all=len(tally.ended),
        errors=tally.errors,
        late=tally.late,
    )


@asynccontextmanager
async def _loaded(
    port: int, level: Level, tally: _Tally, ended: asyncio.Event
) -> AsyncIterator[None]:
    runs: set[asyncio.Task[None]] = set()
    pool = Pool(port)

    async def user() -> None:
        while not ended.is_set():
            await _run(pool, tally)

    async def visitors() -> None:
        start = time.perf_counter()
        for number in count(1):
            if ended.is_set():
                return
            one = asyncio.create_task(_run(pool, tally))
            runs.add(one)
            one.add_done_callback(runs.discard)
            await asyncio.sleep(max(0.0, start + number / level.rate - time.perf_counter()))

    each = [user() for _ in range(level.users)] or [visitors()]
    tasks = [asyncio.create_task(one) for one in each]
    try:
        yield
    finally:
        ended.set()
        left = {*tasks, *runs}
        _, late = await asyncio.wait(left, timeout=DRAIN)
        tally.late = len(late)
        for task in late:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        pool.close()


async def _run(pool: Pool, tally: _Tally) -> None:
    """One conversation, by two requests."""
    id, start = f"c{os.getpid()}-{next(_numbers)}-{time.time_ns()}", time.perf_counter()
    try:
        asked = await pool.post(f"/ask/{id}")
        tally.requests.append(time.perf_counter())
        await pool.post(f"/approve/{id}/{quote(asked['request'], safe='')}")
    except (OSError, EOFError, RuntimeError) as error:
        tally.errors.append(f"{type(error).__name__}: {error}")
        tally.tell()
        await asyncio.sleep(0.1)
        return
    now = time.perf_counter()
    tally.requests.append(now)
    tally.ended.append((now, now - start))
    tally.tell()


async def until_it_answers(port: int, alive: Callable[[], bool]) -> None:
    """Wait until the app has answered a first run.

    Raises:
        RuntimeError: if the app has ended instead.

    """
    while True:
        connection = Connection(port)
        with suppress(OSError, EOFError):
            await connection.post("/ask/first")
            connection.close()
            return
        if not alive():
            raise RuntimeError("the app has ended")
        await asyncio.sleep(0.1)

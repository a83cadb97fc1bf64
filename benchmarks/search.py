"""What the search costs: `python -m benchmarks.search [--url postgresql://...]`.

A store with agents that wait for a person is indexed, and searched. Then agents run in it, with the
index and without. PostgreSQL takes part where its URL is given: in a schema of its own, which is
dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence

from benchmarks.growth import approved
from benchmarks.lists import databases, drop, opened
from benchmarks.machine import machine_line
from benchmarks.simulate_hosts import desk
from understudy import Runtime
from understudy.actors import SearchPage
from understudy.journal import Store

__all__ = ["main", "measure"]

REPEATS = 20


async def measure(
    plain: Store, searched: Store, agents: int, runs: int
) -> AsyncIterator[tuple[str, float]]:
    """Milliseconds of each, on one database, which is opened twice."""
    async with Runtime([desk()], store=plain) as runtime:
        yield "a run without the index, processor", await _run(runtime, "plain", runs)
    async with Runtime([desk()], store=searched, search=True) as runtime:
        start = time.process_time()
        while await _behind(runtime):
            pass
        yield "to index an agent, processor", (time.process_time() - start) / agents * 1e3
        for what, words in (
            ("the requests with a rare word", f"order-{agents // 2}"),
            ("a page of 30 of the requests that all have the word", "broken"),
        ):
            times = []
            for _ in range(REPEATS):
                start = time.perf_counter()
                found = await runtime.search(words, where="requests", limit=30)
                times.append((time.perf_counter() - start) * 1e3)
                assert len(found) > 0, f"{words!r} is in a request"
            yield what, min(times)
        yield "a run with the index, processor", await _run(runtime, "searched", runs)


async def _behind(runtime: Runtime) -> int:
    """How many agents are not indexed yet. Each search indexes for up to a second before."""
    page = await runtime.search("refund", limit=1)
    assert isinstance(page, SearchPage)
    return page.behind


async def _run(runtime: Runtime, name: str, runs: int) -> float:
    await approved(runtime, name)
    start = time.process_time()
    for number in range(runs):
        await approved(runtime, f"{name}-{number}")
    return (time.process_time() - start) / runs * 1e3


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--url", help="of a PostgreSQL database")
    options = parser.parse_args(given)
    print(machine_line())

    async def show(plain: Store, searched: Store) -> None:
        async for what, milliseconds in measure(plain, searched, options.agents, options.runs):
            print(f"{milliseconds:10.2f}  {what}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for name, plain in databases(options.agents, folder, options.url, expires=False):
            print(f"\n{name}, {options.agents:,} agents that wait for a person")
            asyncio.run(show(plain, opened(name, folder, options.url)))
    if options.url is not None:
        drop(options.url)


if __name__ == "__main__":
    main()

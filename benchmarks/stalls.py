"""How long one call about a long agent stops everything else on its event loop.

`python -m benchmarks.stalls [--steps 10000] [--repeat 3] [--store sqlite|memory]`

An agent has had one run of so many steps, on a store of its own. Each call is measured alone, on a
loop that is never idle: a task that does nothing but go round. A stall is the time between two of
its rounds, by the processor's time of the whole process: it counts what the loop does itself, and
what a thread does that keeps the interpreter, and it does not count other programs of the machine.

Each call is made several times, and the longest stall of the quietest time is given: what the call
does in one piece is in each of them. Collections of the garbage collector are given apart. The
interpreter makes them when enough was allocated, in whatever code: a full one takes as long as all
that the process has in memory, of however many agents.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.fake_model import Fake
from benchmarks.machine import machine_line
from understudy import Agent, Runtime, tool
from understudy.journal import MemoryStore, Store
from understudy.web import loopback_only, ui

__all__ = ["BOUND", "Stall", "main", "measured", "opened"]

BOUND = 0.010
"""Seconds that one call may stop the loop, at 10,000 steps."""
ID = "old"
Call = Callable[[Runtime], Awaitable[Any]]


class Stall(NamedTuple):
    """The longest stall of one call."""

    seconds: float
    """Without collections."""
    collecting: float
    """Seconds of the longest stall, with collections."""
    rounds: int
    """How often everything else on the loop had its turn."""
    cpu: float
    """Seconds of the processor, in all, without those of the task that goes round."""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


def agent(steps: int) -> Agent:
    """It calls a tool so many times, and answers at once from then on."""
    return Agent("adder", Fake(steps), tools=[add], max_runs=10**9)


@asynccontextmanager
async def opened(steps: int, store: str | Store) -> AsyncIterator[Runtime]:
    """A runtime on a store that has an agent of so many steps."""
    async with Runtime([agent(steps)], store=store) as runtime:
        if not [each async for each in runtime.agents()]:
            await runtime.spawn("adder", id=ID).run("go")
        yield runtime


async def stall_of(call: Callable[[], Awaitable[object]]) -> Stall:
    """The longest stall of one call."""
    longest = collecting = collected = before = 0.0
    began: float | None = None
    rounds, is_over = 0, False

    def on_collection(phase: str, info: dict[str, int]) -> None:
        nonlocal collected, began
        if phase == "start":
            began = time.process_time()
        elif began is not None:
            collected += time.process_time() - max(began, before)
            began = None

    async def go_round() -> None:
        nonlocal longest, collecting, rounds, collected, before
        before = time.process_time()
        while not is_over:
            await asyncio.sleep(0)
            now = time.process_time()
            if began is not None:  # of a thread, which was stopped before it told of the end
                collected += now - max(began, before)
            took, before = now - before, now
            longest, collecting = max(longest, took - collected), max(collecting, took)
            rounds, collected = rounds + 1, 0.0

    gc.collect()
    gc.callbacks.append(on_collection)
    round_trip = asyncio.create_task(go_round())
    await asyncio.sleep(0)
    start = time.thread_time()
    try:
        await call()
        cpu = time.thread_time() - start
    finally:
        is_over = True
        await round_trip
        gc.callbacks.remove(on_collection)
    return Stall(longest, collecting, rounds, cpu)


async def _all_events(runtime: Runtime) -> None:
    last = (await runtime.get(ID).info()).last_seq
    events = runtime.get(ID).events()
    async for event in events:
        if event.seq is not None and event.seq >= last - 2:
            break
    events.close()


async def _first_rows(runtime: Runtime) -> None:
    rows = runtime.get(ID).display_events()
    async for _ in rows:
        break
    rows.close()


def _page(path: str) -> Call:
    """Asks the pages or the API for this."""

    async def call(runtime: Runtime) -> bytes:
        app = ui(runtime, auth=loopback_only("ann"))
        transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get(path, timeout=60)
            return answer.raise_for_status().content

    return call


async def _rest(runtime: Runtime) -> None:
    await runtime.get(ID).stop(block=False)


Case = tuple[str, Call | None, Call]
CASES: tuple[Case, ...] = (
    ("a reply of an agent in memory", lambda r: r.get(ID).run("x"), lambda r: r.get(ID).run("x")),
    ("activation and its first reply", _rest, lambda r: r.get(ID).run("x")),
    ("state() of a passive agent", _rest, lambda r: r.get(ID).state()),
    ("display()", None, lambda r: r.get(ID).display()),
    ("display_events(), the first update", None, _first_rows),
    ("events(0), all of them", None, _all_events),
    ("history(), a page far back", None, lambda r: r.get(ID).history(after=9_000, limit=100)),
    ("a page with nothing, the first", None, _page("/freezes")),
    ("the page of the conversation", None, _page(f"/agents/{ID}")),
    ("the API's state", None, _page(f"/api/agents/{ID}/state")),
    ("the API's messages", None, _page(f"/api/agents/{ID}/messages")),
    ("export()", None, lambda r: r.export(ID)),
    ("compact() of an agent in memory", None, lambda r: r.compact(ID)),
    ("activation behind that, first reply", None, lambda r: r.get(ID).run("x")),
    ("display() behind that", None, lambda r: r.get(ID).display()),
    ("compact() of a passive agent", _rest, lambda r: r.compact(ID)),
)
"""What is measured, and what comes before it, in this order: a compaction takes the records."""


async def measured(steps: int, store: str | Store) -> dict[str, Stall]:
    """The longest stall of each call, once."""
    found: dict[str, Stall] = {}
    async with opened(steps, store) as runtime:
        for name, before, call in CASES:
            if before is not None:
                await before(runtime)

            given: list[object] = []  # kept: that it is freed is no part of the call

            async def made(call: Call = call, given: list[object] = given) -> None:
                given.append(await call(runtime))

            found[name] = await stall_of(made)
    return found


async def _main(steps: int, repeat: int, kind: str) -> None:
    print(machine_line())
    best: dict[str, Stall] = {}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.db"
        if kind == "sqlite":
            async with opened(steps, f"sqlite:///{made}"):
                pass
        for number in range(repeat):
            if kind == "sqlite":
                path = Path(folder) / f"{number}.db"
                shutil.copy(made, path)
                found = await measured(steps, f"sqlite:///{path}")
            else:
                found = await measured(steps, MemoryStore())
            for name, stall in found.items():
                kept = best.get(name, stall)
                best[name] = Stall(
                    min(kept.seconds, stall.seconds),
                    min(kept.collecting, stall.collecting),
                    min(kept.rounds, stall.rounds),
                    min(kept.cpu, stall.cpu),
                )
    print(f"the longest stall of the loop, in ms, at {steps:,} steps, {kind}; at most 10 is meant")
    print(f"{'':38} {'stall':>7} {'with gc':>8} {'rounds':>8} {'loop cpu':>9}")
    for name, stall in best.items():
        over = "  over" if stall.seconds > BOUND else ""
        print(
            f"{name:38} {1e3 * stall.seconds:7.1f} {1e3 * stall.collecting:8.1f} "
            f"{stall.rounds:8} {1e3 * stall.cpu:9.0f}{over}"
        )


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--store", choices=("sqlite", "memory"), default="sqlite")
    given = parser.parse_args(arguments)
    asyncio.run(_main(given.steps, given.repeat, given.store))


if __name__ == "__main__":
    main()

"""What it costs to keep a store small: `python -m benchmarks.retire [--url postgresql://...]`.

Agents at rest are retired while another task has the store do something small, again and again.
Then runs that were cut off are recovered while another agent is called. PostgreSQL takes part where
its URL is given: in a schema of its own, which is dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import machine_line
from understudy import Agent, Runtime, ScriptedModel, call, tool
from understudy.journal import DatabaseStore
from understudy.journal.backend import Backend
from understudy.journal.codec import EncodedRecord, decode
from understudy.journal.contracts import Batch, Owned
from understudy.journal.index_status import index_entry_of
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.state.fold import replay

__all__ = ["main"]

SCHEMA = "understudy_benchmark"
MakeBackend = Callable[[], Backend]


@tool(read_only=True)
def lookup(order_id: str) -> dict[str, str]:
    """Look up an order.

    Args:
        order_id: the number on the invoice.
    """
    return {"order": order_id, "item": "kettle"}


def clerk() -> Agent:
    """Calls a tool once, and answers."""

    def reply(request: Any) -> Any:
        if len(request.messages) > 2:
            return "You ordered a kettle. " * 20
        return call("lookup", {"order_id": "17"})

    return Agent("clerk", ScriptedModel(reply), tools=[lookup])


async def recorded(folder: Path) -> list[EncodedRecord]:
    """The records of one run."""
    backend = SqliteBackend(str(folder / "one.db"), durability="off", host="one")
    async with Runtime([clerk()], store=DatabaseStore(backend)) as runtime:
        await runtime.spawn("clerk", id="a").run("What is order 17? " * 10)
        stored = backend.load("a", 0)
        assert stored is not None
        return list(stored.records)


def fill(backend: Backend, records: Sequence[EncodedRecord], count: int, name: str) -> None:
    """Put agents with these records into a store, in nobody's memory."""
    read = [decode(each) for each in records]
    entry, at = index_entry_of(replay(read)), read[-1].at
    backend.open()
    for first in range(0, count, 500):
        backend.begin()
        owned: list[Owned] = []
        for number in range(first, min(first + 500, count)):
            claimed = backend.claim(f"{name}-{number:06}", "clerk")
            assert claimed is not None
            owned.append(claimed)
        batches = [
            Batch(
                agent_id=each.agent_id,
                incarnation=each.incarnation,
                epoch=each.epoch,
                first_seq=1,
                records=tuple(records),
                entry=entry,
                status_noted=True,
                at=at,
            )
            for each in owned
        ]
        assert backend.append_all(batches) == [None] * len(batches)
        backend.commit()
    backend.close()


class Waits(NamedTuple):
    """How long something small took, again and again, in milliseconds."""

    alone: list[float]
    beside: list[float]

    def __str__(self) -> str:
        def told(waits: list[float]) -> str:
            ordered = sorted(waits) or [0.0]
            middle, most = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
            return f"{middle:.1f} / {most:.1f} / {ordered[-1]:.1f}"

        return f"{told(self.alone)} alone, {told(self.beside)} beside"


class Beside:
    """Does something small again and again, alone for a second and then beside something else."""

    def __init__(self, small: Callable[[int], Any]) -> None:
        self.waits = Waits([], [])
        self._small = small
        self._into = self.waits.alone

    async def __aenter__(self) -> Waits:
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(1)
        self._into = self.waits.beside
        return self.waits

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        number = 0
        while True:
            number += 1
            since = time.perf_counter()
            await self._small(number)
            self._into.append(1000 * (time.perf_counter() - since))
            await asyncio.sleep(0.005)


class Retiring(NamedTuple):
    """What retiring has cost."""

    agents: int
    seconds: float
    cpu: float
    longest: float
    """Milliseconds of this process's time in the longest deletion of one transaction."""
    archive: int
    waits: Waits

    def __str__(self) -> str:
        return (
            f"{self.agents / self.cpu:,.0f} agents a second of CPU,"
            f" {self.agents / self.seconds:,.0f} by the clock;"
            f" {self.archive / self.agents:.0f} bytes of archive each; longest"
            f" deletion {self.longest:.1f} ms\n  a claim, ms p50 / p99 / max: {self.waits}"
        )


async def retire(
    make: MakeBackend, records: Sequence[EncodedRecord], count: int, folder: Path, ending: str
) -> Retiring:
    """Retire agents, while another task claims an agent each 5 ms."""
    await asyncio.to_thread(fill, make(), records, count, "rests")
    backend = make()
    longest, delete = 0.0, backend.retire_all

    def timed(agents: Any) -> list[bool]:
        nonlocal longest
        since = time.thread_time()
        try:
            return delete(agents)
        finally:
            longest = max(longest, 1000 * (time.thread_time() - since))

    backend.retire_all = timed  # type: ignore[method-assign]
    store = DatabaseStore(backend)
    async with Runtime([clerk()], store=store, sweep=None) as runtime:
        async with Beside(lambda number: store.claim(f"claimed-{number}", "clerk")) as waits:
            since, cpu = time.perf_counter(), time.process_time()
            path = folder / f"archive-{time.time_ns()}{ending}"
            done = await runtime.retire(older_than=timedelta(0), to=path)
            seconds, cpu = time.perf_counter() - since, time.process_time() - cpu
        return Retiring(done.agents, seconds, cpu, longest, done.bytes, waits)


class Recovering(NamedTuple):
    """What recovering has cost."""

    agents: int
    seconds: float
    turn: float
    """Milliseconds of this thread's time in the longest turn of the loop."""
    waits: Waits

    def __str__(self) -> str:
        return (
            f"{self.agents} runs in {self.seconds:.1f} s; longest turn of the loop"
            f" {self.turn:.0f} ms\n  a run of another agent, ms p50 / p99 / max: {self.waits}"
        )


async def recover(make: MakeBackend, records: Sequence[EncodedRecord], count: int) -> Recovering:
    """Recover runs that were cut off behind their tool, while another agent is run."""
    end = next(at for at, each in enumerate(records) if each.kind == "result") + 1
    await asyncio.to_thread(fill, make(), records[:end], count, "cut")
    other = Agent("other", ScriptedModel(lambda request: "hello"))
    longest = 0.0

    async def turns() -> None:
        nonlocal longest
        while True:
            since = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, 1000 * (time.thread_time() - since))

    async with Runtime([clerk(), other], store=DatabaseStore(make()), sweep=None) as runtime:

        async def small(number: int) -> None:
            await runtime.spawn("other", id=f"other-{number % 50}").run("go")

        async with Beside(small) as waits:
            watching = asyncio.create_task(turns())
            since = time.perf_counter()
            recovery = await runtime.recover()
            await recovery.settled
            seconds = time.perf_counter() - since
            watching.cancel()
        return Recovering(len(recovery), seconds, longest, waits)


async def measure(make: MakeBackend, count: int, folder: Path, endings: Sequence[str]) -> None:
    """Print what it costs in one kind of store."""
    records = await recorded(folder)
    print(f"{len(records)} records each, {sum(len(each.payload) for each in records):,} bytes")
    for ending in endings:
        print(f"{ending}: {await retire(make, records, count, folder, ending)}")
    print(f"recover: {await recover(make, records, count)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="of a PostgreSQL database; else SQLite is measured")
    parser.add_argument("--agents", type=int, default=5000)
    given = parser.parse_args(arguments)
    print(machine_line())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make: MakeBackend = partial(
            SqliteBackend, str(folder / "store.db"), durability="full", host="here"
        )
        if given.url:
            import psycopg

            from understudy.journal.postgres.backend import PostgresBackend

            make = partial(PostgresBackend, given.url, host="here", schema=SCHEMA)
        try:
            asyncio.run(measure(make, given.agents, folder, [".jsonl", ".jsonl.gz"]))
        finally:
            if given.url:
                with psycopg.connect(given.url, autocommit=True) as connection:
                    connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


if __name__ == "__main__":
    main()

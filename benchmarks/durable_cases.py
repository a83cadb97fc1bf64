"""What is measured with a store, in a process of its own: `python -m benchmarks.durable_cases`.

Time is the wall clock's, for a durable step waits for the disk; and the processor's, of all
threads, which leaves out that wait. The disk is measured in the same process, one write of 4 KiB
with an fsync before each run, so that a step can be told in fsyncs. Runs are timed warm and cold,
as `benchmarks.cases` says.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, get_args

from benchmarks.adapter import PROMPT
from benchmarks.stores import STORES, Durability, OurStore, Stored
from understudy import Status

__all__ = ["CASES", "OUR_LENGTHS", "RIVALS_LENGTHS", "Plan", "measure"]

OUR_LENGTHS = (10, 50, 200, 1000)
RIVALS_LENGTHS = (10, 50, 200)
DISK_LENGTHS = (50, 200, 1000)


class Plan:
    """How much is measured, and where."""

    def __init__(self, folder: str, durability: Durability, runs: int, seconds: float) -> None:
        self.folder = folder
        self.durability = durability
        self.runs = runs
        self.seconds = seconds
        self.lengths: tuple[int, ...] = OUR_LENGTHS
        self.together = 100
        self.idle = 500  # agents

    def database(self) -> tempfile.TemporaryDirectory[str]:
        """A new folder for one database."""
        return tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True)


class Disk:
    """Times a write of 4 KiB and its sync, at the end of a file that grows."""

    def __init__(self, folder: str) -> None:
        self._file = (Path(folder) / "fsyncs").open("wb", buffering=0)
        self.times: list[float] = []

    def sync(self) -> None:
        start = perf_counter()
        self._file.write(bytes(4096))
        os.fsync(self._file.fileno())
        self.times.append((perf_counter() - start) * 1e6)

    def close(self) -> float:
        """Microseconds of an fsync."""
        self._file.close()
        return median(self.times)


async def case_steps(adapter: Stored, plan: Plan) -> Any:
    """Microseconds of a durable step, by length of run, and of an fsync meanwhile.

    `steps` and `cold` are by the clock, `processor` is what all threads took of the warm ones.
    """
    with plan.database() as folder:
        disk = Disk(folder)
        await adapter.open(f"{folder}/bench.db", plan.durability, plan.lengths)
        found: dict[str, Any] = {"steps": {}, "processor": {}, "cold": {}}
        for length in plan.lengths:
            gc.collect()
            await adapter.run_stored(length)
            warm = await _repeated(adapter, length, plan, disk, cold=False)
            cold = await _repeated(adapter, length, plan, disk, cold=True)
            found["steps"][str(length)] = median(wall for wall, _ in warm) / length
            found["processor"][str(length)] = median(taken for _, taken in warm) / length
            found["cold"][str(length)] = median(wall for wall, _ in cold) / length
        await adapter.close()
        return {**found, "fsync": disk.close()}


async def _repeated(
    adapter: Stored, length: int, plan: Plan, disk: Disk, *, cold: bool
) -> list[tuple[float, float]]:
    """By run, its microseconds by the clock and of the processor."""
    values: list[tuple[float, float]] = []
    end = perf_counter() + plan.seconds / 2
    while len(values) < min(3, plan.runs) or (len(values) < plan.runs and perf_counter() < end):
        if cold:
            gc.collect()
        disk.sync()
        values.append(await _timed(adapter, length))
    return values


async def _timed(adapter: Stored, length: int) -> tuple[float, float]:
    before, start, taken = adapter.tool_calls, perf_counter(), process_time()
    await adapter.run_stored(length)
    passed = (perf_counter() - start) * 1e6, (process_time() - taken) * 1e6
    if adapter.tool_calls - before != length - 1:
        raise AssertionError(f"{adapter.name} called the tool {adapter.tool_calls - before} times")
    return passed


async def case_together(adapter: Stored, plan: Plan) -> Any:
    """Steps a second of many conversations of 10 steps at once."""
    with plan.database() as folder:
        await adapter.open(f"{folder}/bench.db", plan.durability, (10,))
        await adapter.run_stored(10)
        rates = []
        for _ in range(min(plan.runs, 5)):
            gc.collect()
            start = perf_counter()
            await asyncio.gather(*(adapter.run_stored(10) for _ in range(plan.together)))
            rates.append(plan.together * 10 / (perf_counter() - start))
        await adapter.close()
        return {"steps_per_second": median(rates)}


async def case_disk(adapter: Stored, plan: Plan) -> Any:
    """Bytes that one run leaves on the disk, by its length, less those of an empty database."""
    lengths = tuple(n for n in DISK_LENGTHS if n <= max(plan.lengths))
    with plan.database() as folder:  # DBOS can be opened once in a process
        path = f"{folder}/bench.db"
        await adapter.open(path, plan.durability, lengths)
        sizes = {}
        before = _size(path)
        for length in lengths:
            await adapter.run_stored(length)
            after = _size(path)
            sizes[str(length)], before = after - before, after
        await adapter.close()
        return {"bytes": sizes}


def _size(path: str) -> int:
    """Bytes of the pages in use, the write-ahead log's too."""
    with sqlite3.connect(path) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    return int((pages - free) * size)


async def case_wake(adapter: Stored, plan: Plan) -> Any:
    """Milliseconds to wake an agent that lies passive, after a run of 2 and of 1,000 steps.

    By a call that changes nothing.
    """
    assert isinstance(adapter, OurStore), "rivals have no agents that sleep"
    long = max(plan.lengths)
    with plan.database() as folder:
        await adapter.open(f"{folder}/bench.db", plan.durability, (2, long))
        found = {}
        for name, length in (("short", 2), ("long", long)):
            ref = adapter.runtime.spawn(f"bench{length}")
            await ref.run(PROMPT)
            times = []
            for _ in range(max(3, min(plan.runs, 20))):
                await ref.stop(block=False)
                start = perf_counter()
                await ref.cancel_message("no such message")
                times.append((perf_counter() - start) * 1e3)
                assert ref.status() is Status.IDLE, "a look would not wake it"
            found[name] = median(times)
        await adapter.close()
        return found


async def case_memory(adapter: Stored, plan: Plan) -> Any:
    """KB of an agent with four messages: awake, passive with its ref held, passive without."""
    assert isinstance(adapter, OurStore), "rivals keep no agents in memory"
    with plan.database() as folder:
        await adapter.open(f"{folder}/bench.db", plan.durability, (2,))
        found = {f"sqlite_{k}": v for k, v in (await _memory(adapter, plan.idle)).items()}
        await adapter.close()
    await _open_in_memory(adapter)
    found |= {f"memory_{k}": v for k, v in (await _memory(adapter, plan.idle)).items()}
    await adapter.close()
    return found


async def _open_in_memory(adapter: OurStore) -> None:
    from understudy import Runtime

    adapter.runtime = Runtime([adapter.build(2)], idle_timeout=None)
    await adapter.runtime.__aenter__()


async def _memory(adapter: OurStore, count: int) -> dict[str, float]:
    runtime = adapter.runtime
    name = "bench2"

    async def some(number: int) -> list[Any]:
        refs = [runtime.spawn(name) for _ in range(number)]
        for future in [ref.run(PROMPT) for ref in refs]:
            await future
        return refs

    async def put_away(refs: list[Any]) -> None:
        for future in [ref.stop(block=False) for ref in refs]:
            await future
        while runtime.status().agents:  # noqa: ASYNC110  # nobody tells when all lie
            await asyncio.sleep(0.01)

    async def at_rest() -> float:
        """KB once all is committed and let go of: when there is no less of it."""
        now = _traced_kilobytes()
        while True:
            before = now
            await asyncio.sleep(0.2)
            now = _traced_kilobytes()
            if now >= before:
                return now

    tracemalloc.start()
    # What grows once (caches, tables) has grown then. It is traced, too: else a table that is made
    # anew would count, and the one whose place it takes would not.
    for _ in range(2):
        await put_away(await some(count))
    before = await at_rest()
    refs = await some(count)
    awake = await at_rest()
    await put_away(refs)
    with_ref = await at_rest()
    refs.clear()
    passive = await at_rest()
    tracemalloc.stop()
    return {
        "awake": (awake - before) / count,
        "passive_with_ref": (with_ref - before) / count,
        "passive": (passive - before) / count,
    }


def _traced_kilobytes() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1024


CASES: dict[str, Callable[[Stored, Plan], Awaitable[Any]]] = {
    "steps": case_steps,
    "together": case_together,
    "disk": case_disk,
    "wake": case_wake,
    "memory": case_memory,
}


def measure(name: str, case: str, plan: Plan) -> Any:
    """The numbers of one case of one framework, in this process."""

    async def main() -> Any:
        return await CASES[case](STORES[name](), plan)

    return asyncio.run(main())


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=STORES)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--durability", choices=get_args(Durability), default="full")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    plan = Plan(given.folder, given.durability, given.runs, given.seconds)
    if given.name != OurStore.name:
        plan.lengths = RIVALS_LENGTHS
    try:
        result = measure(given.name, given.case, plan)
    except ImportError as error:
        result = {"missing": str(error)}
    print("RESULT " + json.dumps(result), flush=True)
    os._exit(0)  # some frameworks leave threads behind


if __name__ == "__main__":
    _main()

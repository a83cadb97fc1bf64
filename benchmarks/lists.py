"""What lists over many agents cost: `python -m benchmarks.lists [--url postgresql://...]`.

Each agent waits for a person. They are put into the store as a runtime puts them there, but without
their runs, which would take an hour. PostgreSQL takes part where its URL is given: in a schema of
its own, which is dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import machine_line
from understudy import Runtime
from understudy.interrupts import Request
from understudy.journal import DatabaseStore, FoldedAgent, IndexEntry, MemoryStore, Store
from understudy.journal.backend import Backend
from understudy.journal.contracts import Batch
from understudy.journal.index_status import index_entry_of
from understudy.journal.lists import AskOrder
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.state.fold import replay
from understudy.state.records import InterruptsChecked, Record, Reply, RunStarted, StatusNoted

__all__ = ["databases", "drop", "main", "opened"]

SCHEMA = "understudy_benchmark"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def records_of(number: int, *, expires: bool = True) -> list[Record]:
    """Those of an agent that asks whether it may refund something; half of them expire."""
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    at = START + timedelta(seconds=number)
    arguments = {"order": f"order-{number}", "amount": 19.9, "reason": "It came broken. " * 4}
    run_id = f"run-{number}"
    part = ToolCallPart("refund", arguments, tool_call_id=f"call-{number}")
    request = Request(
        id=f"request-{number}",
        kind="approval",
        agent_id=f"agent-{number:07}",
        run_id=run_id,
        agent_path=("desk",),
        call_key=f"{run_id}.0.0",
        tool_call_id=part.tool_call_id,
        tool_name="refund" if number % 100 else "deploy",
        arguments=arguments,
        created_at=at,
        expires_at=at + timedelta(days=number % 30 + 1) if number % 2 and expires else None,
        fingerprint="0" * 32,
        digest="0" * 64,
        source="HumanInTheLoop",
    )
    return [
        RunStarted(
            run_id=run_id,
            agent="desk",
            at=at,
            message=None,
            until_tool=None,
            require_tool_success=False,
            max_runs=50,
            early_stopping="force",
            fingerprint="0" * 32,
            deps_given=False,
            pause_when_given=False,
        ),
        Reply(turn=0, response=ModelResponse([part], timestamp=at), at=at),
        InterruptsChecked(turn=0, requests=(request,), at=at),
        StatusNoted(status="interrupted", at=at),
    ]


def entry_of(records: list[Record]) -> IndexEntry:
    return index_entry_of(replay(records))


def fill(
    backend: Backend, agents: int, records_of: Callable[[int], list[Record]] = records_of
) -> None:
    """Put this many agents into a database, a thousand in a transaction."""
    from understudy.journal.codec import encode

    for first in range(0, agents, 1000):
        backend.begin()
        batches = []
        for number in range(first, min(first + 1000, agents)):
            owned = backend.claim(f"agent-{number:07}", "desk")
            assert owned is not None, "it is new"
            records = records_of(number)
            batches.append(
                Batch(
                    agent_id=owned.agent_id,
                    incarnation=owned.incarnation,
                    epoch=owned.epoch,
                    first_seq=1,
                    records=tuple(map(encode, records)),
                    entry=entry_of(records),
                    status_noted=True,
                    at=records[-1].at,
                )
            )
        assert backend.append_all(batches) == [None] * len(batches)
        backend.commit()


async def fill_memory(store: MemoryStore, agents: int) -> None:
    for number in range(agents):
        owned = await store.claim(f"agent-{number:07}", "desk")
        assert owned is not None, "it is new"
        records = records_of(number)
        journal = store.journal(owned, FoldedAgent(replay(records)))
        journal.append(records)
        await store.release(owned)


def stores(agents: int, folder: str, url: str | None) -> Iterator[tuple[str, Store]]:
    """The stores, filled."""
    memory = MemoryStore()
    asyncio.run(fill_memory(memory, agents))
    yield "memory", memory
    yield from databases(agents, folder, url)


def databases(
    agents: int, folder: str, url: str | None, *, expires: bool = True
) -> Iterator[tuple[str, Store]]:
    """Those of them that are databases, filled.

    What has expired is only looked at by a runtime without definitions; another one wakes it.
    """
    for name in ("SQLite", "PostgreSQL") if url is not None else ("SQLite",):
        backend = _backend(name, folder, url)
        backend.open()
        fill(backend, agents, partial(records_of, expires=expires))
        backend.close()
        yield name, opened(name, folder, url)


def opened(name: str, folder: str, url: str | None) -> Store:
    """One of these databases once more."""
    return DatabaseStore(_backend(name, folder, url))


def _backend(name: str, folder: str, url: str | None) -> Backend:
    if name == "SQLite":
        return SqliteBackend(str(Path(folder, "lists.db")), host="benchmark")
    assert url is not None, f"{name} has a URL"
    return PostgresBackend(url, host="benchmark", schema=SCHEMA, lease=600)


def drop(url: str) -> None:
    """Remove what was put there."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


async def measure(store: Store, agents: int) -> Iterator[tuple[str, float]]:
    """Milliseconds of each call: the fastest of sixty, for machines are noisy."""
    found: list[tuple[str, float]] = []

    async def timed(what: str, call: Callable[[], Awaitable[Any]], times: int = 60) -> Any:
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            value = await call()
            seconds.append(time.perf_counter() - start)
        found.append((what, 1000 * min(seconds)))
        return value

    async with Runtime(store=store) as runtime:
        first = await timed("first call", lambda: runtime.pending(limit=100), 1)
        assert len(first) == 100, "there are more"
        await timed("pending(limit=100)", lambda: runtime.pending(limit=100))
        orders: tuple[AskOrder, ...] = ("oldest", "expiring")
        for order in orders:
            middle: str | None = None
            for _ in range(agents // 20_000):
                middle = (await runtime.pending(order=order, limit=10_000, after=middle)).after

            async def behind(order: AskOrder = order, after: str | None = middle) -> object:
                return await runtime.pending(order=order, limit=100, after=after)

            await timed(f"pending(limit=100, order={order!r}), in the middle", behind)
        await timed(
            "pending(tool=<1 %>, limit=100)", lambda: runtime.pending(tool="deploy", limit=100)
        )
        counts = await timed("count()", runtime.count)
        assert sum(counts.values()) == agents, "all are counted"
        await timed("agents(limit=100)", lambda: runtime.agents(limit=100))
        await timed(
            "agents(status='interrupted', limit=100)",
            lambda: runtime.agents(status="interrupted", limit=100),
        )
        recent = START + timedelta(seconds=agents - 50)
        await timed("agents(updated_since=<50>)", lambda: runtime.agents(updated_since=recent))
        tracemalloc.start()
        start, seen = time.perf_counter(), 0
        async for _ in runtime.pending():
            seen += 1
        seconds = time.perf_counter() - start
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seen == agents, "all are seen"
        found += [("async for over all (traced)", 1000 * seconds), ("its memory, MB", peak / 1e6)]
    return iter(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--url", help="of a PostgreSQL database")
    options = parser.parse_args()
    print(machine_line())
    with tempfile.TemporaryDirectory() as folder:
        for name, store in stores(options.agents, folder, options.url):
            print(f"\n{name}, {options.agents:,} agents that wait for a person")
            for what, milliseconds in asyncio.run(measure(store, options.agents)):
                print(f"{milliseconds:10.2f}  {what}")
    if options.url is not None:
        drop(options.url)


if __name__ == "__main__":
    main()

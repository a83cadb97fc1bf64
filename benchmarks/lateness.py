"""How late dues are: `python -m benchmarks.lateness [--url postgresql://...]`.

So many passive agents have one message each for a time to come, evenly over some seconds, in a
runtime that is open all the while. How late one is, is the time from its due to the model call of
its run: the due is found, the agent activated, its message taken. PostgreSQL takes part where its
URL is given: in a schema of its own, which is dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import machine_line
from understudy import Agent, Runtime
from understudy.journal import DatabaseStore, Store
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.models import ScriptedModel, ScriptedRequest

__all__ = ["Lateness", "main", "measure", "stores"]

SCHEMA = "understudy_benchmark"


class Lateness(NamedTuple):
    """What became of the dues; in seconds."""

    p50: float
    p99: float
    worst: float
    lost: int
    """Dues that have not fired by the end."""
    doubled: int
    """Dues that have fired more than once."""


async def measure(
    store: Store, *, per_second: int = 100, seconds: float = 10, patience: float = 30
) -> Lateness:
    """So many dues a second for so long.

    Args:
        store: the store, which is empty.
        per_second: the rate.
        seconds: for how long.
        patience: seconds after the last due at which those that have not fired are lost.

    """
    count = int(per_second * seconds)
    fired: dict[str, list[datetime]] = {}
    all_fired = asyncio.Event()

    def reply(request: ScriptedRequest) -> str:
        number = request.prompt
        fired.setdefault(number, []).append(datetime.now(timezone.utc))
        if len(fired) == count:
            all_fired.set()
        return "done"

    agent = Agent("clerk", ScriptedModel(reply))
    async with Runtime([agent], store=store) as runtime:
        # Late enough that all agents are passive by then, also on a slow machine.
        first = datetime.now(timezone.utc) + timedelta(seconds=5 + count / 100)
        dues = {str(n): first + timedelta(seconds=n / per_second) for n in range(count)}
        for number, at in dues.items():
            ref = runtime.spawn("clerk", id=f"clerk-{number}")
            await ref.send(number, at=at)
            await ref.stop(block=False)
        ready = datetime.now(timezone.utc)
        assert ready < first, f"the dues were written {ready - first} too late: take fewer"
        last = (dues[str(count - 1)] - ready).total_seconds()
        with contextlib.suppress(TimeoutError):  # what is missing is counted
            async with asyncio.timeout(last + patience):
                await all_fired.wait()
        await asyncio.gather(*(runtime.get(f"clerk-{n}").outcome() for n in fired))
        late = sorted((fired[n][0] - dues[n]).total_seconds() for n in fired)
    return Lateness(
        p50=late[len(late) // 2],
        p99=late[len(late) * 99 // 100],
        worst=late[-1],
        lost=count - len(fired),
        doubled=sum(len(times) > 1 for times in fired.values()),
    )


def stores(folder: str, url: str | None) -> Iterator[tuple[str, Store]]:
    """SQLite, and PostgreSQL where its URL is given."""
    yield "SQLite", DatabaseStore(SqliteBackend(str(Path(folder, "lateness.db")), host="benchmark"))
    if url is not None:
        yield "PostgreSQL", DatabaseStore(PostgresBackend(url, host="benchmark", schema=SCHEMA))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-second", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--url", help="of a PostgreSQL database")
    options = parser.parse_args()
    print(machine_line())
    print(f"{options.per_second} dues a second for {options.seconds:g} s")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, store in stores(folder, options.url):
                found = asyncio.run(
                    measure(store, per_second=options.per_second, seconds=options.seconds)
                )
                print(
                    f"{name}: p50 {1000 * found.p50:.0f} ms, p99 {1000 * found.p99:.0f} ms, "
                    f"worst {1000 * found.worst:.0f} ms, {found.lost} lost, {found.doubled} doubled"
                )
    finally:
        if options.url is not None:
            import psycopg

            with psycopg.connect(options.url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


if __name__ == "__main__":
    main()

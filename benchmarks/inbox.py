"""What the first page of a large inbox costs: `python -m benchmarks.inbox [--url postgresql://...]`.

Requests of five tools of three definitions wait; some need two persons, half of them expire. The
runtime has people, and a person has a page open. What is measured is CPU time of the process: of
the page, of its rows as the API gives them, and of its counts. PostgreSQL takes part where its URL
is given: in a schema of its own, which is dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx

from benchmarks.lists import SCHEMA, fill, records_of
from benchmarks.machine import machine_line
from understudy import Runtime
from understudy.interrupts import Request
from understudy.journal import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.state.records import InterruptsChecked, Record, Reply, RunStarted, StatusNoted
from understudy.trust import approval
from understudy.web import User, ui

__all__ = ["PAGES", "main", "measure", "mixed_records_of"]

TOOLS = (
    ("refund", "desk", "Refund {amount} to {customer}"),
    ("send_letter", "letters", "Letter to {customer}"),
    ("order", "stock", ""),
    ("delete_account", "desk", "Delete the account of {customer}"),
    ("write_off", "stock", "Write off {amount}"),
)
CUSTOMERS = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Barbara Liskov", "Edsger Dijkstra")
PEOPLE = {"ann": ["finance"], "bob": ["finance"]}
PAGES = ("/", "/?tool=refund", "/?within=14400", "/api/pending")


def mixed_records_of(number: int) -> list[Record]:
    """Records of an agent that asks whether it may call one of the tools."""
    tool, agent, title = TOOLS[number * 7 % 11 % len(TOOLS)]
    now = datetime.now(timezone.utc)
    at = now - timedelta(seconds=60 + number)
    who = CUSTOMERS[number % len(CUSTOMERS)]
    arguments = {"order": f"A-{number}", "amount": 20 + number % 90, "customer": who}

    def mixed(request: Request) -> Request:
        return replace(
            request,
            agent_path=(agent,),
            tool_name=tool,
            title_format=title,
            arguments=arguments,
            created_at=at,
            expires_at=now + timedelta(minutes=10 * (number % 90 + 1)) if number % 2 else None,
            approval=approval({"finance": 2}) if number % 5 == 0 else None,
        )

    found: list[Record] = []
    for record in records_of(number):
        if isinstance(record, RunStarted):
            found.append(replace(record, agent=agent, at=at))
        elif isinstance(record, InterruptsChecked):
            found.append(replace(record, at=at, requests=tuple(map(mixed, record.requests))))
        elif isinstance(record, (Reply, StatusNoted)):
            found.append(replace(record, at=at))
    return found


def stores(count: int, folder: str, url: str | None) -> Iterator[tuple[str, DatabaseStore]]:
    """The stores, filled."""

    def sqlite() -> SqliteBackend:
        return SqliteBackend(str(Path(folder, "inbox.db")), host="benchmark")

    backend = sqlite()
    backend.open()
    fill(backend, count, mixed_records_of)
    backend.close()
    yield "SQLite", DatabaseStore(sqlite())
    if url is None:
        return

    def postgres(url: str) -> PostgresBackend:
        return PostgresBackend(url, host="benchmark", schema=SCHEMA, lease=600)

    server = postgres(url)
    server.open()
    fill(server, count, mixed_records_of)
    server.close()
    yield "PostgreSQL", DatabaseStore(postgres(url))


async def measure(store: DatabaseStore, times: int = 20) -> dict[str, tuple[float, float, int]]:
    """By page: milliseconds of CPU, milliseconds, and bytes; the median of so many loads."""
    found = {}
    async with Runtime(store=store, people=PEOPLE) as runtime:
        app = ui(runtime, auth=lambda request: User("ann"))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in PAGES:
                await _got(client, path)
                loads = sorted([await _got(client, path) for _ in range(times)])
                found[path] = loads[times // 2]
    return found


async def _got(client: httpx.AsyncClient, path: str) -> tuple[float, float, int]:
    cpu, start = time.process_time(), time.perf_counter()
    answer = await client.get(path)
    answer.raise_for_status()
    taken = time.process_time() - cpu, time.perf_counter() - start
    return 1000 * taken[0], 1000 * taken[1], len(answer.content)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--url", help="of a PostgreSQL database")
    options = parser.parse_args(arguments)
    print(machine_line())
    with tempfile.TemporaryDirectory() as folder:
        for name, store in stores(options.requests, folder, options.url):
            print(f"\n{name}, {options.requests:,} requests that wait\n    ms CPU   ms        KB")
            for path, (cpu, taken, size) in asyncio.run(measure(store)).items():
                print(f"{cpu:10.1f} {taken:8.1f} {size / 1000:6.0f}  {path}")
    if options.url is not None:
        import psycopg

        with psycopg.connect(options.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


if __name__ == "__main__":
    main()

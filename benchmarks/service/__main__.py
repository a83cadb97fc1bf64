"""A service's cost, beside the rivals': `make bench-service`, or `python -m benchmarks.service`.

One app, a support agent with two tools behind FastAPI and uvicorn, is written on each framework. A
fake model answers over HTTP, in 20 ms. A client loads the app with so many users, or with so many
runs a second. App, model, database and client are processes of their own on this machine, and one
app is measured at a time. All take turns within a round, and what counts are ratios of one round:
machines are noisy. Without `--url` a PostgreSQL server is started. A rival that is not installed is
named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from statistics import median

import psycopg

from benchmarks.machine import machine_line
from benchmarks.service.cases import Plan, measure
from benchmarks.service.desk import BARE, DESKS, OURS
from benchmarks.service.load import Level
from benchmarks.service.places import Place, PostgresPlace, SqlitePlace
from benchmarks.service.report import Results, render

__all__ = ["main"]

KINDS = (SqlitePlace.kind, PostgresPlace.kind)


@contextmanager
def _server() -> Iterator[str]:
    """A PostgreSQL server that waits for the disk, as one does that people rely on."""
    from tests.support.postgres import Server

    server = Server()
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("SELECT pg_reload_conf()")
        yield server.url
    finally:
        server.remove()


@contextmanager
def _place(kind: str, server: str | None, folder: str) -> Iterator[Place]:
    if kind == SqlitePlace.kind:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            yield SqlitePlace(own)
    else:
        assert server is not None
        with closing(PostgresPlace(server)) as place:
            yield place


def measure_all(
    names: Sequence[str], kinds: Sequence[str], plan: Plan, options: argparse.Namespace
) -> Results:
    """Measure these apps on these stores, in turns."""
    levels = tuple(map(str, plan.levels))
    later = replace(plan, counted=0.0)  # counts are the same in each round, and take their time
    results = Results(tuple(names), tuple(kinds), levels)
    results.rounds = {(kind, name): [] for kind in kinds for name in names}
    with ExitStack() as stack:
        server = options.url
        if server is None and PostgresPlace.kind in kinds:
            server = stack.enter_context(_server())
        for index in range(options.rounds):
            for kind, name in results.rounds:
                now = time.strftime("%T")
                told = f"[{now}] round {index + 1} of {options.rounds}: {name}, {kind}"
                print(told, file=sys.stderr, flush=True)
                try:
                    places = partial(_place, kind, server, options.folder)
                    found = measure(name, places, plan if index == 0 else later)
                except RuntimeError as error:
                    results.problems[f"{name}, {kind}"] = str(error)
                    found = None
                results.rounds[kind, name].append(found)
    return results


def fsync_time(folder: str) -> float:
    """Milliseconds of a write of 4 KiB and its sync, there."""
    times = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(20):
            start = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            times.append((time.perf_counter() - start) * 1e3)
    return median(times)


def _options(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=DESKS, help="these apps, and always ours")
    parser.add_argument("--stores", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rates", nargs="*", type=float, default=[12.0], help="runs a second")
    parser.add_argument("--users", nargs="*", type=int, default=[50], help="users at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each level")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before that")
    parser.add_argument("--counted", type=float, default=3.0, help="seconds to count statements")
    parser.add_argument("--rest", type=float, default=4.0, help="seconds without a call")
    parser.add_argument("--workers", type=int, default=1, help="processes of an app; PostgreSQL")
    parser.add_argument("--url", help="of a PostgreSQL server on this machine, idle otherwise")
    parser.add_argument(
        "--folder", default=tempfile.gettempdir(), help="on the disk to be measured"
    )
    parser.add_argument("--json", type=Path, help="write all numbers there, too")
    options = parser.parse_args(given)
    if options.workers > 1 and SqlitePlace.kind in options.stores:
        parser.error("a SQLite file has one process: --workers goes with --stores PostgreSQL")
    if not options.rates and not options.users:
        parser.error("give --rates or --users: without a load there is nothing to measure")
    return options


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    options = _options(given)
    versions: dict[str, str] = {}
    problems: dict[str, str] = {}
    names = []
    for name, listed in DESKS.items():
        if options.only is not None and name not in (*options.only, OURS):
            continue
        if name == BARE and options.workers > 1:
            continue  # it keeps conversations in its memory
        try:
            versions |= listed.versions()
        except PackageNotFoundError as error:
            problems[name] = f"not installed ({error.name})"
        else:
            names.append(name)
    rates, users = options.rates, options.users
    plan = Plan(
        levels=(*(Level(rate=rate) for rate in rates), *(Level(users=each) for each in users)),
        seconds=options.seconds,
        warm=options.warm,
        rest=options.rest,
        counted=options.counted,
        workers=options.workers,
    )
    sync = fsync_time(options.folder)
    machine = f"{machine_line()}, a sync of the disk {sync:.1f} ms"
    results = measure_all(names, options.stores, plan, options)
    results.problems = problems | results.problems
    if options.json is not None:
        rounds = {f"{kind}, {name}": found for (kind, name), found in results.rounds.items()}
        options.json.write_text(json.dumps({"machine": machine, "rounds": rounds}, indent=1))
    arguments = sys.argv[1:] if given is None else given
    command = shlex.join(["python", "-m", "benchmarks.service", *arguments])
    print(render(results, machine=machine, versions=versions, command=command))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before all was measured"))
    main()

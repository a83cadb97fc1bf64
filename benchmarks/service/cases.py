"""One app under load, in processes of its own: started, measured at each level, and ended."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass

import psutil  # type: ignore[import-untyped]  # it has no types

from benchmarks.machine import ROOT
from benchmarks.service.connections import HOST
from benchmarks.service.load import Driven, Level, drive, until_it_answers
from benchmarks.service.places import Place, PostgresPlace, processor_time
from benchmarks.service.server import DESK, MODEL_PORT, STORE

__all__ = ["COUNTED", "COUNTED_OF", "REST", "Numbers", "Places", "Plan", "measure"]

REST = "at rest"
"""Where what an app costs is kept while nobody calls it; the other numbers are kept by level."""

COUNTED = (Level(users=1), Level(users=50))
"""The loads at which statements are counted: runs that are alone, and runs beside others."""
COUNTED_OF = "counted, "
"""Begins the names of these among the levels."""

Numbers = dict[str, float]
Places = Callable[[], AbstractContextManager[Place]]
"""Makes a new store, each time."""
APP = "benchmarks.service.server:app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured. Times are seconds."""

    levels: tuple[Level, ...]
    seconds: float
    """Of each level, after it was warm."""
    warm: float
    rest: float
    """For which nobody calls the app; 0 leaves that out."""
    counted: float
    """For which statements are counted, at each of `COUNTED`; 0 leaves that out."""
    workers: int = 1
    """Processes of the app."""
    patience: float = 60.0
    """For the app to start."""


@dataclass(frozen=True, slots=True)
class _Reading:
    app: float
    database: float | None
    client: float


def measure(name: str, places: Places, plan: Plan) -> dict[str, Numbers]:
    """The numbers of one app on one kind of store, by level, and at rest.

    Each level has a new app on a new store: what one level leaves unfinished slows down no other.

    Raises:
        RuntimeError: if the app does not start; the message has the end of what it printed.

    """
    found: dict[str, Numbers] = {}
    for level in plan.levels:
        with places() as place, _app(name, place, plan) as (port, app):
            found[str(level)] = asyncio.run(_loaded(port, app, place, level, plan))
            if plan.rest and level is plan.levels[-1]:
                found[REST] = _at_rest(app, place, plan)
    if plan.counted:
        with places() as place:
            if isinstance(place, PostgresPlace):
                with _app(name, place, plan) as (port, app):
                    found |= asyncio.run(_counted(port, app, place, plan))
    return found


async def _loaded(
    port: int, app: psutil.Process, place: Place, level: Level, plan: Plan
) -> Numbers:
    await asyncio.wait_for(until_it_answers(port, lambda: _runs(app)), plan.patience)
    written, rows = place.written(app), place.rows()
    driven = await drive(
        port, level, lambda: _read(app, place), warm=plan.warm, seconds=plan.seconds
    )
    numbers = _numbers_of(driven, level)
    if driven.all and not driven.late:
        numbers["rows"] = (place.rows() - rows) / driven.all
        numbers["written"] = (place.written(app) - written) / driven.all
    return numbers


async def _counted(
    port: int, app: psutil.Process, place: PostgresPlace, plan: Plan
) -> dict[str, Numbers]:
    """What a run asks of PostgreSQL, by level."""
    await asyncio.wait_for(until_it_answers(port, lambda: _runs(app)), plan.patience)
    found: dict[str, Numbers] = {}
    for level in COUNTED:
        with place.counted() as counted:
            driven = await drive(port, level, lambda: None, warm=0.0, seconds=plan.counted)
        if driven.all:
            (traffic,) = counted
            found[f"{COUNTED_OF}{level}"] = {
                what: count / driven.all for what, count in asdict(traffic).items()
            }
    return found


def _at_rest(app: psutil.Process, place: Place, plan: Plan) -> Numbers:
    time.sleep(plan.warm)
    before, start = _read(app, place), time.perf_counter()
    time.sleep(plan.rest)
    after, passed = _read(app, place), time.perf_counter() - start
    return _spent(before, after, passed) | {"memory": _memory(app)}


def _read(app: psutil.Process, place: Place) -> _Reading:
    return _Reading(processor_time(app), place.processor(), time.process_time())


def _numbers_of(driven: Driven[_Reading], level: Level) -> Numbers:
    runs = driven.runs
    numbers: Numbers = {
        "runs_per_second": runs / driven.seconds,
        "errors": len(driven.errors),
        "late": driven.late,
    }
    if driven.errors:
        print(f"  {len(driven.errors)} errors, such as {driven.errors[0]}", file=sys.stderr)
    if driven.late and level.rate:
        return numbers  # it falls behind: what is done of unfinished runs is the cost of none
    if runs:
        numbers |= _spent(driven.before, driven.after, runs)
    if driven.durations:
        numbers |= {f"p{n}": _percentile(driven.durations, n) * 1e3 for n in (50, 99)}
    return numbers


def _spent(before: _Reading, after: _Reading, by: float) -> Numbers:
    """Milliseconds of processors for each of so many."""
    numbers = {
        "app": (after.app - before.app) / by * 1e3,
        "client": (after.client - before.client) / by * 1e3,
    }
    if before.database is not None and after.database is not None:
        numbers["database"] = (after.database - before.database) / by * 1e3
    numbers["processor"] = numbers["app"] + numbers.get("database", 0.0)
    return numbers


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _memory(app: psutil.Process) -> int:
    """Bytes that the app has for itself."""
    return sum(each.memory_full_info().uss for each in (app, *app.children(recursive=True)))


# ------------------------------------------------------------------------- processes


@contextmanager
def _model() -> Iterator[int]:
    """The fake model; the port on which it answers."""
    command = [sys.executable, "-m", "benchmarks.service.model"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def _app(name: str, place: Place, plan: Plan) -> Iterator[tuple[int, psutil.Process]]:
    """The web server with the app, and its model; the port and the process of the server."""
    port = _free_port()
    address = ["--host", HOST, "--port", str(port), "--workers", str(plan.workers)]
    quiet = ["--log-level", "warning", "--no-access-log", "--timeout-keep-alive", "300"]
    with _model() as model_port, tempfile.TemporaryFile("w+") as log:
        variables = {DESK: name, STORE: place.url, MODEL_PORT: str(model_port)}
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--factory", APP, *address, *quiet],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield port, psutil.Process(process.pid)
        except Exception as error:
            log.seek(0)
            lines = log.read().strip().splitlines() or ["no output"]
            raise RuntimeError(f"{error!r}; the app says: {lines[-1][:300]}") from error
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()
        process.wait()


def _runs(app: psutil.Process) -> bool:
    return bool(app.is_running() and app.status() != psutil.STATUS_ZOMBIE)


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        return int(bound.getsockname()[1])

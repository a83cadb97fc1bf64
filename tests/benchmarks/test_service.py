"""The benchmark of a service runs and prints; how fast anything is, no test asks."""

from __future__ import annotations

import asyncio
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from benchmarks.service.cases import COUNTED_OF, REST, Plan, measure
from benchmarks.service.connections import HOST
from benchmarks.service.desk import BARE, OURS
from benchmarks.service.load import Level, drive
from benchmarks.service.places import PostgresPlace, SqlitePlace
from benchmarks.service.report import Results, render
from tests.support.postgres import Server

USERS, RATE = Level(users=2), Level(rate=20.0)
SMALL = Plan(levels=(USERS, RATE), seconds=0.2, warm=0.0, rest=0.1, counted=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [OURS, BARE])
def test_an_app_on_sqlite_runs_under_each_load_and_brings_its_numbers(
    name: str, tmp_path: Path
) -> None:
    found = measure(name, lambda: nullcontext(SqlitePlace(str(tmp_path))), SMALL)

    for level in map(str, SMALL.levels):
        assert found[level]["errors"] == 0
        assert found[level]["runs_per_second"] > 0
        assert found[level]["app"] == found[level]["processor"]
        assert found[level]["p99"] >= found[level]["p50"] > 120, "the model takes 20 ms six times"
        assert found[level]["rows"] >= (1 if name == OURS else 0)
    assert found[REST]["memory"] > 0


@pytest.mark.slow
def test_our_app_on_postgresql_brings_what_a_run_asks_of_the_server_too(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.service.places.FLUSHED", 0.0)
    plan = Plan(levels=(USERS,), seconds=0.2, warm=0.0, rest=0.0, counted=0.2)

    monkeypatch.setattr("benchmarks.service.cases.COUNTED", (USERS,))

    found = measure(OURS, lambda: closing(PostgresPlace(postgres_server.url)), plan)

    loaded = found[str(USERS)]
    assert loaded["errors"] == 0
    assert loaded["rows"] > 0
    assert loaded["written"] > 0
    assert loaded["processor"] == loaded["app"] + loaded["database"]
    assert found[f"{COUNTED_OF}{USERS}"]["statements"] > 0


@pytest.mark.slow
def test_an_app_that_does_not_start_is_told_with_the_last_line_that_it_printed(
    tmp_path: Path,
) -> None:
    missing = SqlitePlace(str(tmp_path / "no_such_folder"))

    with pytest.raises(RuntimeError, match=r"the app has ended.*; the app says: .*startup failed"):
        measure(OURS, lambda: nullcontext(missing), SMALL)


async def test_requests_that_fail_are_counted_as_errors_and_not_as_runs() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno")
        writer.close()

    server = await asyncio.start_server(refuse, HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        driven = await drive(port, USERS, lambda: None, warm=0.0, seconds=0.2)

    assert driven.runs == driven.all == 0
    assert driven.errors
    assert "answered by 500" in driven.errors[0]


def results_of(*ours: float, rival: float, kind: str = "SQLite") -> Results:
    results = Results((OURS, "rival"), (kind,), (str(USERS),))
    for name, values in ((OURS, ours), ("rival", [rival] * len(ours))):
        numbers = [{str(USERS): {"processor": value, "app": value}} for value in values]
        results.rounds[kind, name] = [*numbers]
    return results


def table(results: Results) -> str:
    return render(results, machine="a machine", versions={"rival": "1.2"}, command="a command")


def test_the_table_has_each_app_with_its_processor_time_as_a_multiple_of_ours() -> None:
    shown = table(results_of(5.0, rival=20.0))

    assert "a machine" in shown
    assert "rival 1.2" in shown
    assert "`a command`" in shown
    assert f"| SQLite | {USERS} | understudy | - | 5.0 | - | **1.0 ×** |" in shown
    assert f"| SQLite | {USERS} | rival | - | 20.0 | - | **4.0 ×** |" in shown


def test_a_multiple_is_the_median_of_those_of_each_round() -> None:
    """One round on a busy machine slows both sides down, and changes no ratio."""
    results = results_of(5.0, 10.0, 5.0, rival=20.0)
    second = results.rounds["SQLite", "rival"][1]
    assert second is not None
    second[str(USERS)]["processor"] = 40.0

    assert "| **4.0 ×** |" in table(results)


def test_a_round_that_failed_and_what_is_not_installed_are_named() -> None:
    results = results_of(5.0, 5.0, rival=20.0)
    results.rounds["SQLite", "rival"][0] = None
    results.problems = {"rival, SQLite": "the app has ended", "gone": "not installed (gone)"}

    shown = table(results)

    assert "| rival | - | 20.0 | - | **4.0 ×** |" in shown
    assert "- rival, SQLite: the app has ended" in shown
    assert "- gone: not installed (gone)" in shown


def test_a_table_that_nothing_was_measured_for_is_left_out() -> None:
    shown = table(results_of(5.0, rival=20.0))

    assert "asks of PostgreSQL" not in shown
    assert "While nobody calls" not in shown

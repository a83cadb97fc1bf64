"""The model of many hosts measures its numbers, and says which part gives way first."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from benchmarks.simulate_hosts import Measured, Scale, Server, loads, measure, table

MEASURED = Measured(
    commits=6,
    busy=0.002,
    records=18,
    record_bytes=290,
    agent_bytes=1900,
    wal_bytes=11_000,
    notifying=0.001,
    plain=0.0002,
    notify_listener=10e-6,
    connections=4,
    step_busy=0.0002,
    step_wal_bytes=2_000,
    step_records=3,
    step_host=0.0005,
)


def first(**scale: Any) -> str:
    return loads(MEASURED, replace(Scale(), **scale), Server())[0].what


def test_what_gives_way_first_depends_on_what_there_is_most_of() -> None:
    assert first() == "connections"
    assert first(hosts=40) == "table of records"
    notify = "NOTIFY, one commit after the other"
    short = Server(days=1)
    assert loads(MEASURED, replace(Scale(), hosts=40, decisions=1e6), short)[0].what == notify
    steps = replace(Scale(), hosts=100, agents=1e6, decisions=0, every=5)
    assert loads(MEASURED, steps, short)[0].what == "table of records"
    assert loads(MEASURED, steps, replace(short, days=0.01))[0].what == "steps of one host"
    owners = replace(Scale(), hosts=40, decisions=1e6, wrong_host=0)
    assert loads(MEASURED, owners, short)[0].what != notify


def test_what_is_used_is_told_in_a_table() -> None:
    header, _line, *rows = table(loads(MEASURED, Scale(), Server()))
    assert header.startswith("| what |")
    assert rows[0].startswith("| connections | 4e+03 sessions | 1e+03 sessions | 400% |")


@pytest.mark.slow
def test_each_number_is_measured(postgres_url: str) -> None:
    measured = measure(postgres_url, decisions=20, agents=5)
    for name, value in asdict(measured).items():
        assert value > 0 or name == "notify_listener", name
    assert measured.records > 10
    assert 2 <= measured.step_records <= 10
    assert 3 <= measured.connections <= 10

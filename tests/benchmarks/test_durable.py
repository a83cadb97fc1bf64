"""The benchmark of durable steps runs and prints; how fast anything is, no test asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.durable import render
from benchmarks.durable_cases import CASES, Plan, measure


def tiny(folder: Path) -> Plan:
    plan = Plan(str(folder), "off", runs=1, seconds=0.0)
    plan.lengths, plan.together, plan.idle = (1, 2, 50), 3, 4
    return plan


WANTED = {
    "steps": {"steps", "processor", "cold", "fsync"},
    "together": {"steps_per_second"},
    "disk": {"bytes"},
    "wake": {"short", "long"},
    "memory": {
        f"{store}_{how}"
        for store in ("memory", "sqlite")
        for how in ("awake", "passive_with_ref", "passive")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_each_case_of_ours_runs_and_brings_its_numbers(case: str, tmp_path: Path) -> None:
    found = measure("understudy", case, tiny(tmp_path))

    assert set(found) == WANTED[case]
    if case == "steps":
        assert found["fsync"] > 0
        for how in ("steps", "processor", "cold"):
            assert set(found[how]) == {"1", "2", "50"}
            assert all(value > 0 for value in found[how].values())
    if case == "disk":
        assert set(found["bytes"]) == {"50"}


def ours(step: float, fsync: float = 100.0) -> dict[str, Any]:
    lengths = {"10": step, "200": step}
    steps = {"steps": lengths, "processor": lengths, "cold": lengths, "fsync": fsync}
    return {
        "steps full": steps,
        "steps normal": steps,
        "together full": {"steps_per_second": 6000.0},
        "disk off": {"bytes": {"50": 40_000, "200": 160_000}},
        "memory full": {"memory_awake": 5.0, "sqlite_awake": 7.0, "sqlite_passive": 0.0},
    }


def rival(step: float) -> dict[str, Any]:
    lengths = {"10": step, "200": step}
    steps = {"steps": lengths, "processor": lengths, "cold": lengths, "fsync": 100.0}
    return {"steps full": steps, "steps normal": steps}


def test_the_table_shows_ratios_of_rounds_and_what_the_budget_asks() -> None:
    """One round on a busy machine slows both sides down, and changes no ratio."""
    found = {
        "understudy": [ours(250.0), ours(500.0, fsync=200.0), ours(250.0)],
        "langchain + langgraph": [rival(2500.0), rival(5000.0), rival(25_000.0)],
    }

    shown = render(found, {"pydantic-ai + dbos": "not installed"}, "a machine")

    assert "| **fastest rival / ours**, full | **10.0 ×** | - | **10.0 ×** |" in shown
    what = "a step, `full` without the waits for the disk"
    assert f"| {what}, runs of 10 | ≤ 1/8 of the fastest rival | 10.0 | yes |" in shown
    assert f"| {what}, runs of 200 | ≤ 1/12 of the fastest rival | 10.0 | **no** |" in shown
    assert "| a step, `normal`, runs of 10 | ≤ 1/15 of the fastest rival | 10.0 | **no** |" in shown
    assert "| a step, `full`, runs of 200 | ≤ 3 fsyncs | 2.5 | yes |" in shown
    assert "| 100 agents × 10 steps, `full` | ≥ 5,000 steps/s | 6,000.0 | yes |" in shown
    assert "| disk for 200 steps | ≤ 300 KB | 156.2 | yes |" in shown
    assert "| an agent awake, memory store | ≤ 6 KB | 5.0 | yes |" in shown
    assert "| an agent awake, sqlite store | ≤ 6 KB | 7.0 | **no** |" in shown
    assert "| understudy | 40,000 | 160,000 | - | 4.0 × |" in shown
    assert "- pydantic-ai + dbos: not installed" in shown


def test_without_any_rival_the_budget_says_what_could_not_be_measured() -> None:
    shown = render({"understudy": [ours(250.0)]}, {}, "a machine")

    what = "a step, `full` without the waits for the disk, runs of 10"
    assert f"| {what} | ≤ 1/8 of the fastest rival | - | not measured |" in shown

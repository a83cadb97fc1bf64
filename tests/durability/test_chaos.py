"""Killed, cut off, robbed of its power, at each point: nothing is lost, nothing happens twice.

`make chaos` plays far more of the same; `tests/support/durability` holds the stories.
"""

from __future__ import annotations

import sys

import pytest

from tests.support.durability import chaos
from tests.support.durability.broken import BROKEN
from tests.support.durability.checks import (
    CHECKS,
    CONTROLS,
    SUITE,
    Check,
    Row,
    Stage,
    checked,
    found_out,
)
from tests.support.durability.forks import Forks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no fork"),
]
SEED = 1


@pytest.fixture(scope="session")
def stage(forks: Forks) -> Stage:
    """The undisturbed scenario."""
    return Stage.of(forks, SUITE, SEED)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.what)
def test_nothing_is_lost_and_nothing_happens_twice(
    forks: Forks, stage: Stage, check: Check
) -> None:
    """J1, J2, J3, J4, J5, J6, J7, J8, J11, J13, J14, J16, T15."""
    row = checked(forks, check, stage)
    assert row.plays
    assert row.violations == []


@pytest.mark.parametrize("broken", CONTROLS)
def test_a_build_with_one_rule_left_out_is_found_out(
    forks: Forks, stage: Stage, broken: str
) -> None:
    """J1: else the test above would prove nothing."""
    assert found_out(forks, broken, stage).violations


def test_each_broken_build_has_a_control() -> None:
    rules = [
        "J1",
        "J2",
        "J3",
        "J4",
        "J5",
        "J6",
        "J7",
        "J8",
        "J11",
        "J13",
        "J14",
        "J16",
        "J21",
        "J22",
        "T11",
        "T15",
    ]
    elsewhere = {name for name in BROKEN if "PostgreSQL" in name}  # in test_hosts.py
    assert set(CONTROLS) == set(BROKEN) - elsewhere
    assert set(rules) <= {name.partition(":")[0] for name in BROKEN}


def test_every_kind_of_point_is_among_those_of_the_scenario(stage: Stage) -> None:
    """The scenario has an approval, an agent inside that asks, tools side by side, a queue."""
    kinds = {
        *("append interrupts_checked", "append decided", "append child:interrupts_checked"),
        *("append child:decided", "append message_queued", "append run_ended", "append once"),
        *("begin", "claim", "commit", "effect of stamp", "effect of publish", "effect of report"),
    }
    assert {f"before {kind}" for kind in kinds} <= set(stage.points)
    assert sum(name == "after commit" for name in stage.points) > 20


def test_the_tables_and_the_picture_show_what_went_wrong() -> None:
    good, bad = Row("good", 7, [], 1.0), Row("bad", 9, ["it | broke"], 1.0)
    lines = "\n".join(chaos.table([good, bad], [bad, good]))
    assert "| good | 7 | 0 | 1 |" in lines
    assert "| bad | 9 | **1** | 1 |" in lines
    assert "| bad | 9 plays | it / broke |" in lines
    assert "| good | **not in 7 plays** | - |" in lines
    drawn = chaos.picture([good, bad], [bad, good])
    assert drawn.count("#c62828") == 2, "a violation, and a broken build that passes"
    assert drawn.startswith("<svg")
    assert drawn.endswith("</svg>\n")

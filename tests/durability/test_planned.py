"""Killed, or robbed of its power, at each point of four days: what is planned comes once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.durability.forks import Died, Forks
from tests.support.durability.planned import BROKEN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no fork"),
]
EVERY = 7
"""Of the points of a life, every n-th."""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("tests.support.durability.planned") as made:
        yield made


def plays(forks: Forks) -> list[list[int]]:
    points = forks.play("planned", stops=[])["points"]
    once = [[point] for point in range(1, points + 1, EVERY)]
    return once + [[point, point // 2 + 3, 7] for point in range(9, points + 1, 2 * EVERY)]


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
def test_what_is_planned_comes_once_wherever_the_host_goes_away(forks: Forks, power: bool) -> None:
    """J26."""
    each: list[dict[str, Any]] = [{"stops": stops, "power": power} for stops in plays(forks)]
    each.append({"stops": [1], "named": "after effect", "power": power})
    found = list(forks.play_all("planned", each))
    assert [violation for play in found for violation in play["violations"]] == []
    stopped = {name.split()[1] for play in found for name in play["stopped"]}
    assert {"append", "commit", "effect"} <= stopped


@pytest.mark.parametrize("broken", BROKEN)
def test_a_build_that_plans_wrongly_is_found_out(forks: Forks, broken: str) -> None:
    """Else the test above would prove nothing."""
    assert forks.play("planned", stops=[20])["violations"] == []
    assert found_out(forks, broken)


def found_out(forks: Forks, broken: str) -> bool:
    """Whether it loses or repeats something, or comes to no end."""
    try:
        return bool(forks.play("planned", stops=[20], broken=broken)["violations"])
    except Died as died:
        return "TimeoutError" in str(died)

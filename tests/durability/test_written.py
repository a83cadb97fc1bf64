"""Killed, or robbed of its power, around the calls that write files: each has what it says."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.durability.forks import Died, Forks
from tests.support.durability.written import BROKEN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no fork"),
]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("tests.support.durability.written") as made:
        yield made


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
def test_files_and_their_bytes_are_there_wherever_it_is_stopped(forks: Forks, power: bool) -> None:
    """J80: before and after each write of the journal, and twice in a row."""
    (points,) = forks.play("written", stops=[], power=power)["points"]
    step = 12 if power else 5
    each = [[point] for point in {*range(1, len(points) + 1, step), *range(19, 27)}]
    each += [[point, 5 + point % 7] for point in range(1, len(points) + 1, 6 * step)]
    found = list(forks.play_all("written", [{"stops": stops, "power": power} for stops in each]))
    assert [violation for play in found for violation in play["violations"]] == []
    stopped = {name for play in found for name in play["stopped"]}
    assert {"append", "commit"} <= {name.split()[1] for name in stopped}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_build_that_loses_bytes_is_found_out(forks: Forks, broken: str) -> None:
    """J80: else the test above would prove nothing."""
    plays = [[], *[[point] for point in range(14, 40)]]
    assert forks.play("written", stops=plays[1])["violations"] == []
    assert any(found_out(forks, broken, stops) for stops in plays)


def found_out(forks: Forks, broken: str, stops: list[int]) -> bool:
    try:
        return bool(forks.play("written", stops=stops, broken=broken)["violations"])
    except Died as died:
        return not any(error in str(died) for error in ("TypeError", "AttributeError", "NameError"))

"""Killed, or robbed of its power, around reminders, escalations and expiries: each comes once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.durability.asked import BROKEN
from tests.support.durability.forks import Died, Forks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no fork"),
]
NAMED = tuple(
    f"{when} {what}"
    for what in ("append reminded", "append escalated", "append decided", "append run_ended")
    for when in ("before", "after")
)


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("tests.support.durability.asked") as made:
        yield made


@pytest.mark.parametrize("on_expiry", ["reject", "stop"])
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
def test_who_never_answers_is_reminded_escalated_and_rejected_once(
    forks: Forks, power: bool, on_expiry: str
) -> None:
    """I14, I15, J21: before and after each write, in the life that asks and in the next one."""
    how: dict[str, Any] = {"on_expiry": on_expiry, "power": power}
    first, second, *_ = forks.play("asked", stops=[], **how)["points"]
    step = 5 if power else 2
    each = [{"stops": [point]} for point in range(1, first + 1, step)]
    each += [{"stops": [0, point]} for point in range(1, second + 1, step)]
    each += [{"stops": [point, 3 + point % 5]} for point in range(1, first + 1, 5 * step)]
    found = list(forks.play_all("asked", [{**how, **play} for play in each]))
    assert [violation for play in found for violation in play["violations"]] == []
    stopped = {name for play in found for name in play["stopped"]}
    assert {"append", "commit"} <= {name.split()[1] for name in stopped}


@pytest.mark.parametrize("named", NAMED)
def test_it_comes_once_where_the_host_dies_at_the_record_of_it(forks: Forks, named: str) -> None:
    """I15, J21."""
    at = [1] if "reminded" in named or "escalated" in named else [0, 1]
    found = forks.play("asked", stops=at, named=named)
    assert found["violations"] == []
    assert [name.startswith(named) for name in found["stopped"]] == [True]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_build_that_tells_or_decides_wrongly_is_found_out(forks: Forks, broken: str) -> None:
    """Else the tests above would prove nothing."""
    plays: list[list[int]] = [[20], []]
    assert [forks.play("asked", stops=stops)["violations"] for stops in plays] == [[], []]
    assert any(found_out(forks, broken, stops) for stops in plays)


def found_out(forks: Forks, broken: str, stops: list[int]) -> bool:
    """Whether it loses or repeats something, or comes to no end."""
    try:
        return bool(forks.play("asked", stops=stops, broken=broken)["violations"])
    except Died as died:
        return "TimeoutError" in str(died) and "TypeError" not in str(died)

"""A run that is cut off anywhere, and that a definition with other gates continues (I4) (I7)."""

from __future__ import annotations

import pytest

from tests.support.durability.deployed import BROKEN, GATES, PLACES, Gate, Place, deployed

LONG = ("as a task", "in a branch")


@pytest.mark.parametrize(
    "place",
    [pytest.param(place, marks=pytest.mark.slow) if place in LONG else place for place in PLACES],
)
@pytest.mark.parametrize("then", GATES)
@pytest.mark.parametrize("today", GATES)
def test_wherever_a_run_is_cut_off_the_stricter_of_the_gates_of_then_and_today_counts(
    place: Place, then: Gate, today: Gate
) -> None:
    """I7."""
    assert deployed(place, then, today) == []


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_a_build_that_does_not_ask_the_gates_of_today_rightly_is_found_out(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above would prove nothing."""
    place, then, today, break_ = BROKEN[broken]
    break_(monkeypatch)
    assert deployed(place, then, today) != []

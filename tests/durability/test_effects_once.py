"""The table of guarantees: however an effect could be repeated, it is not repeated by itself.

Each row is played with a tool that has effects, one that is idempotent and one that only looks
something up, gated or not, against a bank that knows keys and one that does not. The bank counts.
"""

from __future__ import annotations

import pytest

from tests.support.durability.effects_broken import HOLES
from tests.support.durability.effects_rows import ROWS
from tests.support.durability.effects_story import Story, played

SHORT = "after paying: ConnectionError"
"""The row that `make test` plays."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The repeats of idempotent calls come without their waits."""
    monkeypatch.setattr("understudy.modes.steps.tool_call.retry.SOON", (0, 0))


def wrong_in(name: str) -> dict[str, list[str]]:
    """What is wrong with a row, by cell."""
    row = ROWS[name]
    found = {str(cell): played(row.play, cell) for cell in row.cells}
    return {cell: violations for cell, violations in found.items() if violations}


def is_found(name: str) -> bool:
    """Whether something is wrong in a cell of a row."""
    row = ROWS[name]
    return any(played(row.play, cell) for cell in row.cells)


def test_a_payment_whose_answer_is_lost_is_made_once() -> None:
    """J86."""
    assert wrong_in(SHORT) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_no_effect_is_repeated_by_itself_and_nothing_false_is_told(name: str) -> None:
    """J86."""
    assert wrong_in(name) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_build_with_one_hole_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """J86: else the row would prove nothing."""
    HOLES[ROWS[name].hole](monkeypatch)
    assert is_found(name)


def test_each_hole_is_that_of_a_row() -> None:
    """A broken build that no row looks for would rot."""
    assert {row.hole for row in ROWS.values()} == set(HOLES)


def test_the_story_finds_false_words() -> None:
    """The judge itself: a conversation that says what did not happen is found out."""
    assert Story is not None

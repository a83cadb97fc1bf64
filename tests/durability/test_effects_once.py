"""The table of guarantees: however an effect could be repeated, it is not repeated by itself.

Each row is played with a tool that has effects, one that is idempotent and one that only looks
something up, gated or not, against a bank that knows keys and one that does not. The bank counts.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings

from tests.support.durability.effects_broken import HOLES
from tests.support.durability.effects_drawn import Drawn, drawn, violations_of
from tests.support.durability.effects_rows import ROWS
from tests.support.durability.effects_served import two_hosts
from tests.support.durability.effects_story import CELLS, Cell, Story, false_words, played
from tests.support.postgres import Hosts

pytestmark = pytest.mark.usefixtures("repeats_at_once")
SHORT = "after paying: ConnectionError"
"""The row that `make test` plays."""


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


@pytest.mark.parametrize(
    ("text", "outcome", "entered", "did"),
    [
        ("Not run: the run ended before this call was started.", "interrupted", 1, 0),
        ("Ran in part: a person rejected it.", "denied", 0, 0),
        ("The outcome of this call is unknown: it was started.", "interrupted", 0, 0),
        ("ConnectionError: lost", "failed", 1, 1),
        ("A check has found that it did not take effect.", "failed", 1, 1),
        ("Denied: a person decided that this call must not run.", "denied", 1, 0),
        ("paid", "success", 0, 0),
        ("It was stopped.", "interrupted", 1, 1),
    ],
)
def test_the_judge_knows_false_words(text: str, outcome: str, entered: int, did: int) -> None:
    """J86: and says nothing where they are true."""
    flags = {"may_be_started": False, "is_settled": False, "may_be_lost": False}
    assert list(false_words(text, outcome, entered=entered, did=did, **flags))
    if "Ran in part" in text or "unknown" in text or outcome == "success":
        assert not list(false_words(text, outcome, entered=1, did=1, **flags))
    else:
        assert not list(false_words(text, outcome, entered=0, did=0, **flags))


@pytest.mark.slow
@settings(max_examples=300, derandomize=True, phases=[Phase.generate])
@given(drawn)
def test_whatever_is_drawn_an_effect_is_there_once_and_nothing_false_is_told(story: Drawn) -> None:
    """J86: unless a person, a declared idempotency or a check has released another one."""
    assert violations_of(story) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "hole",
    [
        "each error is a failure",
        "a call that was cut off runs again",
        "a tool starts before that is durable",
        "the last error counts",
        "what was cut off is said not to have run",
    ],
)
def test_what_is_drawn_finds_a_build_with_one_hole(
    hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J86."""
    HOLES[hole](monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)):
        test_whatever_is_drawn_an_effect_is_there_once_and_nothing_false_is_told()


async def wrong_at_two_hosts(cell: Cell, hosts: Hosts) -> list[str]:
    story = Story(cell)
    await two_hosts(story, hosts)
    return story.violations


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("cell", CELLS, ids=str)
async def test_a_host_that_takes_over_repeats_no_effect(cell: Cell, hosts: Hosts) -> None:
    """J86, J7."""
    assert await wrong_at_two_hosts(cell, hosts) == []


@pytest.mark.slow
@pytest.mark.faults
async def test_a_build_in_which_a_host_repeats_what_another_one_began_is_found_out(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J86."""
    HOLES["a call that was cut off runs again"](monkeypatch)
    assert await wrong_at_two_hosts(Cell(), hosts) != []

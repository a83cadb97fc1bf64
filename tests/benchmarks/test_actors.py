"""The benchmarks of actors run and print; how fast anything is, no test asks."""

import pytest

from benchmarks.actors import CASES, rows

pytestmark = pytest.mark.slow
TINY = {"few": 5, "many": 7, "threads": 2, "asks": 3, "tells": 4}
TINY |= {"agents": 3, "steps": 2, "idle": 4, "repeats": 1}


def test_each_case_of_actors_runs_and_all_numbers_are_in_the_table() -> None:
    found = {name: case(TINY) for name, case in CASES.items()}

    lines = list(rows(found))

    assert all(line.count("|") == 7 for line in lines)
    assert len(lines) == 2 + 16
    assert all(found["agents"][key] > 0 for key in found["agents"])
    assert found["messages"]["ask_us"] > 0

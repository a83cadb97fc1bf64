"""The benchmark of the search runs and prints; how fast anything is, no test asks."""

from __future__ import annotations

import pytest

from benchmarks.search import main


@pytest.mark.slow
def test_an_index_is_made_and_searched_beside_runs_with_it_and_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--agents", "40", "--runs", "1"])

    shown = capsys.readouterr().out
    assert "SQLite, 40 agents" in shown
    assert "to index an agent" in shown
    assert "a run with the index" in shown

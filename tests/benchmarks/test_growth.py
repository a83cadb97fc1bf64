"""The benchmark of a store that grows runs and prints; how fast anything is, no test asks."""

from __future__ import annotations

import pytest

from benchmarks.growth import main


@pytest.mark.slow
def test_a_run_is_measured_in_a_store_of_each_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.growth.REPEATS", 1)

    main(["--agents", "20", "50", "--runs", "1"])

    shown = capsys.readouterr().out
    assert "| SQLite | 20 |" in shown
    assert "| SQLite | 50 |" in shown

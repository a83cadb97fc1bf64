"""The benchmark of retiring runs and prints; how fast it is, no test asks."""

import pytest

from benchmarks.retire import main

pytestmark = pytest.mark.slow


def test_the_benchmark_of_retiring_prints_what_it_has_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--agents", "20"])
    told = capsys.readouterr().out
    assert ".jsonl.gz: " in told
    assert "recover: 20 runs" in told

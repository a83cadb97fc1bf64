"""The benchmark of what a branch costs runs, and its table has each case."""

from __future__ import annotations

import pytest

from benchmarks import branches


@pytest.mark.parametrize(
    "options", [[], ["--durable"], ["--tools"]], ids=["memory", "durable", "tools"]
)
@pytest.mark.slow
def test_branches_are_measured_beside_an_agent_alone(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    branches.main(["--counts", "3", "--repeats", "1", *options])
    printed = capsys.readouterr().out
    for case in ("an agent alone", "one of 3 ", 'one of 3, include_contents="none"', "run 3"):
        assert case in printed

"""The example of two runtimes, on a real PostgreSQL server."""

from __future__ import annotations

import os
import re
from subprocess import CompletedProcess

import pytest

from tests.support.programs import ROOT, ran

pytestmark = pytest.mark.slow


def run_example(*arguments: str) -> CompletedProcess[str]:
    return ran(
        *("-W", "error", "-m", "examples.two_hosts", *arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_either_runtime_answers_for_the_agent_and_one_takes_over(postgres_url: str) -> None:
    """J6. The first may not have written yet that it rests; then the answer is posted to it."""
    done = run_example(postgres_url)
    assert done.returncode == 0, done.stderr
    owned, taken, goes_on = done.stdout.splitlines()
    assert "is owned by '" in owned
    assert re.search(r"2\.1 was put into service by the (first|second) runtime$", taken)
    assert goes_on.endswith("2.1 was put into service by the first runtime")


@pytest.mark.parametrize("arguments", [(), ("nonsense",)])
def test_without_a_database_it_says_how_it_is_used(arguments: tuple[str, ...]) -> None:
    done = run_example(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "usage: python -m examples.two_hosts postgresql://..."


def test_a_database_that_is_not_there_is_named_without_a_traceback() -> None:
    done = run_example("postgresql://localhost:1/nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("StoreUnavailable: The store cannot be reached")
    assert "Traceback" not in done.stderr

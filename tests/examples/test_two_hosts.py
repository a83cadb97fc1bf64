"""The example of two runtimes, on a real PostgreSQL server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def run_example(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "examples/two_hosts.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_one_runtime_owns_the_agent_and_the_other_takes_over(postgres_url: str) -> None:
    """J6."""
    done = run_example(postgres_url)
    assert done.returncode == 0, done.stderr
    asks, refused, goes_on = done.stdout.splitlines()
    host = asks.removeprefix("release is at ").partition(",")[0]
    assert asks.endswith("and asks for deploy")
    assert f"is owned by {host!r}" in refused
    assert "2.1 was put into service by the second runtime" in goes_on


def test_without_a_database_it_says_how_it_is_used() -> None:
    done = run_example()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == "usage: python examples/two_hosts.py postgresql://..."

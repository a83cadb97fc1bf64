"""The durable example as its reader runs it: one process after the other, in one folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAID_ONCE = "ticket-42: 1 payment, Completed(text='Done: refunded 49.90 for order 17.'"


def run_in(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples/durable_agent.py"), *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_it_waits_for_a_person_over_the_end_of_its_process(tmp_path: Path) -> None:
    """I10: the request is listed by the next process, and the answer goes on with the run."""
    code, told = run_in(tmp_path)
    assert (code, "it waits for your approval" in told) == (0, True)
    code, told = run_in(tmp_path)
    assert code == 0
    assert "you approve refund {'order_id': '17', 'amount': 49.9}" in told
    assert "looking the order up" not in told  # a finished call is never repeated
    assert told.count("the bank pays") == 1
    assert PAID_ONCE in told


def test_killed_in_the_middle_of_the_refund_it_goes_on_and_pays_once(tmp_path: Path) -> None:
    """J3, J10: nobody is asked again, and the call runs again under the same key."""
    run_in(tmp_path)
    code, told = run_in(tmp_path, "--crash")
    assert code == -signal.SIGKILL
    assert "the bank pays" in told
    code, told = run_in(tmp_path)
    assert code == 0
    assert "ticket-42 was cut off and goes on" in told
    assert "that was paid already" in told
    assert "you approve" not in told
    assert "looking the order up" not in told
    assert PAID_ONCE in told


def test_run_once_more_it_repeats_nothing(tmp_path: Path) -> None:
    """J14: the same message id is the same message."""
    for _ in range(2):
        run_in(tmp_path)
    code, told = run_in(tmp_path)
    assert (code, "..." in told, PAID_ONCE in told) == (0, False, True)

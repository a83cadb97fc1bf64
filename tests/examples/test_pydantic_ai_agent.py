"""The adopted agent of the example as its reader runs it: one process after the other (M9)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.programs import ROOT, ran

pytestmark = pytest.mark.slow
PAID_ONCE = (
    "ticket-42 is answered: Answer(text='refunded 49.90 for order 17', refunded=49.9)\n"
    "Payments at the bank: 1.\n"
)


def run_in(folder: Path, *arguments: str, code: int = 0) -> str:
    done = ran(
        *("-W", "error", "-m", "examples.pydantic_ai_agent", *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        is_fresh=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_an_adopted_agent_is_killed_while_it_pays_and_pays_once(tmp_path: Path) -> None:
    told = run_in(tmp_path)
    assert "asks a person: refund {'order_id': '17', 'amount': 49.9}" in told
    assert "the bank" not in told
    told = run_in(tmp_path, "--crash", code=-signal.SIGKILL)
    assert "... the bank pays\n" in told
    told = run_in(tmp_path)
    assert "ticket-42 was cut off when its process ended. It goes on:" in told
    assert "the bank has paid already" in told
    assert "asks a person" not in told
    assert told.endswith(PAID_ONCE)
    assert run_in(tmp_path) == PAID_ONCE  # the same message is the same run
    run_in(tmp_path, "--new")
    assert run_in(tmp_path, "--approve").endswith(PAID_ONCE)

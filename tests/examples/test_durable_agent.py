"""The durable example as its reader runs it: one process after the other, in one folder."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.programs import ROOT, ran

pytestmark = pytest.mark.slow
ASKS = "The agent asks a person: refund {'order_id': '17', 'amount': 49.9}"
PAID_ONCE = "ticket-42 is answered: Done: refunded 49.90 for order 17.\nPayments at the bank: 1."


def run_in(folder: Path, *arguments: str, code: int = 0, is_fresh: bool = False) -> str:
    done = ran(
        *("-W", "error", "-m", "examples.durable_agent", *arguments),
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        is_fresh=is_fresh,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (done.stderr == "") is (code <= 0)
    return done.stdout + done.stderr


def test_it_waits_for_a_person_over_the_end_of_its_process(tmp_path: Path) -> None:
    """I10: the request is listed by each process until somebody answers, and then it continues."""
    for looked_up in (True, False):  # a finished call is never repeated
        told = run_in(tmp_path, is_fresh=looked_up)
        assert ("looking the order up" in told) is looked_up
        assert ASKS in told
        assert "Nobody has answered: nothing is paid" in told
        assert "--approve" in told
    told = run_in(tmp_path, "--approve")
    assert "looking the order up" not in told
    assert told.count("the bank pays") == 1
    assert PAID_ONCE in told


def test_killed_in_the_middle_of_the_refund_it_goes_on_and_pays_once(tmp_path: Path) -> None:
    """J3, J10: nobody is asked again, and the call runs again under the same key."""
    run_in(tmp_path)
    told = run_in(tmp_path, "--approve", "--crash", code=-signal.SIGKILL)
    assert "the bank pays" in told
    assert "this process is killed" in told
    told = run_in(tmp_path)
    assert "ticket-42 was cut off when its process ended. It goes on:" in told
    assert "the bank has paid already" in told
    assert "asks a person" not in told
    assert "looking the order up" not in told
    assert PAID_ONCE in told


def test_run_once_more_it_repeats_nothing_and_says_how_to_start_anew(tmp_path: Path) -> None:
    """J14: the same message id is the same message."""
    run_in(tmp_path, "--approve")
    told = run_in(tmp_path)
    assert ("..." in told, PAID_ONCE in told) == (False, True)
    assert re.search(r"To start anew: \S+ -m examples.durable_agent --new", told)
    assert "There is nothing to approve." in run_in(tmp_path, "--approve")

    for _ in range(2):
        assert "are forgotten" in run_in(tmp_path, "--new")
    told = run_in(tmp_path, "--reject")
    assert "looking the order up" in told
    assert "the bank" not in told.partition("Payments")[0]
    assert "Payments at the bank: 0." in told


@pytest.mark.parametrize(
    ("store", "error"),
    [
        ("nonsense", "UsageError: `store` must be 'memory:', 'sqlite:///path' or"),
        ("sqlite:////no/such/folder/x.db", "StoreBroken: "),
        ("postgresql://localhost:1/x", "StoreUnavailable: "),
    ],
)
def test_a_store_that_cannot_be_used_is_named(store: str, error: str, tmp_path: Path) -> None:
    assert error in run_in(tmp_path, "--store", store, code=1)

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def test_the_supervised_actor_crashes_and_comes_back() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "examples/supervised_actor.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "  ... the till is open",
        "paid in: 40",
        "the till is down: invalid literal for int() with base 10: 'forty'",
        "shop (Supervisor) running",
        "└── till (Till) exited",
        "  ... the till is open",
        "paid in: 2",
        "shop (Supervisor) running",
        "└── till (Till) running, 1 restart",
        "the till is closed",
    ]

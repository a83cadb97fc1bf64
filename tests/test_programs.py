"""What tests start as a program is one: nothing distinguishes it from a fresh interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import DEVNULL, PIPE, STDOUT, Program, ran, started

pytestmark = [
    pytest.mark.slow,  # for the fresh interpreters
    pytest.mark.skipif(sys.platform == "win32", reason="it is a fresh interpreter there"),
]
SHOWS = """
import json, os, sys, warnings
print(sys.argv, sys.path[0], __name__, sys.stdin.read(), sys.stdout.encoding, sys.warnoptions)
print(os.getcwd(), dict(os.environ) == json.loads(sys.argv[1]), sys.modules["__main__"].SHOWN)
print("é", file=sys.stderr)
sys.exit(3)
"""


def test_it_sees_what_a_fresh_interpreter_shows_it(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", "OWN": "yes"}
    code = f"SHOWN = 5{SHOWS}"
    both = [
        ran(
            *("-W", "error", "-c", code, json.dumps(env)),
            cwd=tmp_path,
            env=env,
            input="said",
            is_fresh=is_fresh,
        )
        for is_fresh in (True, False)
    ]
    assert vars(both[0]) == vars(both[1])
    assert (both[1].returncode, both[1].stderr) == (3, "é\n")
    assert f"{tmp_path} True 5" in both[1].stdout


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, -signal.SIGINT),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.Signals(9), -9),
    ],
)
def test_a_signal_ends_it_as_it_ends_any_program(number: signal.Signals, code: int) -> None:
    waits = "import time; print('on', flush=True); time.sleep(60)"
    with started("-c", waits, stdout=PIPE, stderr=DEVNULL) as program:
        assert isinstance(program, Program)
        assert program.stdout is not None
        assert program.stdout.readline() == "on\n"
        assert program.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.01)
        program.send_signal(number)
        assert program.wait(60) == code


def test_its_interpreter_comes_to_its_end() -> None:
    code = (
        "import atexit, threading\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Timer(0.01, print, ['a thread']).start()\n"
        "1 / 0"
    )
    with started("-c", code, stdout=PIPE, stderr=STDOUT) as program:
        printed, _ = program.communicate(timeout=60)
    assert program.returncode == 1
    assert printed.endswith("ZeroDivisionError: division by zero\na thread\nat exit\n")


def test_warnings_are_errors_where_it_is_told_so() -> None:
    code = "import warnings; warnings.warn('old', DeprecationWarning)"
    assert ran("-c", code).returncode == 0
    assert "DeprecationWarning: old" in ran("-W", "error", "-c", code).stderr

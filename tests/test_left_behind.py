"""A test fails by what it leaves behind, and not the test after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import sqlite3
import threading

from understudy.journal.sqlite import SqliteBackend

kept = []

def test_leaves_one_of_its_own(tmp_path):
    kept.append(sqlite3.connect(tmp_path / "own.db"))

def test_leaves_one_that_another_thread_opened(tmp_path):
    thread = threading.Thread(target=lambda: kept.append(sqlite3.connect(tmp_path / "other.db")))
    thread.start()
    thread.join()

def test_drops_one_that_it_has_not_closed(tmp_path):
    sqlite3.connect(tmp_path / "dropped.db")

def test_leaves_the_one_of_a_store(tmp_path):
    kept.append(SqliteBackend(str(tmp_path / "store.db"), host="here"))
    kept[-1].open()

def test_closes_what_it_opens(tmp_path):
    sqlite3.connect(tmp_path / "closed.db").close()
    backend = SqliteBackend(str(tmp_path / "store.db"), host="here")
    backend.open()
    backend.close()
"""


@pytest.mark.slow
def test_a_test_that_leaves_a_connection_to_sqlite_open_fails_itself(tmp_path: Path) -> None:
    file = tmp_path / "test_connections.py"
    file.write_text(TESTS)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "0", f"--rootdir={ROOT}"]
    ini = ["-c", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "pytest", *options, *ini, "-rE", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    failed = [line for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    assert [line.split("::")[1].split(" ")[0] for line in failed] == [
        "test_leaves_one_of_its_own",
        "test_leaves_one_that_another_thread_opened",
        "test_drops_one_that_it_has_not_closed",
        "test_leaves_the_one_of_a_store",
    ], done.stdout
    for name in ("own.db", "other.db", "dropped.db", "store.db"):
        assert name in done.stdout
    assert done.stdout.startswith(".E.E.E.E. ")

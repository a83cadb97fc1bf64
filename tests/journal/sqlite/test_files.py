"""The files of a SQLite store: whose they are, and what is no file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from understudy import Agent, Runtime, ScriptedModel
from understudy.errors import StoreBroken


def test_a_new_database_is_of_its_user_alone(tmp_path: Path) -> None:
    """What agents know could be read by each user of the machine."""
    path = tmp_path / "private.db"
    before = os.umask(0o000)
    try:
        with Runtime([Agent("a", ScriptedModel(["hi"]))], store=f"sqlite:///{path}") as runtime:
            runtime.spawn("a", "x").run("go").get(timeout=60)
            modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) == {f"private.db{end}" for end in ("", ".lock", "-wal", "-shm")}
    assert set(modes.values()) == {0o600}


def test_who_shares_a_database_by_its_rights_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    for _ in range(2):
        with Runtime([Agent("a", ScriptedModel(["hi"]))], store=f"sqlite:///{path}"):
            pass
        path.chmod(0o640)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("end", ["", ".lock"])
@pytest.mark.parametrize("command", [["ls"], ["doctor"], ["doctor", "--quick"], ["pending"]])
def test_a_pipe_in_the_place_of_a_store_does_not_hang(
    command: list[str], end: str, tmp_path: Path
) -> None:
    """`ls` and `doctor` waited for somebody who writes into it."""
    path = tmp_path / "piped.db"
    if end:
        with Runtime([Agent("a", ScriptedModel(["hi"]))], store=f"sqlite:///{path}"):
            pass
        Path(f"{path}{end}").unlink()
    os.mkfifo(f"{path}{end}")
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *command, "--store", f"sqlite:///{path}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if not end:
        assert done.returncode != 0
        assert "is no file, but a pipe" in done.stdout + done.stderr


def test_a_pipe_in_the_place_of_a_store_is_refused_by_a_runtime(tmp_path: Path) -> None:
    path = tmp_path / "piped.db"
    os.mkfifo(path)
    with (
        pytest.raises(StoreBroken, match="is no file, but a pipe"),
        Runtime([Agent("a", ScriptedModel(["hi"]))], store=f"sqlite:///{path}"),
    ):
        pass

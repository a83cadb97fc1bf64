"""The files of a SQLite store: whose they are, and what is no file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.few_files import few_files
from understudy import Agent, Runtime, ScriptedModel
from understudy.cli.app import app
from understudy.errors import StoreBroken, StoreUnavailable
from understudy.journal.sqlite.backend import SqliteBackend


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
    done = CliRunner().invoke(app, [*command, "--store", f"sqlite:///{path}"])
    if not end:
        assert done.exit_code != 0
        assert "is no file, but a pipe" in done.output


def test_a_pipe_in_the_place_of_a_store_is_refused_by_a_runtime(tmp_path: Path) -> None:
    path = tmp_path / "piped.db"
    os.mkfifo(path)
    with (
        pytest.raises(StoreBroken, match="is no file, but a pipe"),
        Runtime([Agent("a", ScriptedModel(["hi"]))], store=f"sqlite:///{path}"),
    ):
        pass


@pytest.mark.parametrize("is_new", [True, False])
def test_a_store_for_which_no_descriptor_is_left_says_so_with_the_remedy(
    tmp_path: Path, is_new: bool
) -> None:
    """SQLite says only that it is unable to open the file, at whichever of its files it is."""
    backend = SqliteBackend(str(tmp_path / "old.db"), host="here")
    backend.open()
    backend.close()
    ended = []
    for free in range(10):
        if is_new:
            backend = SqliteBackend(str(tmp_path / f"{free}.db"), host="here")
        with few_files(free):
            try:
                backend.open()
                backend.find_agents(["a"])  # by another connection
            except StoreUnavailable as error:
                ended.append(str(error))
            else:
                ended.append("opened")
        backend.open()
        assert backend.find_agents(["a"]) == []
        backend.close()
    assert ended[0] != "opened"
    assert ended[-1] == "opened"
    for each in ended[: ended.index("opened")]:
        assert "no file descriptor is left" in each
        assert "raise the limit of open files" in each


def test_a_path_that_cannot_be_opened_is_told_with_its_remedy_where_files_are_left(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreBroken, match="in a folder that exists"):
        SqliteBackend(str(tmp_path / "none" / "x.db"), host="here").open()

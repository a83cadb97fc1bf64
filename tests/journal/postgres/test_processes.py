"""Which process of this machine has ended: for certain, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from understudy.journal.postgres.sharing.processes import has_ended, this_process
from understudy.journal.shared import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes so")

SAY_WHO = (
    "import sys; from understudy.journal.postgres.sharing.processes import this_process; "
    "print(*this_process()[1:])"
)


@contextmanager
def another() -> Iterator[tuple[subprocess.Popen[str], Process]]:
    """A process that says who it is, and waits."""
    here = this_process()
    assert here is not None
    command = [sys.executable, "-c", f"{SAY_WHO}; sys.stdout.flush(); sys.stdin.read()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            pid, started = map(int, process.stdout.readline().split())
            yield process, Process(here.place, pid, started)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_process_that_was_killed_has_ended_before_its_parent_asks_and_after() -> None:
    """J50."""
    here = this_process()
    with another() as (process, named):
        assert named.pid == process.pid
        assert not has_ended(named, here)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        assert has_ended(named, here)
        process.wait()
        assert has_ended(named, here)


@pytest.mark.slow
def test_a_process_that_is_stopped_has_not_ended() -> None:
    """J50."""
    with another() as (process, named):
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert not has_ended(named, this_process())


@pytest.mark.slow
def test_a_pid_that_another_process_has_by_now_is_that_of_an_ended_one() -> None:
    """J50."""
    with another() as (_, named):
        assert has_ended(named._replace(started=named.started - 1), this_process())


def test_nothing_is_known_of_processes_of_another_place() -> None:
    """J50: another boot, another machine, another container: their pids say nothing here."""
    here = this_process()
    assert here is not None
    boot, pids, *times = here.place.split(" ")
    for place in (
        " ".join(["8e7b4a52-0000-4000-8000-000000000000", pids, *times]),
        " ".join([boot, "pid:[1]", *times]),
        " ".join([boot, pids, "time:[1]"]),
        "",
    ):
        assert not has_ended(Process(place, 2**22 - 1, 1), here)


@pytest.mark.parametrize("pid", [0, -1, -(2**31), 2**80])
def test_what_is_no_pid_has_not_ended(pid: int) -> None:
    """J50: 0 and negative numbers name groups of processes."""
    here = this_process()
    assert here is not None
    assert not has_ended(Process(here.place, pid, 1), here)


def test_a_process_that_may_not_be_asked_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J50: of another user, and hidden by the mount option hidepid."""
    here = this_process()
    assert here is not None

    def kill(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert not has_ended(Process(here.place, here.pid, 1), here, str(tmp_path))


def test_without_the_files_of_linux_a_process_has_no_name_and_none_has_ended(
    tmp_path: Path,
) -> None:
    """J50: as on macOS and Windows; and with the /proc of another pid namespace."""
    assert this_process(str(tmp_path)) is None
    (tmp_path / "self").symlink_to("1")
    assert this_process(str(tmp_path)) is None
    here = this_process()
    assert here is not None
    assert not has_ended(Process(here.place, 2**22 - 1, 1), None)


@pytest.mark.parametrize("text", ["", "1 (x) S", "1 (x) S 1 one two", "\xff\xfe) ) ("])
def test_a_file_that_says_nothing_ends_no_process(tmp_path: Path, text: str) -> None:
    """J50."""
    here = this_process()
    assert here is not None
    stat = tmp_path / str(here.pid) / "stat"
    stat.parent.mkdir()
    stat.write_text(text)
    assert not has_ended(Process(here.place, here.pid, here.started + 1), here, str(tmp_path))


def test_the_name_of_a_program_does_not_disturb(tmp_path: Path) -> None:
    """J50: a program may be named as if the fields were over."""
    here = this_process()
    assert here is not None
    stat = Path(f"/proc/{here.pid}/stat").read_text()
    hostile = tmp_path / str(here.pid) / "stat"
    hostile.parent.mkdir()
    hostile.write_text(f"{here.pid} (a) Z 1 (b) X 2) {stat.rpartition(') ')[2]}")
    assert not has_ended(here, here, str(tmp_path))

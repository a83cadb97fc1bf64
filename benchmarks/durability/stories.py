"""The stories that are played in processes of their own; `forks` calls them by name."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.durability.forks import forked, scratch
from benchmarks.durability.judge import violations
from benchmarks.durability.lives import NO_POINTS, Wanted, live
from benchmarks.durability.side_log import SideLog
from benchmarks.durability.stage import mailer, support, walker
from understudy import Agent, threads

__all__ = ["crashes", "warm_up"]

STEPS = 10


def warm_up() -> None:
    """Do once what is slow the first time, so that a fork costs 25 ms and not 450."""
    threads._IDLE_SECONDS, kept = 0.01, threads._IDLE_SECONDS
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        live(Path(folder), 0, _agents, _both(followed=True), stop_at=NO_POINTS)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5)
    threads._IDLE_SECONDS = kept
    assert threading.active_count() == 1, "only a process with one thread can be forked"


def _agents() -> list[Agent]:
    return [support(), mailer(), walker(STEPS)]


def _both(*, followed: bool) -> list[Wanted]:
    return [
        Wanted(agent_id="ticket", agent="support", until="report", followed=followed),
        Wanted(agent_id="letter", agent="mailer", followed=followed),
    ]


def crashes(
    folder: Path,
    *,
    stops: list[int],
    shutdown: bool = False,
    followed: bool = False,
    expected: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole scenario; the n-th process is stopped at the n-th point, the last one lives."""
    wanted = _both(followed=followed)
    return _played(folder, stops, wanted, shutdown=shutdown, expected=expected)


def _played(
    folder: Path,
    stops: list[int],
    wanted: list[Wanted],
    *,
    shutdown: bool,
    expected: dict[str, Any] | None,
) -> dict[str, Any]:
    for life, stop_at in enumerate([*stops, None]):

        def body(life: int = life, stop_at: int | None = stop_at) -> None:
            passed = live(folder, life, _agents, wanted, stop_at=stop_at, shutdown=shutdown)
            SideLog(folder / "log", life).write("points", str(passed))

        if forked(body, killed=stop_at is not None) and SideLog(folder / "log", life).read(
            "served"
        ):
            break
    log = SideLog(folder / "log", -1)
    return {
        "violations": violations(log, expected),
        "stopped": [entry.of[0] for entry in log.read("stopped")],
        "points": int(log.read("points")[-1].of[0]),
        "lives": life + 1,
        "ends": {entry.of[0]: json.loads(entry.of[1]) for entry in log.read("end")},
        "log": [[e.life, e.what, *e.of] for e in log.read(*EVERYTHING)] if expected is None else [],
    }


EVERYTHING = ("enter", "effect", "approved", "repeat allowed", "recovered", "saw end", "stopped")

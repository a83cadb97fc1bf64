"""The stories that are played in processes of their own; `forks` calls them by name."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.support.durability import copies, hosts, owners
from tests.support.durability.aimed import any_host
from tests.support.durability.broken import break_
from tests.support.durability.disk import cut_power, watch_syncs
from tests.support.durability.forks import forked
from tests.support.durability.judge import violations
from tests.support.durability.left_alone import left_alone
from tests.support.durability.lives import Wanted, live
from tests.support.durability.points import NO_POINTS
from tests.support.durability.settled import settled
from tests.support.durability.side_log import SideLog
from tests.support.durability.spent import spent
from tests.support.durability.stage import mailer, support, walker
from tests.support.durability.suspended import suspended
from tests.support.durability.waited import waited
from tests.support.scratch import scratch
from understudy import Agent
from understudy._base import worker_threads as threads

answered_again, came_back = copies.answered_again, copies.came_back
fight, left_open = hosts.fight, hosts.left_open
lapsed, unknown_commits = owners.lapsed, owners.unknown_commits
second_runtime, stale_writer = owners.second_runtime, owners.stale_writer

__all__ = [
    "answered_again",
    "any_host",
    "breaks",
    "came_back",
    "crashes",
    "left_alone",
    "many",
    "settled",
    "spent",
    "suspended",
    "waited",
    "warm_up",
]


def warm_up() -> None:
    """Do once what is slow the first time, so that a fork costs 25 ms and not 450."""
    threads._IDLE_SECONDS, kept = 0.01, threads._IDLE_SECONDS
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        live(Path(folder), 0, _agents, _both(followed=True), stop_at=NO_POINTS)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(60)
    threads._IDLE_SECONDS = kept
    assert threading.active_count() == 1, "only a process with one thread can be forked"


def _agents() -> list[Agent]:
    return [support(), mailer(), walker(10), walker(5)]


def _both(*, followed: bool) -> list[Wanted]:
    return [
        Wanted(agent_id="ticket", agent="support", until="report", followed=followed),
        Wanted(agent_id="letter", agent="mailer", followed=followed),
    ]


def breaks(folder: Path, *, broken: str) -> None:
    """Nothing but the making of a broken build: a name that the library has no more is an error."""
    break_(broken)


def crashes(
    folder: Path,
    *,
    stops: list[int],
    shutdown: bool = False,
    followed: bool = False,
    power: bool = False,
    named: str = "",
    since: str = "",
    hold: float = 0.0,
    broken: str | None = None,
    expected: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole scenario; the n-th process is stopped at the n-th point, the last one lives.

    Args:
        shutdown: the host shuts down at those points; else the process is killed.
        followed: somebody reads the events.
        power: the machine loses its power at those points.
        named, since, hold: see `Points`.
        broken: the build that plays it.
        expected: the end of each agent.

    """
    break_(broken)
    wanted = _both(followed=followed)
    how = {"shutdown": shutdown, "named": named, "since": since, "hold": hold}
    return _played(folder, stops, wanted, power=power, expected=expected, **how)


def many(
    folder: Path,
    *,
    agents: int,
    steps: int,
    stops: list[int],
    broken: str | None = None,
) -> dict[str, Any]:
    """So many agents of so many steps; the n-th process is killed at its n-th point."""
    break_(broken)
    wanted = [Wanted(agent_id=f"w{n}", agent=f"walker-{steps}") for n in range(agents)]
    return _played(folder, stops, wanted, expected=None)


def _played(
    folder: Path,
    stops: list[int],
    wanted: list[Wanted],
    *,
    expected: dict[str, Any] | None,
    power: bool = False,
    **how: Any,
) -> dict[str, Any]:
    for life, stop_at in enumerate([*stops, None]):

        def body(life: int = life, stop_at: int | None = stop_at) -> None:
            if power:
                watch_syncs(folder)
            passed = live(folder, life, _agents, wanted, stop_at=stop_at, **how)
            SideLog(folder / "log", life).write("points", *passed)

        forked(body, killed=stop_at is not None)
        if SideLog(folder / "log", life).read("served"):
            break
        if power:
            cut_power(folder)
    log = SideLog(folder / "log", -1)
    points = log.read("points")
    return {
        "violations": violations(log, expected),
        "stopped": [entry.of[0] for entry in log.read("stopped")],
        "points": points[-1].of if points else [],
        "lives": life + 1,
        "effects": len(log.read("effect")),
        "quarantined": len(log.read("quarantined")),
        "messages": len(log.read("acked")),
        "ends": {entry.of[0]: json.loads(entry.of[1]) for entry in log.read("end")},
    }

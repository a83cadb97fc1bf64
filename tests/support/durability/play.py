"""Processes that live one after the other on one store, each stopped at one of its points."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

from tests.support.durability.disk import cut_power, watch_syncs
from tests.support.durability.forks import forked
from tests.support.durability.lives import in_time
from tests.support.durability.points import NO_POINTS, Points, kill
from tests.support.durability.side_log import SideLog
from tests.support.scratch import scratch

__all__ = ["Life", "play", "warm_up"]

Life: TypeAlias = Callable[[str, int, SideLog, Points], Coroutine[Any, Any, None]]
"""What a process does, given the store's URL, its own number from 0, its log and its points."""


def play(
    folder: Path,
    life: Life,
    *,
    stops: list[int],
    lives: int | None = None,
    power: bool = False,
    **where: Any,
) -> SideLog:
    """Let them live; what they have written down.

    Args:
        folder: of the store and of what they write down.
        life: what each of them does.
        stops: the n-th process is stopped at the n-th of these points; 0 = it is not.
        lives: so many processes; by default one more than `stops`, until one comes to its end, or
            has written that it `served`.
        power: the machine loses its power there; else the process is killed.
        where: options of `Points`.

    """
    for number in range(lives or len(stops) + 1):
        stop_at = (stops[number] or None) if number < len(stops) else None

        def body(number: int = number, stop_at: int | None = stop_at) -> None:
            if power:
                watch_syncs(folder)
            passed = _live(folder, life, number, stop_at, **where)
            SideLog(folder / "log", number).write("points", *passed)

        ended = forked(body, killed=stop_at is not None)
        served = ended or SideLog(folder / "log", number).read("served")
        if served and lives is None:
            break
        if power and not ended:
            cut_power(folder)
    return SideLog(folder / "log", -1)


def warm_up(life: Life) -> None:
    """Do once what is slow the first time."""
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        _live(Path(folder), life, 0, NO_POINTS)


def _live(folder: Path, life: Life, number: int, stop_at: int | None, **where: Any) -> list[str]:
    log = SideLog(folder / "log", number)

    def stop(name: str) -> None:
        log.write("stopped", name)
        kill()

    points = Points(stop_at, stop, **where)
    if stop_at != NO_POINTS:
        points.install()
    asyncio.run(in_time(life(f"sqlite:///{folder}/store.db", number, log, points)))
    return points.passed

"""Hundreds of suspended owners: `python -m tests.support.durability.suspensions`.

Or `make suspensions`. Half of the rounds are played while other processes want the CPUs, too.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.machine import machine_line
from tests.support.durability.forks import Died, Forks
from tests.support.durability.suspended import ASKED, Round, rounds_of
from tests.support.durability.suspended_judge import FIGURES, Found
from tests.support.postgres import Hosts, Server

__all__ = ["CONTROLS", "found_out", "main"]

ROUNDS_OF_A_PLAY = 20
CONTROLS = {
    "J8: nobody looks at the lease before a tool": (("durable", "before check"), "late bodies"),
    "J7: on PostgreSQL, neither epoch nor lease is checked": (
        ("after the effect", "result appended"),
        "stale writes",
    ),
}
"""Each broken build, with the points that its rule is about, and the figure that must show it."""


def _control_rounds(broken: str) -> list[Round]:
    """Rounds in which the owner is stopped where that rule matters."""
    points, _ = CONTROLS[broken]
    rounds = rounds_of(6, 1, points=points, wakes=(ASKED,))
    return [round for round in rounds if round.point in points]


def main(given: Sequence[str] | None = None) -> None:
    """Play all rounds, then the broken builds; print the table; fail if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500, help="how many are played")
    parser.add_argument("--seed", type=int, default=1, help="of all that is chosen by chance")
    parser.add_argument("--lease", type=float, default=1.0, help="seconds")
    parser.add_argument("--logs", type=Path, help="a folder in which all logs are kept")
    options = parser.parse_args(given)
    begin = time.perf_counter()
    server = Server()
    try:
        with Forks("tests.support.durability.stories", count=1) as forks:
            found = {"idle": Found(), "under load": Found()}
            for number, rounds in enumerate(_plays(options.rounds, options.seed)):
                under, load = ("under load", True) if number % 2 else ("idle", False)
                logs = options.logs and str(options.logs / f"{number:03} {under}")
                hosts = Hosts(server.url)
                played = forks.play(
                    "suspended",
                    url=hosts.url,
                    schema=hosts.schema,
                    rounds=[asdict(round) for round in rounds],
                    lease=options.lease,
                    load=load,
                    logs=logs,
                )
                hosts.close()
                found[under].add(Found(**played))
                print(f"{number}: {under}, {played['figures']}, {played['violations']}", flush=True)
            missed = [name for name in CONTROLS if not found_out(forks, server.url, name)]
    finally:
        server.remove()
    violations = [text for each in found.values() for text in each.violations]
    print("\n" + machine_line() + "\n")
    print("\n".join(_table(found)))
    print(
        f"\nseed {options.seed}: {len(violations)} violations; {len(CONTROLS)} broken builds, "
        f"{len(missed)} not found out; {time.perf_counter() - begin:.0f} s"
    )
    if violations or missed:
        raise SystemExit("\n".join([*violations[:20], *(f"not found out: {m}" for m in missed)]))


def found_out(forks: Forks, url: str, broken: str) -> bool:
    """Whether the rounds show this broken build."""
    forks.play("breaks", broken=broken)
    hosts = Hosts(url)
    try:
        found = forks.play(
            "suspended",
            url=hosts.url,
            schema=hosts.schema,
            rounds=[asdict(round) for round in _control_rounds(broken)],
            lease=0.6,
            broken=broken,
        )
    except Died as died:
        if "StoreDamaged" in str(died):  # two owners wrote over each other
            return True
        raise
    finally:
        hosts.close()
    return bool(found["figures"].get(CONTROLS[broken][1]))


def _plays(count: int, seed: int) -> Iterator[list[Round]]:
    rounds = rounds_of(count, seed)
    for first in range(0, count, ROUNDS_OF_A_PLAY):
        yield rounds[first : first + ROUNDS_OF_A_PLAY]


def _table(found: Mapping[str, Found]) -> Iterator[str]:
    """The Markdown table."""
    yield f"| | {' | '.join(found)} |"
    yield f"|---{'|---' * len(found)}|"
    counted = {under: Counter(each.figures) for under, each in found.items()}
    for figure in FIGURES:
        numbers = (f"{each[figure]:,}" for each in counted.values())
        yield f"| {figure} | {' | '.join(numbers)} |"
    for name, share in (("median", 0.5), ("99 %", 0.99), ("longest", 1.0)):
        seconds = (_quantile(each.takeovers, share) for each in found.values())
        yield f"| seconds until a takeover: {name} | {' | '.join(seconds)} |"


def _quantile(values: Sequence[float], share: float) -> str:
    if not values:
        return "-"
    return f"{sorted(values)[round(share * (len(values) - 1))]:.2f}"


if __name__ == "__main__":
    main()

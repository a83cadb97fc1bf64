"""Proof that nothing is lost: `python -m tests.support.durability.chaos`, or `make chaos`.

Processes are killed, cut off and robbed of their power at every point of a scenario; others
continue with what they left. Each figure has its control: a build with that one rule left out must
fail.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.machine import machine_line
from tests.support.durability.checks import (
    CHECKS,
    CONTROLS,
    FULL,
    SUITE,
    Row,
    Stage,
    checked,
    found_out,
)
from tests.support.durability.forks import Forks

__all__ = ["main", "picture", "table"]


def table(checks: Sequence[Row], controls: Sequence[Row]) -> Iterator[str]:
    """The Markdown tables."""
    yield "| what was done to it | times | violations | seconds |"
    yield "|---|---|---|---|"
    for row in checks:
        count = len(row.violations)
        shown = "0" if not count else f"**{count}**"
        yield f"| {row.what} | {row.plays:,} | {shown} | {row.seconds:.0f} |"
    yield ""
    yield "| control: the same on a broken build | found out after | by |"
    yield "|---|---|---|"
    for row in controls:
        after = f"{row.plays} plays" if row.violations else f"**not in {row.plays} plays**"
        by = row.violations[0].splitlines()[-1][:90] if row.violations else "-"
        yield f"| {row.what} | {after} | {escape(by).replace('|', '/')} |"


def late_line(late: Sequence[float]) -> str:
    """How late dues were noticed, the time included in which no process lived."""
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    return (
        f"{len(late):,} dues, late by {p50:.3f} s (median), {p99:.3f} s (99 %), "
        f"{late[-1]:.3f} s (worst)"
    )


def picture(checks: Sequence[Row], controls: Sequence[Row]) -> str:
    """The same as a drawing (SVG): how often it was tried, and what went wrong."""
    rows = [(row.what, row.plays, len(row.violations), False) for row in checks]
    rows += [(row.what, row.plays, len(row.violations), True) for row in controls]
    most = max(plays for _, plays, _, _ in rows)
    height = 24 * len(rows) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="980" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="22" font-weight="bold">Tries, and violations. Green: as it must be '
        "(none in the library, some in each broken build).</text>",
    ]
    for number, (what, plays, violations, control) in enumerate(rows):
        y = 40 + 24 * number
        well = (violations > 0) is control
        width = max(3, round(330 * (plays / most) ** 0.5))
        fill = ("#2e7d32" if not control else "#9ccc65") if well else "#c62828"
        said = (
            f"found out after {plays}" if control else f"{plays:,} tries, {violations} violations"
        )
        lines += [
            f'<text x="430" y="{y + 14}" text-anchor="end">{escape(what)}</text>',
            f'<rect x="440" y="{y}" width="{width}" height="18" fill="{fill}"/>',
            f'<text x="{448 + width}" y="{y + 14}">{escape(said)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def main(given: Sequence[str] | None = None) -> None:
    """Play everything, print the tables, draw the picture; fail if anything is not as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of all that is chosen by chance")
    parser.add_argument("--small", action="store_true", help="as much as the test suite plays")
    parser.add_argument("--picture", type=Path, help="an SVG file to write")
    options = parser.parse_args(given)
    begin = time.perf_counter()
    with Forks("tests.support.durability.stories") as forks:
        stage = Stage.of(forks, SUITE if options.small else FULL, options.seed)
        checks = [checked(forks, check, stage) for check in CHECKS]
        controls = [found_out(forks, broken, stage) for broken in CONTROLS]
    tried = sum(row.plays for row in checks)
    violations = [text for row in checks for text in row.violations]
    missed = [row.what for row in controls if not row.violations]
    print(machine_line() + "\n")
    print("\n".join(table(checks, controls)))
    for row in checks:
        if row.late:
            print(f"\n{row.what}: {late_line(row.late)}")
    print(
        f"\nseed {options.seed}: {len(stage.points)} points, {tried:,} stories, "
        f"{len(violations)} violations; {len(controls)} broken builds, {len(missed)} not found "
        f"out; {time.perf_counter() - begin:.0f} s"
    )
    if options.picture is not None:
        options.picture.write_text(picture(checks, controls))
    if violations or missed:
        raise SystemExit("\n".join([*violations[:20], *(f"not found out: {m}" for m in missed)]))


if __name__ == "__main__":
    main()

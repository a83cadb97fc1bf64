"""What durability costs, beside the rivals', in one run: `python -m benchmarks.durable`.

Every framework, case and durability has a process of its own, and only one runs at a time. All take
turns within a round, and what counts are ratios of one round: machines and disks are noisy. The
sync of the disk is measured in the process that waits for it. A rival that is not installed is
named and left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.compare import run_case
from benchmarks.durable_cases import OUR_LENGTHS
from benchmarks.machine import machine_line
from benchmarks.stores import STORES, OurStore

__all__ = ["Found", "render"]

Round = dict[str, Any]
"""The numbers of one round: by case and durability, such as `steps full`."""
Found = dict[str, list[Round]]
"""The rounds of each framework."""

SHORT = 10
"""Steps of the run that the budget is about; the others tell how a step's cost grows."""


def jobs(name: str) -> Iterator[tuple[str, str]]:
    """The cases of a framework, each with a durability."""
    durabilities = STORES[name].durabilities
    for durability in durabilities:
        yield "steps", durability
    yield "together", "full"
    yield "disk", durabilities[-1]
    if name == OurStore.name:
        yield "wake", "full"
        yield "memory", "full"


def one_round(name: str, options: argparse.Namespace) -> Round:
    """All cases of one framework, once."""
    results: Round = {}
    limits = ["--runs", str(options.runs), "--seconds", str(options.seconds)]
    for case, durability in jobs(name):
        arguments = [name, case, "--durability", durability, "--folder", options.folder, *limits]
        results[f"{case} {durability}"] = run_case(
            "benchmarks.durable_cases", arguments, timeout=options.timeout
        )
    return results


def measure_all(names: Sequence[str], options: argparse.Namespace) -> tuple[Found, dict[str, str]]:
    """Measure these frameworks, in turns; and why some could not be."""
    found: Found = {name: [] for name in names}
    problems: dict[str, str] = {}
    for index in range(options.rounds):
        for name in names:
            if name in problems:
                continue
            now = time.strftime("%T")
            print(f"[{now}] round {index + 1} of {options.rounds}: {name}", file=sys.stderr)
            results = one_round(name, options)
            for case, result in results.items():
                if "missing" in result:
                    problems[name] = f"not installed ({result['missing']})"
                elif "error" in result:
                    problems.setdefault(f"{name}, {case}", result["error"])
            if name not in problems:
                found[name].append(results)
    return found, problems


# ---------------------------------------------------------------------------- numbers


def number(rounds: Sequence[Round], *path: str) -> float | None:
    """The median over the rounds; None where none has it."""
    values = [value for each in rounds if (value := _at(each, path)) is not None]
    return median(values) if values else None


def per_round(
    found: Found, path: Sequence[str], best: Callable[[Sequence[float]], float]
) -> list[tuple[float, float]]:
    """Our number and the rivals' best, of each round that has both."""
    pairs = []
    for index, mine in enumerate(found[OurStore.name]):
        others = [
            rounds[index]
            for name, rounds in found.items()
            if name != OurStore.name and index < len(rounds)
        ]
        ours = _at(mine, path)
        theirs = [value for each in others if (value := _at(each, path)) is not None]
        if ours is not None and theirs:
            pairs.append((ours, best(theirs)))
    return pairs


def _at(tree: Any, path: Sequence[str]) -> float | None:
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return float(tree)


def times_faster(found: Found, *path: str) -> float | None:
    """The fastest rival's time over ours; the median of the rounds' own ratios."""
    ratios = [theirs / ours for ours, theirs in per_round(found, path, min)]
    return median(ratios) if ratios else None


def in_fsyncs(found: Found, steps: str) -> float | None:
    """A step of ours, in fsyncs of the same process; the median of the rounds' own ratios."""
    ratios = [
        step / sync
        for each in found[OurStore.name]
        if (step := _at(each, ("steps full", "steps", steps))) is not None
        and (sync := _at(each, ("steps full", "fsync")))
    ]
    return median(ratios) if ratios else None


# ---------------------------------------------------------------------------- tables


def render(found: Found, problems: dict[str, str], machine: str) -> str:
    """The tables, with what they were measured on."""
    rounds = max(map(len, found.values()), default=0)
    lines = [
        f"Machine: {machine}.",
        f"Medians of {rounds} rounds; in each round every framework ran once, in turn. A ratio is "
        "the median of the rounds' own ratios. Times are the wall clock's, but where the processor "
        "is named.",
        "",
        "### One durable step (model call and tool call) on SQLite, warm: µs",
        "",
        *_steps_table(found),
        "",
        "### What the processor does for it, without the waits for the disk: µs",
        "",
        *_by_length(found, "processor"),
        "",
        "### One durable step right after a full collection: µs",
        "",
        *_by_length(found, "cold"),
        "",
        "### Bytes on the disk after one run",
        "",
        *_disk_table(found),
        "",
        "### The budget",
        "",
        "| what | must be | is | met |",
        "|---|---|---|---|",
        *_budget(found),
        "",
        "### An agent with four messages, and waking it",
        "",
        *_agent_table(found[OurStore.name]),
    ]
    if problems:
        lines += ["", "Not measured:", "", *(f"- {what}: {why}" for what, why in problems.items())]
    return "\n".join(lines)


def _steps_table(found: Found) -> Iterator[str]:
    counts = [str(n) for n in OUR_LENGTHS]
    yield _row("", *(f"N={n}" for n in counts), "one fsync", f"100 × {SHORT} steps, steps/s")
    yield "|" + "---|" * (len(counts) + 3)
    for name, rounds in found.items():
        for durability in STORES[name].durabilities:
            steps = f"steps {durability}"
            yield _row(
                f"{name}, {durability}",
                *(_shown(number(rounds, steps, "steps", n)) for n in counts),
                _shown(number(rounds, steps, "fsync")),
                _shown(number(rounds, f"together {durability}", "steps_per_second")),
            )
    for durability in ("full", "normal"):
        steps = f"steps {durability}"
        ratios = (times_faster(found, steps, "steps", n) for n in counts)
        yield _row(f"**fastest rival / ours**, {durability}", *map(_times, ratios), "", "")


def _by_length(found: Found, what: str) -> Iterator[str]:
    """A step by length of run, in another measure than the table above."""
    counts = [str(n) for n in OUR_LENGTHS]
    yield _row("", *(f"N={n}" for n in counts))
    yield "|" + "---|" * (len(counts) + 1)
    for name, rounds in found.items():
        for durability in STORES[name].durabilities:
            steps = f"steps {durability}"
            yield _row(
                f"{name}, {durability}",
                *(_shown(number(rounds, steps, what, n)) for n in counts),
            )
    for durability in ("full", "normal"):
        ratios = (times_faster(found, f"steps {durability}", what, n) for n in counts)
        yield _row(f"**fastest rival / ours**, {durability}", *map(_times, ratios))


def _disk_table(found: Found) -> Iterator[str]:
    yield _row("", "50 steps", "200 steps", "1,000 steps", "200 / 50")
    yield "|---|---|---|---|---|"
    for name, rounds in found.items():
        case = f"disk {STORES[name].durabilities[-1]}"
        small, large, huge = (number(rounds, case, "bytes", n) for n in ("50", "200", "1000"))
        growth = f"{large / small:.1f} ×" if large and small else "-"
        yield _row(name, _shown(small), _shown(large), _shown(huge), growth)


def _budget(found: Found) -> Iterator[str]:
    rounds = found[OurStore.name]
    for durability, measure, bounds in (
        ("full", "processor", {"10": 8.0, "200": 12.0}),
        ("normal", "steps", {"10": 15.0, "200": 15.0}),
    ):
        without = " without the waits for the disk" if measure == "processor" else ""
        for n, bound in bounds.items():
            ratio = times_faster(found, f"steps {durability}", measure, n)
            what = f"a step, `{durability}`{without}, runs of {n}"
            yield _line(what, f"≤ 1/{bound:g} of the fastest rival", ratio, bound, at_least=True)
    for n in ("10", "200"):
        yield _line(f"a step, `full`, runs of {n}", "≤ 3 fsyncs", in_fsyncs(found, n), 3.0)
    together = number(rounds, "together full", "steps_per_second")
    yield _line("100 agents × 10 steps, `full`", "≥ 5,000 steps/s", together, 5000, at_least=True)
    disk = number(rounds, "disk off", "bytes", "200")
    yield _line("disk for 200 steps", "≤ 300 KB", disk and disk / 1024, 300)
    for store in ("memory", "sqlite"):
        awake = number(rounds, "memory full", f"{store}_awake")
        yield _line(f"an agent awake, {store} store", "≤ 6 KB", awake, 6)
    passive = number(rounds, "memory full", "sqlite_passive")
    yield _line("an agent that is passive, sqlite store", "0 KB", passive, 0.05)


def _line(
    what: str, must: str, value: float | None, bound: float, *, at_least: bool = False
) -> str:
    if value is None:
        return _row(what, must, "-", "not measured")
    met = value >= bound if at_least else value <= bound
    return _row(what, must, f"{value:,.1f}", "yes" if met else "**no**")


def _agent_table(rounds: Sequence[Round]) -> Iterator[str]:
    yield "| what | is |"
    yield "|---|---|"
    for store in ("memory", "sqlite"):
        for how in ("awake", "passive_with_ref", "passive"):
            kilobytes = number(rounds, "memory full", f"{store}_{how}")
            yield _row(f"{how.replace('_', ' ')}, {store} store, KB", _shown(kilobytes, 2))
    yield _row("wake it after 2 steps, ms", _shown(number(rounds, "wake full", "short"), 2))
    yield _row("wake it after 1,000 steps, ms", _shown(number(rounds, "wake full", "long"), 2))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _shown(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"**{value:.1f} ×**"


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=STORES, help="these rivals; ours always runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20, help="most timed runs of a length a round")
    parser.add_argument("--seconds", type=float, default=1.0, help="a length; 3 runs at least")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds for one process")
    parser.add_argument(
        "--folder", default=tempfile.gettempdir(), help="on the disk to be measured"
    )
    parser.add_argument("--json", type=Path, help="write all numbers there, too")
    options = parser.parse_args(given)
    names = [n for n in STORES if options.only is None or n in (*options.only, OurStore.name)]
    machine = machine_line()
    found, problems = measure_all(names, options)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "found": found}, indent=1))
    print(render(found, problems, machine))


if __name__ == "__main__":
    main()

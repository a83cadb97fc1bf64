"""From the numbers of all rounds to the Markdown that is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

__all__ = ["Line", "Measured", "budget", "render"]

Path = tuple[str, ...]
"""Where a number lies in a round: case, then keys."""


@dataclass(slots=True)
class Measured:
    """One framework: what each round brought, by case, and why there is nothing if so."""

    name: str
    versions: dict[str, str] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""

    def number(self, *path: str, round: int | None = None) -> float | None:
        """The median over the rounds, or the number of one round; None if it was not measured."""
        chosen = self.rounds if round is None else self.rounds[round : round + 1]
        found = [value for value in (_find(r, path) for r in chosen) if value is not None]
        return median(found) if found else None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the budget."""

    what: str
    must: str
    value: float | None
    shown: str
    met: bool | None
    """None where it could not be told."""


def _find(tree: Any, path: Sequence[str]) -> float | None:
    for key in path:
        if not isinstance(tree, Mapping) or key not in tree:
            return None
        tree = tree[key]
    return float(tree)


def _per_round(
    ours: Measured, others: Sequence[Measured], path: Path, best: Callable[[list[float]], float]
) -> Iterator[tuple[float, float]]:
    """Our number and the best of the others, of each round that has both."""
    for index in range(len(ours.rounds)):
        mine = ours.number(*path, round=index)
        theirs = [n for o in others if (n := o.number(*path, round=index)) is not None]
        if mine is not None and theirs:
            yield mine, best(theirs)


def times_faster(ours: Measured, rivals: Sequence[Measured], *path: str) -> float | None:
    """The fastest rival's time over ours; the median of the rounds' own ratios."""
    ratios = [theirs / mine for mine, theirs in _per_round(ours, rivals, path, min)]
    return median(ratios) if ratios else None


def times_more(ours: Measured, rivals: Sequence[Measured], *path: str) -> float | None:
    """Our rate over the fastest rival's; the median of the rounds' own ratios."""
    ratios = [mine / theirs for mine, theirs in _per_round(ours, rivals, path, max)]
    return median(ratios) if ratios else None


def growth(measured: Measured) -> float | None:
    """A late step over an early one; the median of the rounds' own ratios."""
    ratios = [
        late / early
        for index in range(len(measured.rounds))
        if (early := measured.number("growth", "early", round=index))
        and (late := measured.number("growth", "late", round=index)) is not None
    ]
    return median(ratios) if ratios else None


def import_excess(ours: Measured) -> float | None:
    """Seconds that importing us takes beyond the messages of Pydantic AI."""
    pairs = [
        (_find(r, ("import", "seconds")), _find(r, ("import_messages", "seconds")))
        for r in ours.rounds
    ]
    found = [mine - base for mine, base in pairs if mine is not None and base is not None]
    return median(found) if found else None


def clients_loaded(ours: Measured) -> list[str]:
    """The provider clients that importing us loaded."""
    return sorted({c for r in ours.rounds for c in r.get("import", {}).get("clients", [])})


# ------------------------------------------------------------------------- the budget


def budget(ours: Measured, rivals: Sequence[Measured]) -> list[Line]:
    """The lines of the budget that can be measured without a store."""
    lines = [
        _at_least(f"one step, runs of {n}", 20, times_faster(ours, rivals, "run", "steps", n))
        for n in ("10", "50", "200")
    ]
    late = growth(ours)
    lines.append(
        Line(
            "a step late in a run / early in it",
            "≤ 1.1",
            late,
            _shown(late, 2),
            None if late is None else late <= 1.1,
        )
    )
    together = times_more(ours, rivals, "concurrent", "steps_per_second")
    lines.append(_at_least("100 agents × 10 steps together", 20, together))
    excess, clients = import_excess(ours), clients_loaded(ours)
    loaded = f", loads {', '.join(clients)}" if clients else ", loads no provider client"
    lines.append(
        Line(
            "`import understudy` beyond `import pydantic_ai.messages`",
            "≤ 0.15 s, no provider client",
            excess,
            "-" if excess is None else f"{excess:.3f} s{loaded}",
            None if excess is None else excess <= 0.15 and not clients,
        )
    )
    return lines


def _at_least(what: str, bound: float, value: float | None) -> Line:
    shown = "-" if value is None else f"{value:.1f} ×"
    must = f"≥ {bound:g} × the fastest rival"
    return Line(what, must, value, shown, None if value is None else value >= bound)


# -------------------------------------------------------------------------- rendering


def render(
    measured: Sequence[Measured],
    *,
    ours: str,
    floor: str,
    machine: str,
    lengths: Sequence[int],
) -> str:
    """The tables, with what they were measured on."""
    by_name = {m.name: m for m in measured}
    mine = by_name[ours]
    rivals = [m for m in measured if m.name not in (ours, floor)]
    rounds = max((len(m.rounds) for m in measured), default=0)
    versions = {k: v for m in measured for k, v in m.versions.items()}
    lines = [
        f"Machine: {machine}.",
        "Versions: " + ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) + ".",
        f"Medians of {rounds} rounds; in each round every framework ran once, in turn. A ratio is "
        "the median of the rounds' own ratios. Times are of the processor.",
        "",
        "### One step (model call and tool call), no store, warm: µs",
        "",
        *_steps_table(measured, mine, rivals, lengths),
        "",
        "### The same, right after a full collection: µs",
        "",
        *_cold_table(measured, mine, rivals, lengths),
        "",
        "### Does a step cost more late in a run: µs",
        "",
        *_growth_table([m for m in measured if m.name in (ours, floor)], lengths),
        "",
        "### The budget",
        "",
        *_head("what", "must be", "is", "met"),
    ]
    verdict = {True: "yes", False: "**no**", None: "not measured"}
    lines += [_row(b.what, b.must, b.shown, verdict[b.met]) for b in budget(mine, rivals)]
    problems = [f"- {m.name}: {m.problem}" for m in measured if m.problem]
    if problems:
        lines += ["", "Not measured:", "", *problems]
    return "\n".join(lines)


def _steps_table(
    measured: Sequence[Measured],
    mine: Measured,
    rivals: Sequence[Measured],
    lengths: Sequence[int],
) -> Iterator[str]:
    counts = [str(n) for n in lengths]
    yield from _head(
        "framework",
        *(f"N={n}" for n in counts),
        "the fake model in it",
        "build an agent",
        "100 × 10 steps, steps/s",
        "import, ms",
    )
    for m in measured:
        seconds = m.number("import", "seconds")
        yield _row(
            m.name,
            *(_shown(m.number("run", "steps", n), 1) for n in counts),
            _shown(m.number("run", "answer"), 1),
            _shown(m.number("run", "build"), 0),
            _shown(m.number("concurrent", "steps_per_second"), 0),
            _shown(None if seconds is None else seconds * 1e3, 0),
        )
    yield _row(
        "**fastest rival / ours**",
        *(_times(times_faster(mine, rivals, "run", "steps", n)) for n in counts),
        "",
        _times(times_faster(mine, rivals, "run", "build")),
        _times(times_more(mine, rivals, "concurrent", "steps_per_second")),
        _times(times_faster(mine, rivals, "import", "seconds")),
    )


def _cold_table(
    measured: Sequence[Measured],
    mine: Measured,
    rivals: Sequence[Measured],
    lengths: Sequence[int],
) -> Iterator[str]:
    counts = [str(n) for n in lengths]
    yield from _head("framework", *(f"N={n}" for n in counts))
    for m in measured:
        yield _row(m.name, *(_shown(m.number("run", "cold", n), 1) for n in counts))
    ratios = (_times(times_faster(mine, rivals, "run", "cold", n)) for n in counts)
    yield _row("**fastest rival / ours**", *ratios)


def _growth_table(measured: Sequence[Measured], lengths: Sequence[int]) -> Iterator[str]:
    first, last = str(min(lengths)), str(max(lengths))
    yield from _head(
        "", "step 10 to 20", "step 500 to 1000", "late / early", f"N={last} / N={first}"
    )
    for m in measured:
        short, long = m.number("run", "steps", first), m.number("run", "steps", last)
        yield _row(
            m.name,
            _shown(m.number("growth", "early"), 1),
            _shown(m.number("growth", "late"), 1),
            _shown(growth(m), 2),
            _shown(long / short if long is not None and short else None, 2),
        )


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _times(value: float | None) -> str:
    return "-" if value is None else f"**{value:.1f} ×**"

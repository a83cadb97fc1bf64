"""From the numbers of all rounds to the tables that are printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.service.cases import COUNTED, COUNTED_OF, REST, Numbers
from benchmarks.service.desk import BARE, OURS

__all__ = ["Results", "render"]

Found = dict[str, Numbers]
"""What one measurement of an app brought, by level."""


@dataclass(slots=True)
class Results:
    """What was measured."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: tuple[str, ...]
    rounds: dict[tuple[str, str], list[Found | None]] = field(default_factory=dict)
    """By the kind of store and the name of the app; None for a round that failed."""
    problems: dict[str, str] = field(default_factory=dict)

    def number(self, kind: str, name: str, level: str, what: str) -> float | None:
        """The median over the rounds; None if it was not measured."""
        values = [value for value in self._each(kind, name, level, what) if value is not None]
        return median(values) if values else None

    def of_ours(self, kind: str, name: str, level: str) -> float | None:
        """The processor time of a run, over that of ours; the median of the rounds' own ratios."""
        theirs = self._each(kind, name, level, "processor")
        ours = self._each(kind, OURS, level, "processor")
        ratios = [their / our for their, our in zip(theirs, ours, strict=False) if their and our]
        return median(ratios) if ratios else None

    def _each(self, kind: str, name: str, level: str, what: str) -> list[float | None]:
        rounds = self.rounds.get((kind, name), [])
        return [found and found.get(level, {}).get(what) for found in rounds]  # type: ignore[misc]


def render(results: Results, *, machine: str, versions: Mapping[str, str], command: str) -> str:
    """The tables, with what they were measured on."""
    rounds = max(map(len, results.rounds.values()), default=0)
    lines = [
        f"Machine: {machine}.",
        "Versions: " + ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) + ".",
        f"Medians of {rounds} rounds of `{command}`; in each round every app ran once, in turn.",
        "",
        "### One run: two requests, six model calls, five tool calls, one approval",
        "",
        *_runs(results),
    ]
    alone = f"{COUNTED_OF}{COUNTED[0]}"
    if results.number("PostgreSQL", OURS, alone, "statements") is not None:
        lines += ["", "### What one run asks of PostgreSQL", "", *_traffic(results)]
    if any(results.number(kind, OURS, REST, "app") is not None for kind in results.kinds):
        lines += ["", "### While nobody calls", "", *_rest(results)]
    if results.problems:
        lines += ["", "Not measured:", ""]
        lines += [f"- {what}: {why}" for what, why in results.problems.items()]
    return "\n".join(lines)


def _runs(results: Results) -> Iterator[str]:
    yield from _head(
        *("store", "load", "app", "runs/s", "CPU of the app, ms", "of the database, ms"),
        *("both, of ours", "p50, ms", "p99, ms", "errors", "late", "written, KB", "rows"),
    )
    for kind in results.kinds:
        for level in results.levels:
            for name in results.names:
                of = _Cells(results, kind, name, level)
                ratio = None if name == BARE else results.of_ours(kind, name, level)
                yield _row(
                    *(kind, level, name),
                    *(of("runs_per_second", 1), of("app", 1), of("database", 1)),
                    "-" if ratio is None else f"**{ratio:.1f} ×**",
                    *(of("p50", 0), of("p99", 0), of("errors", 0), of("late", 0)),
                    *(of("written", 1, by=1000), of("rows", 1)),
                )


def _traffic(results: Results) -> Iterator[str]:
    whats = ("statements", "commits", "inserted", "updated", "deleted")
    yield from _head("load", "app", *whats[:2], *(f"rows {what}" for what in whats[2:]))
    for level in COUNTED:
        for name in results.names:
            if name != BARE:
                of = _Cells(results, "PostgreSQL", name, f"{COUNTED_OF}{level}")
                yield _row(str(level), name, *(of(what, 1) for what in whats))


def _rest(results: Results) -> Iterator[str]:
    yield from _head(
        *("store", "app", "CPU of the app, ms a second", "of the database, ms a second"),
        "memory, MB",
    )
    for kind in results.kinds:
        for name in results.names:
            of = _Cells(results, kind, name, REST)
            yield _row(kind, name, of("app", 1), of("database", 1), of("memory", 0, by=1e6))


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of one row."""

    results: Results
    kind: str
    name: str
    level: str

    def __call__(self, what: str, digits: int, by: float = 1.0) -> str:
        value = self.results.number(self.kind, self.name, self.level, what)
        return "-" if value is None else f"{value / by:,.{digits}f}"


def _head(*cells: str) -> Sequence[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"

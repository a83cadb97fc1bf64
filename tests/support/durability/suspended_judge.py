"""What must hold of owners that were stopped past their lease, read from the log of each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.durability.side_log import Entry

__all__ = ["FIGURES", "Found", "Judge"]

FIGURES = (
    "rounds",
    "rounds without a stop",
    "rounds in which nobody claimed",
    "calls",
    "takeovers",
    "doubts",
    "doubts of calls that were not entered",
    "late bodies, under way",
    "effects twice, under way",
    "late bodies",
    "effects twice",
    "effects lost",
    "stale writes",
    "needless doubts",
    "not taken over",
    "slow takeovers",
)
"""What is counted. From the late bodies on, each one is a violation."""
SLOW = 2.0
"""Seconds that a takeover may take longer than the lease."""


@dataclass(slots=True)
class Found:
    """What came of the rounds."""

    figures: dict[str, int] = field(default_factory=dict)
    takeovers: list[float] = field(default_factory=list)
    """Seconds from the stop of an owner to each claim of its agents."""
    violations: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Add what came of other rounds."""
        self.figures = dict(Counter(self.figures) + Counter(other.figures))
        self.takeovers += other.takeovers
        self.violations += other.violations


@dataclass(frozen=True, slots=True)
class _Body:
    """One time that the body of a call was entered."""

    key: str
    agent: str
    what: str
    host: str
    epoch: int
    checked: float
    lease_end: float
    """As its host knew it at the check."""
    entered: float


class Judge:
    """Counts, and names what is wrong.

    A body that was checked in time may be entered late, and its effect may come late, when its
    owner is stopped behind the check: no store closes that gap (J8). Such calls are counted as
    under way. All else that comes late is a violation.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self.found = Found()

    def missed(self, round: Any) -> None:
        """Everything was done before the owner was stopped."""
        self._count("rounds without a stop")

    def stale(self, violations: Iterable[str]) -> None:
        """Records of an epoch behind those of a later one."""
        for violation in violations:
            self._wrong("stale writes", violation)

    def judge(
        self,
        round: Any,
        ids: Sequence[str],
        entries: Sequence[Entry],
        *,
        stopped: float,
        taken_from: str | None,
        released: Collection[str],
    ) -> None:
        """Look at one round.

        Args:
            round: what was done in it, for messages.
            ids: of its agents.
            entries: of the log, in their order.
            stopped: when the owner was stopped.
            taken_from: the owner, if the other host was to take over.
            released: agents that the owner had given up before it was stopped.

        """
        self._count("rounds")
        claims = [e.of for e in entries if e.what == "claimed" and e.of[0] in ids]
        bodies = [_body(e.of) for e in entries if e.what == "enter" and e.of[1] in ids]
        in_time = self._late(round, bodies, claims)
        self._effects(round, ids, bodies, in_time, entries, claims)
        self._stale(round, ids, claims, entries)
        doubts = self._doubts(ids, entries)
        if taken_from is not None:
            left = [id for id in ids if id not in released]
            self._takeovers(round, left, claims, taken_from, stopped)
            return
        self._count("rounds in which nobody claimed")
        told = Counter(e.of[1] for e in entries if e.what == "told" and e.of[0] in ids)
        if doubts or set(told) != {"Completed"}:
            what = f"nobody claimed anything, and yet: {dict(told)}, {doubts} doubts"
            self._wrong("needless doubts", f"{what}; {round}")

    def _late(
        self, round: Any, bodies: Sequence[_Body], claims: Sequence[Sequence[str]]
    ) -> set[tuple[str, int]]:
        """The bodies that were checked in time."""
        in_time = set()
        for body in bodies:
            self._count("calls")
            later = [float(c[3]) for c in claims if c[0] == body.agent and int(c[1]) > body.epoch]
            end = min([*later, body.lease_end])
            if body.checked > end:
                late = f"{body.what} of {body.agent} on {body.host}, {body.checked - end:.3f} s"
                self._wrong("late bodies", f"late: {late}; {round}")
                continue
            in_time.add((body.key, body.epoch))
            if body.entered > end:
                self._count("late bodies, under way")
        return in_time

    def _effects(
        self,
        round: Any,
        ids: Sequence[str],
        bodies: Sequence[_Body],
        in_time: set[tuple[str, int]],
        entries: Sequence[Entry],
        claims: Sequence[Sequence[str]],
    ) -> None:
        effects = [e.of for e in entries if e.what == "effected" and e.of[1] in ids]
        counted = Counter(key for key, *_ in effects)
        for key, times in counted.items():
            if times == 1:
                continue
            mine = sorted((int(epoch), float(at)) for k, _, epoch, at in effects if k == key)
            (first, at), *others = mine
            agent = next(body.agent for body in bodies if body.key == key)
            claimed = [float(c[3]) for c in claims if c[0] == agent and int(c[1]) == others[0][0]]
            if times == 2 and (key, first) in in_time and claimed and at > claimed[0]:
                self._count("effects twice, under way")
            else:
                self._wrong("effects twice", f"{key} took effect {times} times: {mine}; {round}")
        done = {(body.agent, body.what) for body in bodies if counted[body.key]}
        missing = {(id, what) for id in ids for what in ("one", "two", "three")} - done
        if missing:
            self._wrong("effects lost", f"never done: {sorted(missing)}; {round}")

    def _stale(
        self,
        round: Any,
        ids: Sequence[str],
        claims: Sequence[Sequence[str]],
        entries: Sequence[Entry],
    ) -> None:
        for agent, epoch, host, began in (e.of for e in entries if e.what == "wrote"):
            later = [c for c in claims if c[0] == agent and int(c[1]) > int(epoch)]
            if agent in ids and any(float(c[3]) < float(began) for c in later):
                self._wrong("stale writes", f"{host} wrote in epoch {epoch} of {agent}; {round}")

    def _doubts(self, ids: Sequence[str], entries: Sequence[Entry]) -> int:
        entered: set[str] = set()
        doubts = 0
        for entry in entries:
            if entry.what == "enter":
                entered.add(entry.of[0])
            elif entry.what == "doubt" and entry.of[0] in ids:
                doubts += 1
                self._count("doubts")
                if entry.of[1] not in entered:
                    self._count("doubts of calls that were not entered")
        return doubts

    def _takeovers(
        self,
        round: Any,
        ids: Sequence[str],
        claims: Sequence[Sequence[str]],
        owner: str,
        stopped: float,
    ) -> None:
        for id in ids:
            after = [float(c[3]) - stopped for c in claims if c[0] == id and c[2] != owner]
            if not after:
                self._wrong("not taken over", f"{id}; {round}")
                continue
            self._count("takeovers")
            self.found.takeovers.append(min(after))
            if min(after) > self._lease + SLOW:
                self._wrong("slow takeovers", f"{id} after {min(after):.1f} s; {round}")

    def _count(self, what: str) -> None:
        assert what in FIGURES, what
        self.found.figures[what] = self.found.figures.get(what, 0) + 1

    def _wrong(self, figure: str, what: str) -> None:
        self._count(figure)
        self.found.violations.append(what)


def _body(of: Sequence[str]) -> _Body:
    key, agent, what, host, epoch, checked, lease_end, entered = of
    return _Body(
        key, agent, what, host, int(epoch), float(checked), float(lease_end), float(entered)
    )

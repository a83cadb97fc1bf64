"""What is checked, how often, and with which broken build each check must fail."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.support.durability.forks import Died, Forks

__all__ = [
    "CHECKS",
    "CONTROLS",
    "FULL",
    "SUITE",
    "Check",
    "Row",
    "Size",
    "Stage",
    "checked",
    "found_out",
]

Plays = list[dict[str, Any]]
HELD = {"named": "before commit", "hold": 0.02, "followed": True}
"""The store stands still right before a commit: what is shown by then was shown too early."""

HELD_WAITS = {"named": "before commit", "hold": 0.02}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is played."""

    every: int
    """Of the points at which a process is killed, every n-th."""
    twice: int
    """So many pairs of points: the recovery is killed too."""
    agents: int
    kills: int
    rounds: int
    """Of the check with many agents."""


AIMED = 6
"""So many plays of a control are aimed at its point. The first one should do."""
SUITE = Size(every=19, twice=12, agents=12, kills=6, rounds=1)
FULL = Size(every=1, twice=400, agents=100, kills=20, rounds=3)


@dataclass(frozen=True, slots=True)
class Stage:
    """What plays are made from: the scenario as it goes when nobody disturbs it."""

    points: Sequence[str]
    ends: Mapping[str, Any]
    size: Size
    random: random.Random

    @classmethod
    def of(cls, forks: Forks, size: Size, seed: int) -> Stage:
        """Play it once.

        Raises:
            AssertionError: if even that goes wrong.

        """
        whole = forks.play("crashes", stops=[])
        assert whole["violations"] == []
        # A stable order, so that one seed names the same plays in each run.
        return cls(whole["points"], whole["ends"], size, random.Random(seed))

    def crashes(self, **options: Any) -> Plays:
        """One crash at every n-th point, from a point on that the seed chooses."""
        every = self.size.every
        first = 1 + self.random.randrange(every)
        stops = range(first, len(self.points) + 3, every)
        return [{"stops": [stop], "expected": self.ends, **options} for stop in stops]

    def pairs(self) -> Plays:
        """A crash, and another one in the recovery; in some, a third one."""
        last = len(self.points)
        plays = []
        for number in range(self.size.twice):
            stops = [self.random.randint(1, last) for _ in range(2 + (number % 4 == 0))]
            plays.append({"stops": stops, "expected": self.ends})
        return plays

    def aimed(self, nth: Sequence[int], **options: Any) -> Plays:
        """A crash at a point of one name, when another one was passed for the n-th time."""
        stops = [self.random.choice(nth) for _ in range(AIMED)]
        return [{"stops": [stop], "expected": self.ends, **options} for stop in stops]

    def crowds(self) -> Plays:
        """Many agents, and kills at points that the seed chooses, round by round."""
        size, plays = self.size, []
        for _ in range(self.size.rounds):
            most = 2 * size.agents * 160 // (size.kills + 1)
            stops = [self.random.randint(1, most) for _ in range(size.kills)]
            plays.append({"agents": size.agents, "steps": 10, "stops": stops})
        return plays

    def waits(self, **options: Any) -> Plays:
        """A kill at each point of a tool that sleeps and waits, or every sixth one."""
        step = 1 if self.size.every == 1 else 6
        stops = range(1 + self.random.randrange(step), 100, step)
        return [{"stops": [stop], **options} for stop in stops]

    def payments(self, **options: Any) -> Plays:
        """A kill at each point of a payment whose check is asked, or every fifth one."""
        step = 1 if self.size.every == 1 else 5
        stops = range(1 + self.random.randrange(step), 110, step)
        return [{"stops": [stop], **options} for stop in stops]

    def left_alone(self) -> Plays:
        """Kills at moments that the seed chooses, while things become due."""
        plays = 1 if self.size.every > 1 else 40
        return [{"seed": self.random.randrange(10**6), "kills": 4} for _ in range(plays)]

    def after_an_answer(self, **options: Any) -> Plays:
        """A kill at each point behind an answer, or every second one."""
        step = 1 if self.size.every == 1 else 4
        return [{"stop_at": stop, **options} for stop in range(1, 50, step)]


@dataclass(frozen=True, slots=True)
class Check:
    """A story, and the plays of it in which nothing may go wrong."""

    what: str
    story: str
    plays: Callable[[Stage], Plays]


CHECKS = (
    Check("kill -9 at every point", "crashes", Stage.crashes),
    Check("held before a commit, then killed", "crashes", lambda s: s.crashes(**HELD)),
    Check("the same, with a reader of its events", "crashes", lambda s: s.crashes(followed=True)),
    Check("the host shuts down at every point", "crashes", lambda s: s.crashes(shutdown=True)),
    Check("the power is cut at every point", "crashes", lambda s: s.crashes(power=True)),
    Check("killed again during the recovery", "crashes", Stage.pairs),
    Check("many agents, killed at random", "many", Stage.crowds),
    Check("one answer, from 8 threads, after a kill", "answered_again", Stage.after_an_answer),
    Check(
        "an old copy of the file comes back",
        "came_back",
        lambda s: s.after_an_answer(by="restore"),
    ),
    Check(
        "an export comes back in another store",
        "came_back",
        lambda s: s.after_an_answer(by="import"),
    ),
    Check("a timer and a webhook, killed at every point", "waited", Stage.waits),
    Check("the same, with a late webhook", "waited", lambda s: s.waits(late=True)),
    Check("the same, held before a commit", "waited", lambda s: s.waits(**HELD_WAITS)),
    Check("the same, and the power is cut", "waited", lambda s: s.waits(power=True)),
    Check("a payment whose answer is lost, killed at every point", "settled", Stage.payments),
    Check("the same, and the power is cut", "settled", lambda s: s.payments(power=True)),
    Check("dues that nobody looks after, killed at random", "left_alone", Stage.left_alone),
    Check("a second runtime on one file", "second_runtime", lambda _: [{}]),
    Check("an owner of long ago writes on", "stale_writer", lambda _: [{}]),
    Check("a lease ends right before a tool", "lapsed", lambda _: [{}]),
    Check("commits whose answer got lost", "unknown_commits", lambda _: [{}]),
)


Aim: TypeAlias = tuple[str, Callable[[Stage], Plays]]


def _aimed(named: str, *, since: str = "", nth: Sequence[int] = (1,), **options: Any) -> Aim:
    options |= {"named": named, "since": since or named}
    return "crashes", lambda stage: stage.aimed(nth, **options)


def _shown(since: str, *, nth: Sequence[int] = (1,), **options: Any) -> Aim:
    """The store stands still right before a commit: what is shown then is shown too early."""
    return _aimed("before commit", since=since, nth=nth, hold=0.02, **options)


def _of_a_wait(since: str) -> Aim:
    plays = [{"stops": [1], "since": since, **HELD_WAITS} for _ in range(AIMED)]
    return "waited", lambda _: plays


CONTROLS: dict[str, Aim] = {
    "J1: a run that is decided to end asks the model again": _aimed("before write run_ended"),
    "J2: a reply is accepted before the results that it saw are durable": _shown(
        "after append propagated", nth=(1, 2, 3)
    ),
    "J3: a tool is entered before its start is durable": _shown(
        "after append started", nth=(1, 2, 3)
    ),
    "J4: a call that was cut off runs again": _aimed("after effect of book", nth=(1, 2, 3)),
    "J4: a doubt does not bind the next call that equals it": _aimed("before effect of mail"),
    "J4: a doubt binds each call of its tool": _aimed("before effect of mail"),
    "J5: an answer outlives the life in which it was given": (
        "came_back",
        lambda s: s.after_an_answer(by="restore"),
    ),
    "J6: whoever comes becomes the owner": ("second_runtime", lambda _: [{}]),
    "J7: the epoch is not checked": ("stale_writer", lambda _: [{}]),
    "J7: after an import, what was started is not in doubt": (
        "came_back",
        lambda s: s.after_an_answer(by="import"),
    ),
    "J8: nobody looks at the lease before a tool": ("lapsed", lambda _: [{}]),
    "J11: a recovered parent starts another child": _aimed("after append child:started"),
    "J13: any cancellation makes a run cancelled": _aimed(
        "before effect of stamp", shutdown=True, hold=0.05
    ),
    "J14: a message is acknowledged before it is durable": _shown("after append message_queued"),
    "J14: a repeated message is another one": _aimed(
        "after commit", since="before write .*message_queued"
    ),
    "J16: an outcome is told before it is durable": _shown(
        "after append run_ended",
        nth=(3, 4),  # runs that were resumed; nobody may wait yet for the end of the first two
    ),
    "J16: events are told before they are durable": _shown(
        "after append reply", nth=(1, 2, 3), followed=True
    ),
    "J16: a commit of unknown outcome is not read back": ("unknown_commits", lambda _: [{}]),
    "J21: the index does not know when an agent is due": ("left_alone", Stage.left_alone),
    "J21: silence approves": ("left_alone", Stage.left_alone),
    "T11: what is done once is done in each run of the tool": ("waited", lambda s: s.waits()),
    "J22: a token is handed out before it is durable": _of_a_wait("after append token_made"),
    "J22: an answer is told before it is durable": _of_a_wait("after append point_answered"),
    "T15: what a check does not find too early did not happen": ("settled", Stage.payments),
    "T15: a call in doubt runs again when its check is due": ("settled", Stage.payments),
    "a sync is dropped": _aimed("before effect of report", power=True),
    "a commit is acknowledged before it is made": _aimed("before effect of report"),
}
"""Each broken build, with the plays of which one must go wrong."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came of a check, or of a control."""

    what: str
    plays: int
    """How many were played; of a control, until the first one went wrong."""
    violations: list[str]
    seconds: float
    late: list[float] = field(default_factory=list)
    """Seconds by which each due was noticed too late."""


def checked(forks: Forks, check: Check, stage: Stage) -> Row:
    """Play all of it."""
    begin = time.perf_counter()
    plays = check.plays(stage)
    found: list[str] = []
    late: list[float] = []
    for arguments, verdict in zip(plays, forks.play_all(check.story, plays), strict=True):
        shown = {key: value for key, value in arguments.items() if key != "expected"}
        found += [f"{shown} {verdict.get('stopped')}: {text}" for text in verdict["violations"]]
        late += verdict.get("late", [])
    return Row(check.what, len(plays), found, time.perf_counter() - begin, sorted(late))


def found_out(forks: Forks, broken: str, stage: Stage) -> Row:
    """Play with this broken build until something goes wrong.

    Raises:
        Died: if the build cannot be made.

    """
    forks.play("breaks", broken=broken)
    begin = time.perf_counter()
    story, make = CONTROLS[broken]
    played = 0
    for violations in _violations(forks, story, make(stage), broken):
        played += 1
        if violations:
            return Row(broken, played, violations, time.perf_counter() - begin)
    return Row(broken, played, [], time.perf_counter() - begin)


def _violations(forks: Forks, story: str, plays: Plays, broken: str) -> Iterator[list[str]]:
    for arguments in plays:
        try:
            yield forks.play(story, broken=broken, **arguments)["violations"]
        except Died as died:  # a process that hangs or raises is found out, too
            if any(error in str(died) for error in ERRORS_OF_A_BUILD):
                raise
            yield [str(died)[-500:]] if _is_sound(forks, story, arguments) else []


ERRORS_OF_A_BUILD = ("AttributeError", "NameError", "TypeError")
"""By these a build fails that no longer fits the library: that is no proof of the rule."""


def _is_sound(forks: Forks, story: str, arguments: Mapping[str, Any]) -> bool:
    """Whether nothing is wrong where no rule is left out: not the machine, for one."""
    try:
        return not forks.play(story, **arguments)["violations"]
    except Died:
        return False

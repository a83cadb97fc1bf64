"""Plays of three hosts: aimed rounds, every point in turn, callers at random; broken builds."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.durability.any_host import ASKER_POINTS, OWNER_POINTS, TAKER_POINTS, Setting
from tests.support.durability.broken_hosts import HOSTS_BROKEN
from tests.support.durability.callers import Callers
from tests.support.durability.fleet import SOON, Fleet, Stuck, Wrong
from tests.support.durability.forks import Forks
from tests.support.durability.hosts import stale_records
from tests.support.durability.rounds import LEASE, ROUNDS, SETTINGS, posted
from tests.support.postgres import Hosts

__all__ = ["CONTROLS", "any_host", "found_out", "points_of"]

DRAINS = "hosts that drain one after the other"
"""What `CONTROLS` calls the callers at random while hosts drain, and nothing else happens."""
CALLS_AT_LEAST = 50
"""Of callers at random."""
CALLS = ("run", "send", "steer", "cancel", "pause")


@dataclass(frozen=True, slots=True)
class Control:
    """The round that must find a broken build, or `DRAINS`, and what that says: a pattern."""

    round: str
    says: str


TWICE = "a call was entered twice, and no host was away"
UNANSWERED = r"a call hangs: .*; posted: \[\(\d+, \d+, 'send', \d+, None, None\)\]"
NOT_ENDED = r"a call hangs: _handed_over, .* > absent, .*; not at rest: \[\('t', 'open'"
CONTROLS: Mapping[str, Control] = {
    "J6: an agent that runs may be taken": Control("an agent that runs", TWICE),
    "J6: whether an agent may be taken is judged before it is taken": Control(
        "an agent that is judged", TWICE
    ),
    "J6: a halt with calls under way counts as rest": Control(
        "an agent that is halted", "an agent was taken while a call of it went on"
    ),
    "J6: the loser keeps its copy": Control("a copy that is lost", "tells of .* what is over"),
    "J70: a call that is made again has another id": Control(
        "an owner who has not replied", "is the input of 2 runs"
    ),
    "J70: a reply precedes its commit": Control(
        "an owner who has not committed", "is kept 0 times, and begun 0 times"
    ),
    "J70: a call is deleted before it is done": Control(
        "an asker and an owner who die", "is kept 0 times, and begun 0 times"
    ),
    "J70: a cancel does not name its run": Control("a cancel that comes late", "who cancels"),
    "J70: nobody looks after listening again": Control(
        "what was posted while nobody listened", UNANSWERED
    ),
    "J70: nobody looks but when told": Control("an owner who never reads it", UNANSWERED),
    "J53: a host that drains hands nothing over": Control("a run that is handed over", NOT_ENDED),
    "J53: a host that drains waits for no call": Control(
        DRAINS, f"{TWICE}|in doubt, and no host was away"
    ),
    "J53: who is given an agent does not go on with it": Control(
        "a run that is handed over", NOT_ENDED
    ),
    "J53: a host that drains takes agents": Control(
        "a call at a host that drains", "drains, and has begun"
    ),
    "J21: each host goes by the clock of its machine": Control(
        "clocks that are wrong", "some come an hour early"
    ),
}
"""By broken build."""
ABSENT = 2.0
"""Seconds after which an answer that a broken build never gives counts as absent. No sound build is
held to it."""
UNTIL_FOUND = 60.0
"""Seconds for which callers at random look for what is wrong with a broken build, at most."""


def points_of(count: int, seed: int) -> list[tuple[str, str, str, str, float | None]]:
    """So many rounds at the points in turn: the call, who stops, where, how, and how long.

    The pauses are those below a lease, and those above.
    """
    chance = random.Random(seed)
    places = [("asker", point) for point in ASKER_POINTS]
    places += [("owner", point) for point in OWNER_POINTS]
    whole = [(*place, action) for action in ("kill", "stop") for place in places]
    chance.shuffle(whole)
    rounds: list[tuple[str, str, str, str, float | None]] = []
    for number in range(count):
        who, point, action = whole[number % len(whole)]
        pause = chance.choice((0.2, 1.6)) if action == "stop" else None
        call = chance.choice(("run", "send", "steer") if "commit" in point else CALLS)
        rounds.append((call, who, point, action, pause))
    return rounds


def any_host(
    folder: Path,
    *,
    url: str,
    schema: str,
    seed: int,
    named: str | None = None,
    points: list[tuple[str, str, str, str, float | None]] | None = None,
    seconds: float = 0.0,
    drains_alone: bool = False,
    agents: int = 6,
    absent: float = SOON,
    broken: str | None = None,
    by_socket: bool = False,
) -> dict[str, Any]:
    """Three hosts and their callers.

    Args:
        named: play this round.
        points: play these rounds, one after the other.
        seconds: play callers at random for so long at least, while hosts stop, die, drain and do
            not hear.
        drains_alone: the hosts only drain: so none is ever away.
        agents: how many those have.
        absent: seconds after which an answer that a round is about does not come.
        broken: the build that plays it.
        by_socket: whether hosts call each other by sockets.

    """
    if broken is not None:
        HOSTS_BROKEN[broken]()
    chance = random.Random(seed)
    others = {"lease": LEASE, **SETTINGS.get(named or "", {})} if named or drains_alone else {}
    setting = Setting(url=url, schema=schema, has_peers=by_socket, **others)
    fleet = Fleet(setting, folder, chance, absent=absent, is_over_when_wrong=broken is not None)
    callers = Callers(fleet, chance)
    try:
        fleet.open()
        if named is not None:
            fleet.play([ROUNDS[named](callers)])
        for number, point in enumerate(points or ()):
            try:
                fleet.play([posted(callers, *point, id=f"t{number}")])
            except Stuck as stuck:
                raise Stuck(f"{point}: {stuck}") from None
        if seconds:
            _at_random(fleet, callers, seconds, agents, drains_alone=drains_alone)
        callers.judge()
        fleet.end()
    except Stuck as stuck:
        fleet.violations.append(str(stuck))
    except Wrong:
        pass
    finally:
        fleet.destroy()
    fleet.violations += stale_records(url, schema)
    return {
        "violations": fleet.violations,
        "figures": {
            "calls": callers.asked,
            "killed": fleet.kills,
            "stopped": fleet.stops,
            "stopped past the lease": fleet.long_stops,
            "drained": fleet.drains,
            "doubts": callers.doubts,
        },
    }


def _at_random(
    fleet: Fleet, callers: Callers, seconds: float, agents: int, *, drains_alone: bool
) -> None:
    chance = callers.chance
    points = (*ASKER_POINTS, *OWNER_POINTS, *TAKER_POINTS)
    end = time.monotonic() + seconds
    next_fault = [time.monotonic()]

    def is_over() -> bool:
        faults = fleet.drains if drains_alone else fleet.kills + fleet.stops
        return time.monotonic() > end and callers.asked >= CALLS_AT_LEAST and faults > 0

    def drain() -> None:
        # Two others are there for what it gives up: none of them has a stop before it.
        for name in fleet.lives():
            fleet.arm(name, "nowhere", "stop", pause=0.0)
        if len(fleet.running()) == 3:
            fleet.drain(chance.choice(fleet.running()))

    def trouble() -> None:
        now = time.monotonic()
        callers.check_entered()
        if is_over() or now < next_fault[0] or len(fleet.running()) < 3 or fleet.is_draining:
            return
        next_fault[0] = now + chance.uniform(0.1, 0.6)
        if drains_alone or chance.random() < 0.15:
            drain()
            return
        if chance.random() < 0.15:
            fleet.cut_ears()
            return
        action, pause = chance.choice((("kill", None), ("stop", 0.1), ("stop", 0.3), ("stop", 1.5)))
        fleet.arm(
            chance.choice(fleet.running()),
            chance.choice(points),
            action,
            pause=pause,
            nth=chance.randrange(1, 4),
        )

    fleet.play(
        [callers.user(f"t{n}", is_over) for n in range(agents)],
        often=trouble,
    )
    fleet.until(lambda: not fleet.is_draining, "no host drains any more")


def found_out(forks: Forks, url: str, broken: str, seed: int) -> list[str]:
    """What its round shows of a broken build, if it is what it must show."""
    control, hosts = CONTROLS[broken], Hosts(url)
    try:
        found = forks.play(
            "any_host",
            url=hosts.url,
            schema=hosts.schema,
            seed=seed,
            absent=ABSENT,
            broken=broken,
            **(
                {"seconds": UNTIL_FOUND, "drains_alone": True}
                if control.round == DRAINS
                else {"named": control.round}
            ),
        )
    finally:
        hosts.close()
    violations: list[str] = found["violations"]
    said = [each for each in violations if re.search(control.says, each)]
    assert said, f"{control.says!r} is in none of {violations}"
    return said

"""Rounds in which a host stops at one point of a call, and builds that are broken there."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.durability.any_host import ASKER_POINTS, OWNER_POINTS, TAKER_POINTS, Setting
from tests.support.durability.broken_hosts import HOSTS_BROKEN
from tests.support.durability.callers import Callers
from tests.support.durability.fleet import SOON, Fleet, Script, Stuck, Wrong
from tests.support.durability.forks import Forks
from tests.support.durability.hosts import stale_records
from tests.support.postgres import Hosts

__all__ = ["CONTROLS", "ROUNDS", "SETTINGS", "any_host", "found_out", "points_of"]

Round = Callable[[Callers], Script]
ROUNDS: dict[str, Round] = {}
"""By name; each is about one thing that must not be left out."""
SETTINGS: Mapping[str, dict[str, Any]] = {
    "what was posted while nobody listened": {"beat": 1000.0, "patience": 1000.0},
    "an owner who never reads it": {"sweep": None},
    "an owner who has not replied": {"sweep": None},
}
"""Of the rounds that need others. In none of them a lease has to run out: who is killed is known to
be dead, by whoever starts in its place."""
LEASE = 30.0


@dataclass(frozen=True, slots=True)
class Control:
    """The round that must find a broken build, and what that says: a pattern."""

    round: str
    says: str


TWICE = "a call was entered twice, and no host was away"
UNANSWERED = r"a call hangs: .*; posted: \[\(\d+, \d+, 'send', \d+, None, None\)\]"
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
}
"""By broken build."""
ABSENT = 2.0
"""Seconds after which an answer that a broken build never gives counts as absent. No sound build is
held to it."""


def _round(name: str) -> Callable[[Round], Round]:
    def keep(round: Round) -> Round:
        ROUNDS[name] = round
        return round

    return keep


@_round("an agent that runs")
def _runs(callers: Callers) -> Script:
    owner, asker, _ = callers.hosts()
    held, other = callers.prompt("hold"), callers.prompt("do")
    run = callers.run(owner, "t", held)
    yield callers.is_entered(held)
    asked = callers.run(asker, "t", other)
    yield lambda: is_posted(callers.fleet) or callers.times_entered(held) > 1
    callers.release(held)
    yield from callers.completed("t", held, run)
    yield from callers.completed("t", other, asked)


@_round("an agent that is judged")
def _judged(callers: Callers) -> Script:
    owner, taker, _ = callers.hosts()
    fleet = callers.fleet
    first, held, other = callers.prompt("do"), callers.prompt("hold"), callers.prompt("do")
    yield from callers.completed("t", first, callers.run(owner, "t", first))
    yield lambda: may_be_taken(fleet)
    fleet.arm(taker, "judged", "stop", pause=None)
    asked = callers.run(taker, "t", other)
    yield lambda: fleet.is_stopped(taker)
    run = callers.run(owner, "t", held)
    yield callers.is_entered(held)
    fleet.wake(taker)
    yield lambda: is_posted(fleet) or callers.times_entered(held) > 1
    callers.release(held)
    yield from callers.completed("t", held, run)
    yield from callers.completed("t", other, asked)


@_round("an agent that is halted")
def _halted(callers: Callers) -> Script:
    """A call of it goes on, and comes to its end."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    halted, other = callers.prompt("halt"), callers.prompt("do")
    run = callers.run(owner, "t", halted)
    yield callers.is_entered(halted)
    yield lambda: bool(fleet.find("SELECT FROM agents WHERE standing = 'waits'"))
    ((epoch,),) = fleet.find("SELECT epoch FROM agents")
    sent = callers.send(asker, "t", other)
    yield from fleet.told(sent)
    if fleet.find("SELECT FROM agents WHERE epoch > %s", epoch):
        callers.wrong("an agent was taken while a call of it went on")
    callers.release(halted)
    callers.must_keep(f"m-{other}", other)
    told = yield from callers.end_of("t", run)
    decisions = [(request, "dismiss", "") for request, *_ in told.get("requests", ())]
    told = yield from fleet.told(callers.ask(callers.host(), "resume", "t", decisions=decisions))
    if told["is"] != "Stopped":
        callers.wrong(f"who dismisses {halted!r} was told {told}")
    after = callers.prompt("do")
    yield from callers.completed("t", after, callers.run(callers.host(), "t", after))


@_round("a copy that is lost")
def _copy(callers: Callers) -> Script:
    """Its owner hears of it by nobody."""
    owner, taker, _ = callers.hosts()
    fleet = callers.fleet
    prompt = callers.prompt("ask")
    told = yield from fleet.told(callers.run(owner, "t", prompt))
    ((request, *_),) = told["requests"]
    yield lambda: may_be_taken(fleet)
    fleet.deafen(owner)
    decisions = [(request, "approve", prompt)]
    yield from callers.completed(
        "t", prompt, callers.ask(taker, "resume", "t", decisions=decisions)
    )
    # It is told again, at once, at the host that had it.
    again = yield from fleet.told(callers.run(owner, "t", prompt))
    if again["is"] != "Completed":
        callers.wrong(f"{owner} tells of {prompt!r} what is over: {again}")


@_round("an owner who has not replied")
def _unreplied(callers: Callers) -> Script:
    """Nobody claims the agent but who asks."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    held, other = callers.prompt("hold"), callers.prompt("hold")
    callers.run(owner, "t", held, again=False)
    yield callers.is_entered(held)
    fleet.arm(owner, "before reply", "kill", pause=None)
    asked = callers.run(asker, "t", other)
    yield lambda: is_posted(fleet)
    callers.release(held)
    yield lambda: fleet.kills == 1
    callers.release(other)
    yield from callers.completed("t", other, asked)
    yield from callers.completed("t", held, callers.run(callers.host(), "t", held))


@_round("an owner who has not committed")
def _uncommitted(callers: Callers) -> Script:
    yield from posted(callers, "send", "owner", "before commit", "kill", None)


@_round("an asker and an owner who die")
def _both(callers: Callers) -> Script:
    """A call that was posted is done, though nobody waits for it."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    held, other = callers.prompt("hold"), callers.prompt("do")
    run = callers.run(owner, "t", held)
    yield callers.is_entered(held)
    fleet.arm(asker, "after notify", "kill", pause=None)
    fleet.arm(owner, "after act", "kill", pause=None)
    callers.send(asker, "t", other, again=False)
    yield lambda: fleet.kills == 2
    callers.must_keep(f"m-{other}", other)
    callers.release(held)
    yield from callers.completed("t", held, run)


@_round("a cancel that comes late")
def _late_cancel(callers: Callers) -> Script:
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    first, second = callers.prompt("hold"), callers.prompt("hold")
    run = callers.run(owner, "t", first)
    yield callers.is_entered(first)
    fleet.arm(asker, "before insert", "stop", pause=None)
    cancelled = callers.ask(asker, "cancel", "t")
    yield lambda: fleet.is_stopped(asker)
    callers.release(first)
    done = yield from callers.completed("t", first, run)
    run = callers.run(owner, "t", second)
    yield callers.is_entered(second)
    fleet.wake(asker)
    told = yield from fleet.told(cancelled)
    if told.get("run_id") != done["run_id"]:
        callers.wrong(f"who cancels {first!r} was told {told}")
    callers.release(second)
    yield from callers.completed("t", second, run)


@_round("what was posted while nobody listened")
def _deaf(callers: Callers) -> Script:
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    held, other = callers.prompt("hold"), callers.prompt("do")
    run = callers.run(owner, "t", held)
    yield callers.is_entered(held)
    fleet.stop(owner)
    if not fleet.cut_ears(owner):
        callers.wrong(f"{owner} does not listen")
    sent = callers.send(asker, "t", other, steer=True)
    yield lambda: is_posted(fleet)
    fleet.wake(owner)
    yield from fleet.told(sent, may_be_absent=True)
    callers.must_keep(f"m-{other}", other)
    callers.release(held)
    yield from callers.completed("t", held, run)


@_round("an owner who never reads it")
def _unread(callers: Callers) -> Script:
    """Nobody claims the agent but who asks, who hears of nobody that its owner is gone."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    held, other = callers.prompt("hold"), callers.prompt("do")
    callers.run(owner, "t", held, again=False)
    yield callers.is_entered(held)
    fleet.deafen(asker)
    fleet.arm(owner, "before act", "stop", pause=None)
    sent = callers.send(asker, "t", other)
    yield lambda: fleet.is_stopped(owner)
    # Who posts looks once, at once. The owner is gone behind that.
    yield lambda: any(entry.of[0] == asker for entry in fleet.log.read("looked"))
    fleet.kill(owner)
    callers.release(held)
    yield from fleet.told(sent, may_be_absent=True)
    callers.must_keep(f"m-{other}", other)
    yield from callers.completed("t", held, callers.run(callers.host(), "t", held))


# ------------------------------------------------------------------------ every point

CALLS_AT_LEAST = 50
CALLS = ("run", "send", "steer", "cancel", "pause")


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


def posted(
    callers: Callers,
    call: str,
    who: str,
    point: str,
    action: str,
    pause: float | None,
    id: str = "t",
) -> Script:
    """A call is posted to the owner of an agent that runs, and one of the two stops at a point."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    armed = owner if who == "owner" else asker
    held = callers.prompt("hold")
    run = callers.run(owner, id, held)
    yield callers.is_entered(held)
    away = fleet.kills + fleet.stops
    fleet.arm(armed, point, action, pause=pause)
    other = callers.prompt("do") if call in ("run", "send", "steer") else ""
    if call == "run":
        asked = callers.run(asker, id, other)
    elif other:
        asked = callers.send(asker, id, other, steer=call == "steer")
    else:
        asked = callers.ask(asker, call, id)
    # A run is replied to when it begins, behind the one that is held: it may stop only then.
    yield (
        lambda: (
            fleet.kills + fleet.stops > away
            or fleet.is_answered(asked)
            or (call == "run" and is_posted(fleet))
        )
    )
    yield from callers.pause(0.2 * callers.chance.random())
    if call != "cancel":
        callers.release(held)
    if other and call != "run":
        told = yield from fleet.told(asked)
        if told != {"is": "str", "value": f"m-{other}"}:
            callers.wrong(f"who sends {other!r} to {id} was told {told}")
        callers.must_keep(f"m-{other}", other)
    elif call == "run":
        yield from callers.completed(id, other, asked)
    elif call == "cancel":
        told = yield from callers.end_of(id, asked)
        callers.check_cancelled(id, held, asked, told)
    else:
        told = yield from fleet.told(asked)
        if told["is"] != "NoneType":
            callers.wrong(f"who pauses {held!r} at {id} was told {told}")
        yield from fleet.told(callers.ask(callers.host(), "unpause", id))
    if call == "cancel":
        told = yield from callers.end_of(id, run)
        if told["is"] != "Stopped":
            callers.wrong(f"the caller of {held!r} at {id}, cancelled, was told {told}")
    else:
        yield from callers.completed(id, held, run)
    # Whoever has not passed the point stops there no more.
    yield lambda: not fleet.is_stopped(armed)
    fleet.arm(armed, "", "stop", pause=0.0)


def is_posted(fleet: Fleet) -> bool:
    """Whether a call is posted, and not taken back, nor removed by who has read the reply."""
    return bool(fleet.find("SELECT FROM inbox"))


def may_be_taken(fleet: Fleet) -> bool:
    """Whether the index says of the agent that nothing of it goes on: its status comes last."""
    return bool(fleet.find("SELECT FROM agents WHERE takeable AND indexed_seq = last_seq"))


# ------------------------------------------------------------------------------ plays


def any_host(
    folder: Path,
    *,
    url: str,
    schema: str,
    seed: int,
    named: str | None = None,
    points: list[tuple[str, str, str, str, float | None]] | None = None,
    seconds: float = 0.0,
    agents: int = 6,
    absent: float = SOON,
    broken: str | None = None,
) -> dict[str, Any]:
    """Three hosts and their callers.

    Args:
        named: play this round.
        points: play these rounds, one after the other.
        seconds: play callers at random for so long at least, while hosts stop, die and do not hear.
        agents: how many those have.
        absent: seconds after which an answer that a round is about does not come.
        broken: the build that plays it.

    """
    if broken is not None:
        HOSTS_BROKEN[broken]()
    chance = random.Random(seed)
    others = {"lease": LEASE, **SETTINGS.get(named, {})} if named is not None else {}
    setting = Setting(url=url, schema=schema, **others)
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
            _at_random(fleet, callers, seconds, agents)
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
            "doubts": callers.doubts,
        },
    }


def _at_random(fleet: Fleet, callers: Callers, seconds: float, agents: int) -> None:
    chance = callers.chance
    points = (*ASKER_POINTS, *OWNER_POINTS, *TAKER_POINTS)
    end = time.monotonic() + seconds
    next_fault = [time.monotonic()]

    def is_over() -> bool:
        faults = fleet.kills + fleet.stops
        return time.monotonic() > end and callers.asked >= CALLS_AT_LEAST and faults > 0

    def trouble() -> None:
        now = time.monotonic()
        if is_over() or now < next_fault[0] or len(fleet.running()) < 3:
            return
        next_fault[0] = now + chance.uniform(0.1, 0.6)
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


def found_out(forks: Forks, url: str, broken: str, seed: int) -> list[str]:
    """What its round shows of a broken build, if it is what it must show."""
    control, hosts = CONTROLS[broken], Hosts(url)
    try:
        found = forks.play(
            "any_host",
            url=hosts.url,
            schema=hosts.schema,
            seed=seed,
            named=control.round,
            absent=ABSENT,
            broken=broken,
        )
    finally:
        hosts.close()
    violations: list[str] = found["violations"]
    said = [each for each in violations if re.search(control.says, each)]
    assert said, f"{control.says!r} is in none of {violations}"
    return said

"""Rounds in which a host stops at one point of a call, and builds that are broken there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.durability.any_host import ASKER_POINTS, OWNER_POINTS, TAKER_POINTS, Setting
from tests.support.durability.broken_hosts import HOSTS_BROKEN
from tests.support.durability.callers import Callers
from tests.support.durability.fleet import SOON, Fleet, Script, Stuck
from tests.support.durability.forks import Forks
from tests.support.durability.hosts import stale_records
from tests.support.postgres import Hosts

__all__ = ["CONTROLS", "ROUNDS", "SETTINGS", "any_host", "found_out", "points_of"]

Round = Callable[[Callers], Script]
ROUNDS: dict[str, Round] = {}
"""By name; each is about one thing that must not be left out."""
SETTINGS: Mapping[str, dict[str, Any]] = {
    "what was posted while nobody listened": {"beat": 1000.0, "patience": 1000.0, "lease": 5.0},
    "an owner who never reads it": {"sweep": None},
    "an owner who has not replied": {"sweep": None},
    "a copy that is lost": {"lease": 10.0},
}
"""Of the rounds that need others."""
CONTROLS: Mapping[str, str] = {
    "J6: an agent that runs may be taken": "an agent that runs",
    "J6: whether an agent may be taken is judged before it is taken": "an agent that is judged",
    "J6: a halt with calls under way counts as rest": "an agent that is halted",
    "J6: the loser keeps its copy": "a copy that is lost",
    "J70: a call that is made again has another id": "an owner who has not replied",
    "J70: a reply precedes its commit": "an owner who has not committed",
    "J70: a call is deleted before it is done": "an asker and an owner who die",
    "J70: a cancel does not name its run": "a cancel that comes late",
    "J70: nobody looks after listening again": "what was posted while nobody listened",
    "J70: nobody looks but when told": "an owner who never reads it",
}
"""Each broken build, and the round that must find it."""


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
    yield from callers.pause(0.4 + 0.3 * callers.chance.random())
    callers.release(held)
    yield from callers.completed("t", held, run)
    yield from callers.completed("t", other, asked)


@_round("an agent that is judged")
def _judged(callers: Callers) -> Script:
    owner, taker, _ = callers.hosts()
    fleet = callers.fleet
    first, held, other = callers.prompt("do"), callers.prompt("hold"), callers.prompt("do")
    yield from callers.completed("t", first, callers.run(owner, "t", first))
    fleet.arm(taker, "judged", "stop", pause=None)
    asked = callers.run(taker, "t", other)
    yield lambda: fleet.is_stopped(taker)
    run = callers.run(owner, "t", held)
    yield callers.is_entered(held)
    fleet.wake(taker)
    yield from callers.pause(0.3 + 0.3 * callers.chance.random())
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
    sent = callers.send(asker, "t", other)
    yield from callers.pause(0.4 + 0.3 * callers.chance.random())
    callers.release(halted)
    yield from fleet.told(sent)
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
    """Its owner sleeps while it is taken, and hears of it by nobody."""
    owner, taker, _ = callers.hosts()
    fleet = callers.fleet
    prompt = callers.prompt("ask")
    told = yield from fleet.told(callers.run(owner, "t", prompt))
    ((request, *_),) = told["requests"]
    fleet.stop(owner)
    fleet.cut_ears(owner)
    decisions = [(request, "approve", prompt)]
    yield from callers.completed(
        "t", prompt, callers.ask(taker, "resume", "t", decisions=decisions)
    )
    fleet.wake(owner)
    # It is told again, at once, at the host that had it.
    again = yield from fleet.told(callers.run(owner, "t", prompt))
    if again["is"] != "Completed":
        callers.wrong(f"{owner} tells of {prompt!r} what is over: {again}")


@_round("an owner who has not replied")
def _unreplied(callers: Callers) -> Script:
    """Nobody claims the agent but who asks."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    held, other = callers.prompt("hold"), callers.prompt("do")
    callers.run(owner, "t", held, again=False)
    yield callers.is_entered(held)
    fleet.arm(owner, "before reply", "kill", pause=None)
    asked = callers.run(asker, "t", other)
    yield lambda: bool(fleet.find("SELECT FROM inbox"))
    callers.release(held)
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
    yield lambda: bool(fleet.find("SELECT FROM inbox"))
    fleet.wake(owner)
    yield from fleet.told(sent)
    callers.must_keep(f"m-{other}", other)
    callers.release(held)
    yield from callers.completed("t", held, run)


@_round("an owner who never reads it")
def _unread(callers: Callers) -> Script:
    """Nobody claims the agent but who asks, and nobody tells that its owner is gone."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    held, other = callers.prompt("hold"), callers.prompt("do")
    callers.run(owner, "t", held, again=False)
    yield callers.is_entered(held)
    fleet.arm(owner, "before act", "kill", pause=None)
    sent = callers.send(asker, "t", other)
    callers.release(held)
    yield from fleet.told(sent)
    callers.must_keep(f"m-{other}", other)
    yield from callers.completed("t", held, callers.run(callers.host(), "t", held))


# ------------------------------------------------------------------------ every point

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
    end = time.monotonic() + 0.5  # a run is replied to when it begins: behind the one that is held
    yield lambda: fleet.kills + fleet.stops > away or fleet.is_answered(asked) or _is_over(end)
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
        if told["is"] != "Stopped":
            callers.wrong(f"who cancels {held!r} at {id} was told {told}")
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


def _is_over(end: float) -> bool:
    return time.monotonic() > end


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
    soon: float = SOON,
    broken: str | None = None,
) -> dict[str, Any]:
    """Three hosts and their callers.

    Args:
        named: play this round.
        points: play these rounds, one after the other.
        seconds: play callers at random for so long, while hosts stop, die and do not hear.
        agents: how many those have.
        soon: seconds after which what a caller waits for does not come.
        broken: the build that plays it.

    """
    if broken is not None:
        HOSTS_BROKEN[broken]()
    chance = random.Random(seed)
    setting = Setting(url=url, schema=schema, **SETTINGS.get(named or "", {}))
    fleet = Fleet(setting, folder, chance, soon=soon)
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

    def trouble() -> None:
        now = time.monotonic()
        if now > end or now < next_fault[0] or len(fleet.running()) < 3:
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
        [callers.user(f"t{n}", lambda: time.monotonic() > end) for n in range(agents)],
        often=trouble,
    )


def found_out(forks: Forks, url: str, broken: str, seed: int) -> list[str]:
    """What its round shows of a broken build; nothing if it goes unnoticed."""
    hosts = Hosts(url)
    try:
        found = forks.play(
            "any_host",
            url=hosts.url,
            schema=hosts.schema,
            seed=seed,
            named=CONTROLS[broken],
            soon=4.0,
            broken=broken,
        )
    finally:
        hosts.close()
    violations: list[str] = found["violations"]
    return violations

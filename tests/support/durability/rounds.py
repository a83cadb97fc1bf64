"""Rounds in which a host stops at one point of a call: each is about one thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from tests.support.durability.callers import BUSY, Callers
from tests.support.durability.fleet import NAMES, Fleet, Script

__all__ = ["LEASE", "ROUNDS", "SETTINGS", "posted"]

Round = Callable[[Callers], Script]
ROUNDS: dict[str, Round] = {}
"""By name; each is about one thing that must not be left out."""
SETTINGS: Mapping[str, dict[str, Any]] = {
    "what was posted while nobody listened": {"beat": 1000.0, "patience": 1000.0},
    "an owner who never reads it": {"sweep": None},
    "an owner who has not replied": {"sweep": None},
    "a run that is handed over": {"sweep": None},
    "a run posted to a host that drains": {
        "beat": 1000.0,
        "patience": 1000.0,
        "poll": 1000.0,
        "sweep": None,
    },
    "clocks that are wrong": {"ahead": {"two": 7200.0, "three": -7200.0}},
}
"""Of the rounds that need others. In none of them a lease has to run out: who is killed is known to
be dead, by whoever starts in its place."""
LEASE = 30.0


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
    """A call continues, and comes to its end."""
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    halted, other = callers.prompt("halt"), callers.prompt("do")
    run = callers.run(owner, "t", halted)
    yield callers.is_entered(halted)
    yield lambda: bool(fleet.find("SELECT FROM agents WHERE index_status = 'waits'"))
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
    # It is reported again, at once, at the host that had it.
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


@_round("a run that is handed over")
def _handed_over(callers: Callers) -> Script:
    """Nobody asks for it, and nobody sweeps."""
    owner, *_ = callers.hosts()
    fleet = callers.fleet
    held = callers.prompt("hold")
    yield from fleet.told(callers.send(owner, "t", held))
    callers.must_keep(f"m-{held}", held)
    yield callers.is_entered(held)
    drained = callers.ask(owner, "drain", "t")
    yield lambda: bool(fleet.find("SELECT FROM hosts WHERE name = %s AND draining", owner))
    callers.release(held)
    yield from fleet.told(drained)
    yield from fleet.absent(lambda: not fleet.find(BUSY, "t"))


@_round("a call at a host that drains")
def _given(callers: Callers) -> Script:
    """Its agent begins at another one."""
    owner, *_ = callers.hosts()
    fleet = callers.fleet
    yield from fleet.told(callers.ask(owner, "drain", "t"))
    prompt = callers.prompt("hold")
    run = callers.run(owner, "t", prompt)
    yield callers.is_entered(prompt)
    ((there,),) = fleet.find("SELECT h.name FROM agents a JOIN hosts h ON h.id = a.owner")
    if there == owner:
        callers.wrong(f"{owner} drains, and has begun {prompt!r}")
    callers.release(prompt)
    yield from callers.completed("t", prompt, run)


@_round("a run posted to a host that drains")
def _posted_to_drained(callers: Callers) -> Script:
    """In the middle of a run that nobody waits for: the next host of the agent does it.

    By what hosts tell each other alone: nobody looks by itself.
    """
    owner, asker, _ = callers.hosts()
    fleet = callers.fleet
    held, other, after = callers.prompt("hold"), callers.prompt("do"), callers.prompt("do")
    yield from fleet.told(callers.send(owner, "t", held))
    callers.must_keep(f"m-{held}", held)
    yield callers.is_entered(held)
    drained = callers.ask(owner, "drain", "t")
    yield lambda: bool(fleet.find("SELECT FROM hosts WHERE name = %s AND draining", owner))
    asked = callers.run(asker, "t", other)
    yield lambda: is_posted(fleet)
    callers.release(held)
    yield from fleet.told(drained)
    yield from callers.completed("t", other, asked)
    yield from fleet.absent(lambda: not fleet.find(BUSY, "t"))
    yield from callers.completed("t", after, callers.run(owner, "t", after))


@_round("clocks that are wrong")
def _clocks(callers: Callers) -> Script:
    """One host is two hours ahead and one is two hours behind: all go by the database's clock."""
    fleet = callers.fleet

    def done() -> set[str]:
        return {entry.of[2] for entry in fleet.log.read("effect")}

    ((now,),) = fleet.find("SELECT clock_timestamp()")
    near, far = set[str](), set[str]()
    briefs: dict[str, str] = {}
    longs: dict[str, tuple[str, int]] = {}
    held: dict[str, tuple[str, int]] = {}
    for name in NAMES:
        soon, late = callers.prompt("do"), callers.prompt("do", 0)
        for planned, seconds in ((soon, 1), (late, 3600)):
            at = (now + timedelta(seconds=seconds)).isoformat()
            callers.send(name, f"plans-{name}", planned, at=at)
            callers.must_keep(f"m-{planned}", planned)
        near.add(soon)
        far.add(late)
        brief, long, hold = (callers.prompt(verb, 0) for verb in ("brief", "long", "hold"))
        callers.run(name, f"brief-{name}", brief)
        briefs[name] = brief
        longs[name] = long, callers.run(name, f"long-{name}", long)
        held[name] = hold, callers.run(name, f"held-{name}", hold)
        yield callers.is_entered(hold)
    yield lambda: done() >= near or not far.isdisjoint(done())
    if not far.isdisjoint(done()):
        callers.wrong(f"of {far} some come an hour early: {done()}")
        return
    for name, left in fleet.find("SELECT name, lease_until - clock_timestamp() FROM hosts"):
        if not 0 < left.total_seconds() <= fleet.setting.lease:
            callers.wrong(f"the lease of {name} ends in {left}")
    for name in NAMES:
        yield lambda: not fleet.find(BUSY, f"brief-{name}")  # noqa: B023  # it has expired
        brief, (long, run) = briefs[name], longs[name]
        outcome = callers.ask(callers.host(), "outcome", f"brief-{name}")
        yield from callers.completed(f"brief-{name}", brief, outcome)
        told = yield from fleet.told(run)
        now = yield from fleet.told(callers.ask(callers.host(), "outcome", f"long-{name}"))
        if not told["is"] == now["is"] == "Interrupted":
            callers.wrong(f"who asks for {long!r} was told {told}, then {now}")
            return
        decisions = [(request, "reject", long) for request, *_ in told["requests"]]
        run = callers.ask(callers.host(), "resume", f"long-{name}", decisions=decisions)
        yield from callers.completed(f"long-{name}", long, run)
        hold, run = held[name]
        callers.release(hold)
        yield from callers.completed(f"held-{name}", hold, run)
    if fleet.was_away:
        callers.wrong("the lease of a host has ended")


# ------------------------------------------------------------------------ any point


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
    # A host that has not passed the point stops there no more.
    yield lambda: not fleet.is_stopped(armed)
    fleet.arm(armed, "", "stop", pause=0.0)


def is_posted(fleet: Fleet) -> bool:
    """Whether a call is posted, and not taken back, nor removed by who has read the reply."""
    return bool(fleet.find("SELECT FROM inbox"))


def may_be_taken(fleet: Fleet) -> bool:
    """Whether the index says that the agent has no open work: its status comes last."""
    return bool(fleet.find("SELECT FROM agents WHERE takeable"))

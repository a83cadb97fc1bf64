"""The story of a person who never answers: reminded, escalated, expired, wherever it is stopped.

Each life lasts six hours, of which none passes twice. After the first one nobody names the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.support.agents import by_turn
from tests.support.durability import broken as builds
from tests.support.durability import play
from tests.support.durability.forks import be_hasty
from tests.support.durability.points import Points
from tests.support.durability.side_log import SideLog
from understudy import Agent, Runtime, SimulatedClock, UnknownAgent, call, tool
from understudy.middleware import HumanInTheLoop
from understudy.run.waits import dues
from understudy.state import fold
from understudy.state.records import Decided, Escalated, Reminded
from understudy.state.run_state import NO_NOTICES

__all__ = ["BROKEN", "asked", "warm_up"]

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
HOUR = 3600
LIVES, LIFE = 5, 6 * HOUR
NOTICES = (1, 3, 5)
"""Hours after which a person is reminded, reminded again, and somebody else is notified."""
KINDS = ("reminded", "escalated", "decided", "cancel_requested", "run_ended")


def _not_remembered(record: type[Any]) -> Callable[[], None]:
    def make() -> None:
        assert record in fold._APPLY
        fold._APPLY[record] = lambda *_: None

    return make


def _noted_twice() -> None:
    """Each look records again what is recorded already."""
    inner = dues._pending

    def pending(calls: Any) -> Any:
        for place, request, _, votes in inner(calls):
            yield place, request, NO_NOTICES, votes

    dues._pending = pending


BROKEN: dict[str, Callable[[], None]] = {
    "I15: a reminder is not remembered": _not_remembered(Reminded),
    "I15: an escalation is not remembered": _not_remembered(Escalated),
    "I15: whoever looks tells it again": _noted_twice,
    "I14: an expiry is recorded and decides nothing": _not_remembered(Decided),
    "I14: silence approves": builds.BROKEN["J21: silence approves"],
    "J21: the index does not know": builds.BROKEN[
        "J21: the index does not know when an agent is due"
    ],
}
"""Each broken build, by what is wrong with it."""


def warm_up() -> None:
    """Do once what is slow the first time."""
    play.warm_up(_life("reject"))


def asked(
    folder: Path,
    *,
    stops: list[int],
    on_expiry: str = "reject",
    named: str = "",
    power: bool = False,
    broken: str | None = None,
) -> dict[str, Any]:
    """The n-th process is stopped at the n-th point, the last one lives.

    Args:
        stops: these points; 0 = it lives its six hours.
        on_expiry: what the request does when nobody has answered.
        named: not before a point whose name begins so.
        power: the machine loses its power there; else the process is killed.
        broken: the build that plays it.

    """
    if broken is not None:
        be_hasty()
        BROKEN[broken]()
    life = _life(on_expiry)
    log = play.play(folder, life, stops=stops, lives=LIVES, named=named, power=power)
    stopped = [entry.of[0] for entry in log.read("stopped")]
    return {
        "violations": list(_violations(log, on_expiry, len(stopped))),
        "stopped": stopped,
        "points": [len(entry.of) for entry in log.read("points")],
    }


def _agent(log: SideLog, on_expiry: Any) -> Agent:
    @tool
    async def refund() -> str:
        log.write("violation", "silence has approved a call")
        return "refunded"

    gate = HumanInTheLoop(
        {"refund": True},
        remind_after=[HOUR * hours for hours in NOTICES[:2]],
        escalate_after={HOUR * NOTICES[2]: "the head of sales"},
        expires_after=8 * HOUR,
        on_expiry=on_expiry,
    )
    return Agent("desk", by_turn(call("refund"), "done"), tools=[refund], middleware=[gate])


def _life(on_expiry: str) -> play.Life:
    """Six hours."""

    async def life(store: str, number: int, log: SideLog, points: Points) -> None:
        clock = SimulatedClock(NOON + timedelta(seconds=number * LIFE))
        agent = _agent(log, on_expiry)
        async with Runtime([agent], store=store, clock=clock, sweep=None) as runtime:
            await _hours(runtime, clock, log)

    return life


async def _hours(runtime: Runtime, clock: SimulatedClock, log: SideLog) -> None:
    if "run_started" not in [record["kind"] for record in await _records(runtime)]:
        await runtime.spawn("desk", id="a").run("Refund.", message_id="only")
    for ref in await runtime.recover():
        await ref.outcome()
    await clock.advance(LIFE - 1)
    if clock.now() >= NOON + timedelta(seconds=LIVES * LIFE - 1):
        for record in await _records(runtime):
            if record["kind"] in KINDS:
                log.write("record", record["kind"], str(record.get("number", "")), record["at"])


async def _records(runtime: Runtime) -> list[dict[str, Any]]:
    try:
        records: list[dict[str, Any]] = (await runtime.export("a"))["records"]
    except UnknownAgent:
        return []
    return records


def _violations(log: SideLog, on_expiry: str, stopped: int) -> Iterator[str]:
    """What is lost, and what happened twice."""
    yield from (entry.of[0] for entry in log.read("violation"))
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    when: dict[str, list[datetime]] = {kind: [] for kind in KINDS}
    for entry in log.read("record"):
        found[entry.of[0]].append(entry.of[1])
        when[entry.of[0]].append(datetime.fromisoformat(entry.of[2]))
    end, other = "decided", "cancel_requested"
    if on_expiry == "stop":
        end, other = other, end
    for kind, count in ((end, 1), (other, 0), ("run_ended", 1)):
        if len(found[kind]) != count:
            yield f"{kind} is recorded {len(found[kind])} times"
    reminders, escalations = found["reminded"], found["escalated"]
    if reminders != sorted(set(reminders)):
        yield f"the reminders are {reminders}"
    if len(escalations) > 1:
        yield f"it is escalated {len(escalations)} times"
    if not stopped:  # it is recorded when its time has come, and not by a later look
        in_time = {"reminded": NOTICES[:2], "escalated": NOTICES[2:]}
        for kind, hours in in_time.items():
            if when[kind] != [NOON + timedelta(hours=each) for each in hours]:
                yield f"{kind} came at {[str(each) for each in when[kind]]}"
    # Six hours without a process are less than the eight until it expires, twelve are more.
    if stopped < 2 and (reminders[-1:] != ["2"] or escalations != ["1"]):
        yield f"told: {reminders}, {escalations}"

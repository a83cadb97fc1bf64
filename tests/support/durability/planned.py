"""The story of an agent that runs by itself: it is stopped anywhere, and its days continue.

In each life a day has passed. Each life says again what is planned, as an application does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.support.durability import play
from tests.support.durability.forks import be_hasty
from tests.support.durability.points import Points
from tests.support.durability.side_log import SideLog
from understudy import (
    Agent,
    AgentRef,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    ToolContext,
    call,
    tool,
)
from understudy.actors.agent.runs import timers as due_runs
from understudy.journal import index_status
from understudy.models import ScriptedRequest
from understudy.state import agent_state, fold, next_due
from understudy.state.folds import queue
from understudy.state.folds import runs as run_folds
from understudy.state.records import Occurred

__all__ = ["BROKEN", "planned", "warm_up"]

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
DAYS = 4
"""So many days pass at least, whatever is stopped."""


def _never_moves_on() -> None:
    """A schedule whose next time is not that of its record."""
    inner = fold._APPLY[Occurred]

    def occurred(state: Any, record: Any) -> None:
        before = state.plans.schedules[record.occurrence.schedule_id].next_due
        object.__setattr__(record, "next_due", before)
        inner(state, record)

    fold._APPLY[Occurred] = occurred


def _is_not_in_the_index() -> None:
    """Neither the index of the store nor the clock learns when the plans of an agent are due."""
    told: list[tuple[Any, str, Callable[[Any], datetime | None]]] = [
        (agent_state, "next_due", next_due.due_of_run),
        (index_status, "next_due", next_due.due_of_run),
        (due_runs, "due_beside_run", lambda state: None),  # while a run task is under way
    ]
    for module, name, broken in told:
        assert callable(getattr(module, name))  # else nothing is broken
        setattr(module, name, broken)


def _stays_in_the_queue() -> None:
    """The run of a message does not take it from the queue."""
    inner = queue.dequeue

    def dequeue(state: Any, message_ids: Any, taken_at: Any) -> None:
        kept = dict(state.queue)
        inner(state, message_ids, taken_at)
        if len(state.messages) < 8:
            state.queue.update(kept)

    setattr(run_folds, "dequeue", dequeue)  # noqa: B010  # imported there


BROKEN: dict[str, Callable[[], None]] = {
    "J26: a schedule does not move on": _never_moves_on,
    "J21: plans are not in the index": _is_not_in_the_index,
    "J25: a message stays in the queue": _stays_in_the_queue,
}
"""Each broken build, by what is wrong with it."""


def warm_up() -> None:
    """Do once what is slow the first time."""
    play.warm_up(_life)


def planned(
    folder: Path,
    *,
    stops: list[int],
    named: str = "",
    power: bool = False,
    broken: str | None = None,
) -> dict[str, Any]:
    """The n-th process is stopped at the n-th point, the last one lives.

    Args:
        stops: these points.
        named: not before a point whose name begins so.
        power: the machine loses its power there; else the process is killed.
        broken: the build that plays it.

    """
    if broken is not None:
        be_hasty()
        BROKEN[broken]()
    log = play.play(folder, _life, stops=stops, lives=DAYS, named=named, power=power)
    return {
        "violations": list(_violations(log)),
        "stopped": [entry.of[0] for entry in log.read("stopped")],
        "points": len(log.read("points")[-1].of),
    }


def _agent(log: SideLog, point: Callable[[str], None]) -> Agent:
    @tool(idempotent=True)
    async def report(ctx: ToolContext) -> str:
        point("before effect of report")
        log.write("effect", ctx.call_key)
        point("after effect of report")
        return "reported"

    def reply(request: ScriptedRequest) -> Any:
        parts = request.messages[-1].parts
        return call("report") if parts[0].part_kind == "user-prompt" else "done"

    return Agent("reporter", ScriptedModel(reply), tools=[report])


async def _life(store: str, number: int, log: SideLog, points: Points) -> None:
    """One day."""
    clock = SimulatedClock(NOON + timedelta(days=number))
    async with Runtime([_agent(log, points)], store=store, clock=clock, sweep=None) as runtime:
        await _day(runtime, clock, log)


async def _day(runtime: Runtime, clock: SimulatedClock, log: SideLog) -> None:
    ref = runtime.spawn("reporter", id="a")
    options: dict[str, Any] = {"missed": "all", "overlap": "queue"}
    await runtime.schedule(ref, "daily", cron="0 9 * * *", input="Report.", **options)
    await ref.send("Later.", at=NOON + timedelta(hours=6), message_id="later")
    await runtime.recover()
    await clock.advance(86_399)
    await _at_rest(ref)
    if clock.now() >= NOON + timedelta(days=DAYS, seconds=-1):
        entries = (await ref.history(limit=10_000)).entries
        for entry in entries:
            if entry.what == "schedule_set":
                log.write("planned", str(entry.at))
            elif entry.what in ("occurrence", "run_started", "run_ended"):
                occurrence = entry.detail.get("occurrence") or entry.detail
                told = entry.detail.get("text") or ""
                log.write(entry.what, str(occurrence.get("due")), str(told))


async def _at_rest(ref: AgentRef) -> None:
    while True:
        await ref.outcome()
        state = await ref.state()
        if not state.queue and (state.run is None or state.run.over):
            return


def _violations(log: SideLog) -> Iterator[str]:
    """What is lost, and what happened twice."""
    since = datetime.fromisoformat(log.read("planned")[0].of[0])
    times = [NOON + timedelta(days=n, hours=21) for n in range(DAYS)]
    days = [time.isoformat() for time in times if time > since]
    came = Counter(entry.of[0] for entry in log.read("occurrence"))
    run = Counter(entry.of[0] for entry in log.read("run_started") if entry.of[1] == "Report.")
    for what, found in (("recorded", came), ("run", run)):
        for day in days:
            if found[day] != 1:
                yield f"the occurrence of {day} is {what} {found[day]} times"
        for day in found.keys() - set(days):
            yield f"an occurrence of {day}, which is none, is {what}"
    messages = [entry.of[1] for entry in log.read("run_started") if "Later." in entry.of[1]]
    if messages != ["Later."]:
        yield f"the message is run {len(messages)} times: {messages}"
    ended, effects = len(log.read("run_ended")), {entry.of[0] for entry in log.read("effect")}
    if not ended == len(effects) == len(days) + 1:
        yield f"{ended} runs have ended, and {len(effects)} calls had their effect"

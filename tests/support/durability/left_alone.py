"""Agents that nobody looks after: what is due happens by itself, however often the host is killed.

No life but the first one names an agent, and none calls `recover`: the runtime finds what is due.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tests.support.agents import by_turn
from tests.support.durability.broken import break_
from tests.support.durability.forks import forked, patience
from tests.support.durability.points import kill
from tests.support.durability.side_log import SideLog
from understudy import Agent, Runtime, ScriptedModel, Status, ToolContext, call, tool
from understudy.middleware import HumanInTheLoop

__all__ = ["left_alone"]

EACH = 8
"""So many agents of each kind."""
FIRST_DUE, LAST_DUE = 0.4, 1.6
"""Seconds after the start between which everything is due."""
SWEEP = 0.1


def left_alone(folder: Path, *, seed: int, kills: int, broken: str | None = None) -> dict[str, Any]:
    """Sleeps, approvals that expire and messages with a time, while the host is killed again.

    Args:
        seed: of the moments at which it is killed.
        kills: how many times, after the first life has started everything.
        broken: the build that plays it.

    Returns:
        The violations, and `late`: the seconds by which each due was noticed too late.

    """
    break_(broken)
    chance = random.Random(seed)
    lives = [chance.uniform(0.05, 0.4) for _ in range(kills)]
    for life, seconds in enumerate([*lives, None]):

        def body(life: int = life, seconds: float | None = seconds) -> None:
            asyncio.run(_lived(folder, SideLog(folder / "log", life), seconds))

        forked(body, killed=seconds is not None)
    log = SideLog(folder / "log", -1)
    late = [float(entry.of[2]) for entry in log.read("due")]
    return {"violations": list(_violations(log)), "late": late}


def _agents(log: SideLog) -> list[Agent]:
    @tool(on_unknown="tell")
    async def nap(ctx: ToolContext, seconds: float) -> str:
        await ctx.sleep("nap", seconds)
        return "rested"

    @tool
    async def refund(ctx: ToolContext) -> str:
        log.write("violation", f"{ctx.agent_id}: silence has approved a call")
        return "refunded"

    def waits(number: int) -> float:
        return FIRST_DUE + (LAST_DUE - FIRST_DUE) * number / EACH

    return [
        *(
            Agent(f"sleeper{n}", by_turn(call("nap", {"seconds": waits(n)}), "done"), tools=[nap])
            for n in range(EACH)
        ),
        *(
            Agent(
                f"asker{n}",
                by_turn(call("refund", {}), "done"),
                tools=[refund],
                middleware=[HumanInTheLoop({"refund": True}, expires_after=waits(n))],
            )
            for n in range(EACH)
        ),
        *(Agent(f"later{n}", ScriptedModel(_ran(log, n))) for n in range(EACH)),
    ]


def _ran(log: SideLog, number: int) -> Callable[[Any], str]:
    def reply(_: Any) -> str:
        log.write("ran", str(number))
        return "done"

    return reply


async def _lived(folder: Path, log: SideLog, seconds: float | None) -> None:
    agents = _agents(log)
    store = f"sqlite:///{folder}/store.db"
    async with Runtime(agents, store=store, sweep=SWEEP) as runtime:
        if not log.has("started"):
            await _start(runtime, agents)
            log.write("started")
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, kill)
            await asyncio.Event().wait()
        await _wait(runtime, log)
        for agent in agents:
            _look(log, agent.name, (await runtime.export(agent.name))["records"])
    log.write("served")


async def _start(runtime: Runtime, agents: list[Agent]) -> None:
    for number, agent in enumerate(agents):
        step = (LAST_DUE - FIRST_DUE) * (number % EACH) / EACH
        due = datetime.now(timezone.utc) + timedelta(seconds=FIRST_DUE + step)
        ref = runtime.spawn(agent, id=agent.name)
        await ref.send("go", at=due if agent.name.startswith("later") else None)
    for agent in agents:  # each has come to where it waits
        if not agent.name.startswith("later"):
            while runtime.get(agent.name).status() is Status.RUNNING:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await runtime.get(agent.name).state()


async def _wait(runtime: Runtime, log: SideLog) -> None:
    """Until all agents are at rest and have had their runs; it loads none of them."""
    try:
        async with asyncio.timeout(patience()):
            while True:
                infos = await runtime.agents()
                busy = [info.id for info in infos if info.status is not Status.IDLE]
                ran = {entry.of for entry in log.read("ran")}  # before its time it looks idle, too
                if not busy and len(ran) == EACH:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        for info in await runtime.agents():
            if info.status is not Status.IDLE:
                log.write("violation", f"J21: {info.id} is abandoned as {info.status}")


def _look(log: SideLog, agent_id: str, records: list[dict[str, Any]]) -> None:
    """Write down what was due, and by how much it was late."""
    for record in records:
        match record:
            case {"kind": "point_reached", "due": str(due)}:
                what, found = "sleep", _at(records, "point_answered")
            case {"kind": "interrupts_checked", "requests": [{"expires_at": str(due)}]}:
                what, found = "expiry", _at(records, "decided")
            case {"kind": "message_queued", "due": str(due)}:
                what, found = "message", _at(records, "message_due")
            case _:
                continue
        if len(found) != 1:
            log.write("violation", f"J21: the {what} of {agent_id} was noticed {len(found)} times")
        for at in found:
            seconds = (datetime.fromisoformat(at) - datetime.fromisoformat(due)).total_seconds()
            log.write("due", agent_id, what, f"{seconds:.4f}")
            if seconds < 0:
                log.write("violation", f"J21: the {what} of {agent_id} came too early")


def _at(records: list[dict[str, Any]], kind: str) -> list[str]:
    return [record["at"] for record in records if record["kind"] == kind]


def _violations(log: SideLog) -> Iterator[str]:
    yield from (entry.of[0] for entry in log.read("violation"))
    if not log.read("served"):
        yield "it did not come to its end"
    counted = Counter(entry.of[1] for entry in log.read("due"))
    if counted != {"sleep": EACH, "expiry": EACH, "message": EACH}:
        yield f"J21: noticed were {dict(counted)}"

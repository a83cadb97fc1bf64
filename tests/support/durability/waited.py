"""A tool that sleeps and waits for a webhook, killed at its points: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.agents import by_turn
from tests.support.durability.broken import break_
from tests.support.durability.play import play
from tests.support.durability.points import Points
from tests.support.durability.side_log import SideLog
from tests.support.durability.stage import Stage
from understudy import Agent, Completed, Runtime, ToolContext, UnknownAgent, WaitExpired, call, tool
from understudy.errors import Expired, UnknownToken

__all__ = ["waited"]

ID = "order"
COOL_DOWN = 0.02
TIMEOUT = 2.0
"""Seconds after which an answer that was acknowledged and is lost shows: the wait has expired."""


def waited(
    folder: Path,
    *,
    stops: list[int],
    late: bool = False,
    power: bool = False,
    named: str = "",
    since: str = "",
    hold: float = 0.0,
    broken: str | None = None,
) -> dict[str, Any]:
    """An order that is created, cools down, waits for its payment and is shipped.

    Args:
        stops: the n-th process is killed at the n-th point, the last one lives.
        late: the payment comes only when the tool waits for it; else as soon as it can.
        power: the machine loses its power at those points.
        named, since, hold: see `Points`.
        broken: the build that plays it.

    """
    break_(broken)

    async def life(store: str, number: int, log: SideLog, points: Points) -> None:
        await _lived(store, log, points, late=late)

    log = play(folder, life, stops=stops, power=power, named=named, since=since, hold=hold)
    return {
        "violations": list(_violations(log)),
        "stopped": [entry.of[0] for entry in log.read("stopped")],
        "doubts": len(log.read("doubt")),
    }


def _agent() -> Agent:
    @tool(on_unknown="tell")
    async def order(ctx: ToolContext, what: str) -> str:
        stage: Stage = ctx.deps

        def effect(name: str) -> Callable[[], None]:
            def work() -> None:
                stage.point(f"before effect of {name}")
                stage.log.write("effect", ctx.call_key, name)
                stage.point(f"after effect of {name}")

            return work

        stage.log.write("token", await ctx.token("paid"))
        await ctx.once("create", effect("create"))
        await ctx.sleep("cool down", COOL_DOWN)
        try:
            by = await ctx.wait_for("paid", timeout=TIMEOUT)
        except WaitExpired:
            return "not paid in time"
        await ctx.once("ship", effect("ship"))
        return f"shipped to {by}"

    return Agent("shop", by_turn(call("order", {"what": "a kettle"}), "done"), tools=[order])


async def _lived(store: str, log: SideLog, points: Points, *, late: bool) -> None:
    stage = Stage(log, points)
    async with Runtime([_agent()], store=store, deps_for=lambda _: stage) as runtime:
        await _look(runtime, log)
        await runtime.recover()
        posting = asyncio.ensure_future(_post(runtime, log, late=late))
        try:
            outcome = await runtime.spawn("shop", id=ID).run("begin", message_id="1")
        finally:
            posting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await posting
        assert isinstance(outcome, Completed)
        for doubt in outcome.state.doubts:
            log.write("doubt", doubt)
        last = outcome.state.messages[2].parts[0]
        log.write("end", str(getattr(last, "content", "")))
        log.write("served")


async def _look(runtime: Runtime, log: SideLog) -> None:
    """An answer that was acknowledged before the crash is durable after it."""
    try:
        records = (await runtime.export(ID))["records"]
    except UnknownAgent:
        records = []
    kept = any(r["kind"] == "point_answered" and r["what"] == "wait" for r in records)
    if log.has("acked") and not kept:
        log.write("violation", "J22: an answer was acknowledged and is lost")


async def _post(runtime: Runtime, log: SideLog, *, late: bool) -> None:
    """The provider: it posts by the first token that it has, until that is acknowledged."""
    while not log.has("acked"):
        await asyncio.sleep(0.001)
        tokens = log.read("token")
        waits = {wait.name for wait in await runtime.waiting()} if late and tokens else {"paid"}
        if not tokens or "paid" not in waits:
            continue
        try:
            if await runtime.resolve(tokens[0].of[0], "ann"):
                log.write("acked")
        except UnknownToken:
            log.write("violation", "J22: a token that was handed out is not known")
            return
        except Expired:
            return  # the call is over: it was in doubt


def _violations(log: SideLog) -> Iterator[str]:
    yield from (entry.of[0] for entry in log.read("violation"))
    effects = Counter(entry.of for entry in log.read("effect"))
    for (key, name), times in effects.items():
        if times > 1:
            yield f"T11: {name} of call {key} was done {times} times"
    ends = [entry.of[0] for entry in log.read("end")]
    if len(ends) != 1:
        yield "it did not come to its end"
    elif not log.read("doubt"):
        if ends[0] != "shipped to ann":
            yield f"J22: it ended as {ends[0]!r}"
        if sorted(name for _, name in effects) != ["create", "ship"]:
            yield f"T11: it did {sorted(effects)}"

"""A payment whose answer is lost, killed at its points: its check finds it, and it is paid once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelRequest, ToolReturnPart

from tests.support.durability.broken import break_
from tests.support.durability.play import play
from tests.support.durability.points import Points
from tests.support.durability.side_log import SideLog
from understudy import (
    Agent,
    Completed,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    ToolContext,
    call,
    tool,
)
from understudy.models import ScriptedRequest
from understudy.tools import DidNotHappen, Happened

__all__ = ["settled"]

ID = "order"
BEGIN = datetime(2030, 1, 1, tzinfo=timezone.utc)
PROCESSED_AFTER = timedelta(seconds=30)
"""So long after a payment the bank finds it."""


def settled(
    folder: Path,
    *,
    stops: list[int],
    power: bool = False,
    broken: str | None = None,
) -> dict[str, Any]:
    """An order that is paid, and once more where a check finds that it was not.

    Args:
        stops: the n-th process is killed at the n-th point, the last one lives.
        power: the machine loses its power at those points.
        broken: the build that plays it.

    """
    break_(broken)
    log = play(folder, _lived, stops=stops, power=power)
    return {
        "violations": list(_violations(log)),
        "stopped": [entry.of[0] for entry in log.read("stopped")],
    }


@dataclass
class _Bank:
    """It takes each payment, and its answer is lost the first three times."""

    clock: SimulatedClock
    log: SideLog
    point: Points

    def pay(self, key: str, what: str) -> None:
        self.point("before effect of pay")
        self.log.write("effect", key, what, self.clock.now().isoformat())
        self.point("after effect of pay")
        if len(self.log.read("effect")) <= 3:
            raise ConnectionResetError("the answer is lost")

    def find(self, key: str) -> Happened | DidNotHappen:
        self.point("before a check")
        self.log.write("asked", key)
        for entry in self.log.read("effect"):
            paid_at = datetime.fromisoformat(entry.of[2])
            if entry.of[0] == key and paid_at + PROCESSED_AFTER <= self.clock.now():
                return Happened(f"paid for {entry.of[1]}")
        return DidNotHappen()


def _find(ctx: ToolContext, _arguments: dict[str, Any]) -> Happened | DidNotHappen:
    bank: _Bank = ctx.deps
    return bank.find(ctx.call_key)


@tool(check=_find, check_after=[10, 60, 120])
async def pay(ctx: ToolContext, what: str) -> str:
    """Pay for something."""
    bank: _Bank = ctx.deps
    bank.pay(ctx.call_key, what)
    return "paid"


def _reply(request: ScriptedRequest) -> Any:
    """A model that pays until it learns that it has paid."""
    outcomes = [
        part.outcome
        for message in request.messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    if not outcomes or (outcomes[-1] == "failed" and len(outcomes) < 5):
        return call("pay", {"what": "a kettle"})
    return "done"


async def _lived(store: str, number: int, log: SideLog, points: Points) -> None:
    clock = SimulatedClock(BEGIN + timedelta(days=number))
    bank, agent = _Bank(clock, log, points), Agent("shop", ScriptedModel(_reply), tools=[pay])
    async with Runtime([agent], store=store, clock=clock, deps_for=lambda _: bank) as runtime:
        await runtime.recover()
        passing = asyncio.ensure_future(_pass_time(runtime, clock))
        try:
            outcome = await runtime.spawn("shop", id=ID).run("begin", message_id="1")
        finally:
            passing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await passing
        log.write("end", type(outcome).__name__)
        if isinstance(outcome, Completed):
            for doubt in outcome.state.doubts:
                log.write("doubt", doubt)
        log.write("served")


async def _pass_time(runtime: Runtime, clock: SimulatedClock) -> None:
    """Time passes while the agent waits."""
    while True:
        await asyncio.sleep(0.001)
        if await runtime.waiting():
            await clock.advance(10)


def _violations(log: SideLog) -> Iterator[str]:
    ends = {entry.of[0] for entry in log.read("end")}
    if ends != {"Completed"}:
        yield f"it ended as {sorted(ends)}"
    if log.read("doubt"):
        yield "T15: a doubt is left, and its check could have told"
    paid = Counter(entry.of[1] for entry in log.read("effect"))
    if paid != {"a kettle": 1}:
        yield f"T15: it paid for {dict(paid)}"

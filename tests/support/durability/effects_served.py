"""Rows in which a runtime, a store, a server of MCP or another host takes part."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from tests.support.durability.effects_rows import CELLS_WITH_EFFECTS, row
from tests.support.durability.effects_story import ORDER, Story, eager
from tests.support.loops import never, soon
from tests.support.plans import DAY, HOUR
from tests.support.postgres import Hosts
from tests.support.raw_mcp_server import Closed, RawServer, a_tool, text
from tests.support.scratch import scratch
from understudy import (
    Agent,
    AgentRef,
    Interrupted,
    Outcome,
    Runtime,
    SimulatedClock,
    ToolContext,
)
from understudy.actors import Future
from understudy.journal import DatabaseStore
from understudy.mcp import mcp_tools
from understudy.testing import Fault

__all__ = ["two_hosts"]


async def _served(story: Story, ref: AgentRef, outcome: Outcome | None) -> None:
    """Answer what a run asks, until it is over."""
    for _ in range(20):
        if not isinstance(outcome, Interrupted):
            break
        outcome = await soon(ref.resume(story.decide_all(outcome.requests)))
    assert outcome is not None
    story.told(outcome.state)
    page = await soon(ref.history(limit=1000))
    story.read(page.entries)


# ------------------------------------------------------------------------------ copies


def _copied(*, new_id: str | None) -> Any:
    """An agent is exported in the middle of a call, and a copy continues elsewhere."""

    async def play(story: Story) -> None:
        entered, returns = asyncio.Event(), asyncio.Event()

        async def pay(ctx: ToolContext[Any], order: str) -> str:
            told = story.act(ctx, order)
            if len(story.bank.requests) == 1:
                entered.set()
                await returns.wait()
            return told

        def build() -> Agent:
            return story.agent([story.tool(pay)])

        async with Runtime([build()]) as here, Runtime([build()]) as there:
            ref = here.spawn("desk", id="a")
            running: Future[Outcome] = ref.run("go")
            if story.cell.gated:
                asked = await soon(running)
                assert isinstance(asked, Interrupted)
                running = ref.resume(story.decide_all(asked.requests))
            await soon(entered.wait())
            data = await soon(here.export("a"))
            story.crashes += 1  # the copy is of a call that was cut off
            returns.set()
            await _served(story, ref, await soon(running))
            elsewhere = here if new_id else there
            copy = await soon(elsewhere.import_(data, id=new_id))
            await _served(story, copy, await soon(copy.outcome()))
        story.judge()

    return play


row("an export that comes back in another store", hole="a call that was cut off runs again")(
    _copied(new_id=None)
)
row("a copy of an agent, by an import of its export", hole="a call that was cut off runs again")(
    _copied(new_id="copy")
)


# --------------------------------------------------------------------------- schedules


def _scheduled(*faults: Fault) -> Any:
    async def play(story: Story) -> None:
        story.fails_by(*faults)
        clock = SimulatedClock()

        def today(order: str) -> str:
            return f"{order} of {clock.now().date()}"

        story.what_of = today
        story.payments = [f"{ORDER} of 2030-01-02", f"{ORDER} of 2030-01-03"]

        async def pay(ctx: ToolContext[Any], order: str) -> str:
            return story.act(ctx, today(order))

        with tempfile.TemporaryDirectory(dir=scratch()) as folder:
            store = f"sqlite:///{folder}/s.db"
            given: dict[str, Any] = {"store": store, "clock": clock}
            async with Runtime([story.agent([story.tool(pay)])], **given) as runtime:
                ref = runtime.spawn("desk", id="a")
                daily = {"cron": "0 9 * * *", "input": "Pay.", "overlap": "queue"}
                await soon(runtime.schedule(ref, "daily", **daily))  # type: ignore[arg-type]  # texts
                await soon(clock.advance(DAY))
                await _served(story, ref, await soon(ref.outcome()))
            for seconds in (HOUR, DAY - HOUR, HOUR):
                async with Runtime([story.agent([story.tool(pay)])], **given) as runtime:
                    await soon(runtime.recover())
                    await soon(clock.advance(seconds))
                    ref = runtime.get("a")
                    await _served(story, ref, await soon(ref.outcome()))
        story.judge()

    return play


row(
    "the occurrences of a schedule, with hosts that end between them", hole="an occurrence is twice"
)(_scheduled())
row("an occurrence after one whose answer was lost", hole="a doubt holds up nothing")(
    _scheduled(*[Fault.reset()] * 3)
)


# -------------------------------------------------------------------------------- keys


def _by_key(*faults: Fault) -> Any:
    """Two agents of one store are asked to pay for one order."""

    async def play(story: Story) -> None:
        story.fails_by(*faults)

        def key(arguments: Any) -> str:
            return f"order {arguments['order']}"

        def build(name: str) -> Agent:
            tools = [story.tool(key=key)]
            return Agent(name, eager(id=name), tools=tools)

        async with Runtime([build("first"), build("second")], store="memory:") as runtime:
            for name in ("first", "second"):
                ref = runtime.spawn(name, id=name)
                await _served(story, ref, await soon(ref.run("Pay.")))
        story.judge()

    return play


row("two agents that pay by one key", hole="keys are not taken", cells=CELLS_WITH_EFFECTS)(
    _by_key()
)
row(
    "two agents that pay by one key, and an answer that was lost",
    hole="keys are not taken",
    cells=CELLS_WITH_EFFECTS,
)(_by_key(*[Fault.reset()] * 3))


# --------------------------------------------------------------------------------- MCP


class _Bank(RawServer):
    """A server that pays, and whose connection ends in the middle of its first calls."""

    def __init__(self, story: Story, losses: int) -> None:
        super().__init__(a_tool("pay"))
        self._story, self._losses = story, losses

    async def answer(self, params: dict[str, Any]) -> dict[str, Any]:
        key = params["_meta"]["understudy/call_key"]
        told = self._story.answer(key, str(params["arguments"]["item"]))
        if len(self.calls) <= self._losses:
            raise Closed
        return text(told)


@row("an MCP server whose connection is lost", hole="each error is a failure")
async def _mcp(story: Story) -> None:
    server = _Bank(story, 1)
    policy: Any = {"pay": {"ask": story.cell.gated, "on_unknown": "tell", **story.declared}}
    tools = [*await mcp_tools(server.transport, id="bank", policy=policy)]
    await story.lived(lambda: story.agent(tools, model=eager(arguments={"item": ORDER})))
    story.judge()


# --------------------------------------------------------------------------- two hosts


async def two_hosts(story: Story, hosts: Hosts) -> None:
    """A host stands still in a body and loses its lease, and another one takes over."""
    entered = asyncio.Event()

    async def pay(ctx: ToolContext[Any], order: str) -> str:
        told = story.act(ctx, order)
        if len(story.bank.requests) == 1:
            entered.set()
            await never()
        return told

    def opened(name: str) -> Runtime:
        agent = story.agent([story.tool(pay)])
        return Runtime([agent], store=DatabaseStore(hosts.new(name)), sweep=None, stop_timeout=0.01)

    async with opened("here") as here, opened("there") as there:
        ref = here.spawn("desk", id="a")
        running = ref.run("go")
        if story.cell.gated:
            asked = await soon(running)
            assert isinstance(asked, Interrupted)
            ref.resume(story.decide_all(asked.requests))
        await soon(entered.wait())
        hosts.end_lease("here")
        story.crashes += 1
        await soon(there.recover())
        other = there.get("a")
        # The start of a look-up need not be durable: then nobody has heard of the run, either.
        outcome = await soon(other.outcome()) or await soon(other.run("go"))
        await _served(story, other, outcome)
    story.judge()

"""A store in which each table has rows, to be damaged."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.agents import by_turn
from understudy import Agent, Runtime, ToolContext, approve, call, tool
from understudy.actors.agent import message_ids
from understudy.journal import DatabaseStore, checkpoint_writer
from understudy.journal.backend import Backend
from understudy.middleware import Workspace
from understudy.notify import Notify
from understudy.trust import Budget, Rules, allow, calls, deny

__all__ = ["IDS", "fill"]

IDS = ("asks", "rests", "waits")
"""One that asks a person, one that is idle and has a schedule, one whose tool waits."""


def _agents() -> list[Agent]:
    @tool(key=lambda a: f"{a['amount']}", on_repeat="allow")
    def pay(amount: int) -> str:
        return f"paid {amount}"

    async def ship(ctx: ToolContext) -> str:
        return str(await ctx.wait_for("shipped", timeout=9 * 86_400.0))

    def turns() -> list[object]:
        return [call("pay", {"amount": 5}), "done", "nothing more"]

    return [
        Agent("desk", by_turn(*turns()), tools=[pay]),
        Agent(
            "gate",
            by_turn(call("pay", {"amount": 6}), *turns()),
            tools=[pay],
            interrupt_on={"pay": True},
        ),
        Agent("depot", by_turn(call("ship"), "done"), tools=[ship]),
    ]


def fill(backend: Backend) -> None:
    """Run the agents of `IDS` in it, and one that is deleted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_writer, "BYTES_PER_RECORD", 10**9)
        for name, few in (("KEPT", 0), ("AT_ONCE", 1), ("KEPT_FOR", timedelta(0))):
            patch.setattr(message_ids, name, few)
        store = DatabaseStore(backend, checkpoint_every=1)
        # What waits for a person has reserved there.
        free = Budget("free", calls("pay", 50))
        rules = Rules(deny("never_*"), allow("pay", within=free), version=1)
        budgets = [Budget("pays", calls("pay", 50))]
        notify = Notify(on_request=lambda notice: None)
        with Runtime(
            _agents(),
            store=store,
            feed=True,
            rules=rules,
            budgets=budgets,
            notify=notify,
            usage=True,
        ) as runtime:
            asks = runtime.spawn("gate", "asks")
            asks.run("pay").get(timeout=60)
            (first,) = runtime.pending().get(timeout=60)
            asks.resume({first.request.id: approve(by="ann")}).get(timeout=60)
            runtime.spawn("desk", "rests").run("pay", message_id="m1").get(timeout=60)
            runtime.get("rests").run("more", message_id="m2").get(timeout=60)
            runtime.spawn("depot", "waits").run("ship").get(timeout=60)
            Workspace.of(runtime.get("rests")).write("a.md", "text").get(timeout=60)
            [pending] = runtime.pending().get(timeout=60)
            runtime.comment("asks", pending.request.id, "Why?", by="ann").get(timeout=60)
            runtime.schedule("rests", "daily", cron="0 9 * * *", input="go").get(timeout=60)
            runtime.spawn("desk", "gone").run("pay").get(timeout=60)
            runtime.delete("gone").get(timeout=60)
            runtime.retire_rules(by="ann").get(timeout=60)

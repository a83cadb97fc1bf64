"""What is measured: counts, durations, and what a store is like now (O2, O5)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse

from tests.support.agents import FakeClock, Held, by_turn, completed, interrupted
from tests.support.hosts import host, opened
from tests.support.inline_engine import Inline
from tests.support.loops import soon
from tests.support.otel import Told, attributes_of, id_of, parent_of
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Failed,
    Interrupt,
    Price,
    Run,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.cluster import Cluster, Definitions
from understudy.errors import Fenced
from understudy.middleware import Middleware, SubAgent
from understudy.telemetry import TraceContext, conventions
from understudy.trust import Budget, calls


@tool(ask=True)
def pay(order: str) -> str:
    """Pay it."""
    return "paid"


@tool
async def courier(order: str) -> str:
    """Send a courier."""
    raise SystemExit("the process is gone")


PAY = call("pay", {"order": "17"})
COURIER = call("courier", {"order": "17"})


def desk(*turns: Any) -> Agent:
    return Agent("desk", by_turn(*turns), tools=[pay, courier])


async def test_runs_calls_models_and_waits_have_durations(tmp_path: Path) -> None:
    """O5."""
    told, clock = Told(), FakeClock()
    store = f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime(
        [desk(PAY, PAY)], store=store, clock=clock, telemetry=told.telemetry
    ) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        clock.advance(60)
        asked = interrupted(await soon(ref.resume(asked.decide(approve()))))
        clock.advance(30)
        completed(await soon(ref.resume(asked.decide(reject()))))

    (run,) = told.metrics("understudy.run.duration")
    assert (run.count, run.sum, run.attributes["understudy.outcome"]) == (1, 90.0, "completed")
    waits = {
        point.attributes["understudy.decision"]: point.sum
        for point in told.metrics("understudy.request.wait")
    }
    assert waits == {"approve": 60.0, "reject": 30.0}
    assert told.number("understudy.run.attempt.duration", outcome="interrupted") == 2
    assert told.number("gen_ai.execute_tool.duration", tool="pay") == 1
    assert told.number("gen_ai.client.operation.duration", operation="chat") == 3
    assert told.number("gen_ai.client.token.usage", type="input") == 3
    assert told.number("understudy.requests", tool="pay", kind="approval") == 2
    assert (told.number("understudy.commit.duration") or 0) > 0


async def test_the_gauges_tell_what_the_store_is_like_now() -> None:
    told, clock = Told(), FakeClock()
    async with Runtime([desk(PAY)], clock=clock, telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        clock.advance(3600)

        def read() -> tuple[float | None, ...]:
            return (
                told.number("understudy.requests.open", kind="approval"),
                told.number("understudy.requests.oldest"),
                told.number("understudy.agents", status="interrupted"),
                told.number("understudy.doubts.open"),
                told.number("understudy.quarantined"),
                told.number("understudy.dues.overdue"),
            )

        assert await asyncio.to_thread(read) == (1, 3600.0, 1, 0, 0, 0)
        completed(await soon(ref.resume(asked.decide(approve()))))
        assert await asyncio.to_thread(read) == (0, 0.0, 0, 0, 0, 0)
    assert told.number("understudy.requests.oldest") is None, "the runtime is gone"


async def test_runtimes_of_one_process_are_told_of_together() -> None:
    told, clock = Told(), FakeClock()
    options: Any = {"clock": clock, "telemetry": told.telemetry}
    async with Runtime([desk(PAY)], **options) as one, Runtime([desk(PAY)], **options) as two:
        interrupted(await soon(one.spawn("desk", id="a").run("Hi.")))
        clock.advance(60)
        interrupted(await soon(two.spawn("desk", id="b").run("Hi.")))

        def read() -> tuple[float | None, ...]:
            return (
                told.number("understudy.requests.open", kind="approval"),
                told.number("understudy.agents", status="interrupted"),
                told.number("understudy.requests.oldest"),
            )

        assert await asyncio.to_thread(read) == (2, 2, 60.0)


async def test_who_collects_on_the_loop_of_the_runtime_waits_for_nothing() -> None:
    told = Told(gauge_seconds=3600.0)
    async with Runtime([desk()], telemetry=told.telemetry) as runtime:
        runtime.spawn("desk", id="a")
        assert told.number("understudy.requests.oldest") is None  # it is read from now on
        assert await asyncio.to_thread(told.number, "understudy.requests.oldest") == 0.0


def test_a_collection_waits_once_for_a_loop_that_is_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O5."""
    waits = list[Any]()

    def gives_up(futures: Any, timeout: float) -> Any:
        waits.append(futures)
        return concurrent.futures.wait(futures, timeout=0)

    monkeypatch.setattr("understudy.telemetry.gauges.wait", gives_up)
    told, entered, release = Told(), threading.Event(), threading.Event()

    @tool(inline=True)
    def block() -> str:
        """Block the loop."""
        entered.set()
        release.wait()
        return "done"

    agent = Agent("desk", by_turn(call("block")), tools=[block])
    with Runtime([agent], telemetry=told.telemetry) as runtime:
        run = runtime.spawn("desk", id="a").run("Hi.")
        assert entered.wait(timeout=60)
        try:
            assert told.number("understudy.requests.oldest") is None
            assert len(waits) == 1
        finally:
            release.set()
        completed(run.get(timeout=60))


async def test_doubts_and_quarantines_are_counted() -> None:
    told = Told()
    asks = Agent("asks", by_turn(COURIER), tools=[courier], interrupt_on={"courier": True})
    sick = Agent("sick", ScriptedModel(lambda _: SystemExit("bang")))
    async with Runtime([asks, sick], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("asks", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        doubted = interrupted(await soon(ref.resume(asked.decide(approve()))))
        assert isinstance(await soon(runtime.spawn("sick", id="s").run("Hi.")), Failed)

        def read() -> tuple[float | None, ...]:
            return (
                told.number("understudy.doubts", tool="courier", doubt="asked"),
                told.number("understudy.doubts.open", doubt="asked"),
                told.number("understudy.doubts.open", doubt="told"),
                told.number("understudy.quarantines"),
                told.number("understudy.quarantined"),
            )

        assert await asyncio.to_thread(read) == (1, 1, 0, 1, 1)
        completed(await soon(ref.resume(doubted.decide(respond("it has left")))))
        assert await asyncio.to_thread(read) == (1, 0, 0, 1, 1)


async def test_what_is_recorded_as_paid_is_counted_once() -> None:
    """O5: also of an agent inside, and of a reply about which a person is asked."""

    class AsksAboutTheLastReply(Middleware):
        async def after_model(self, run: Run, reply: ModelResponse) -> None:
            if reply.text == "done" and run.answer("right") is None:
                raise Interrupt("Is this right?", key="right", allowed=["approve"])

    told = Told()
    helper = Agent("helper", by_turn())
    task = call("task", {"task_name": "helper", "instructions": "Help."})
    boss = Agent(
        "boss",
        by_turn(task, "done"),
        middleware=[SubAgent(agents=[helper]), AsksAboutTheLastReply()],
    )
    prices = {"scripted": Price(input=1_000_000, output=0)}
    async with Runtime([boss], pricing=prices, telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("boss", id="b")
        asked = interrupted(await soon(ref.run("Hi.")))
        outcome = completed(await soon(ref.resume(asked.decide(approve()))))

    assert outcome.cost is not None
    assert told.number("understudy.cost", agent="helper") == 1
    assert told.number("understudy.cost") == float(outcome.cost.usd or 0) == 3


async def test_a_doubt_that_the_model_is_told_of_is_counted() -> None:
    told = Told()
    async with Runtime([desk(COURIER)], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("Hi.")))
        (key,) = (await soon(ref.state())).doubts_in_tree

        def read() -> tuple[float | None, ...]:
            kinds = ("told", "asked")
            return tuple(told.number("understudy.doubts.open", doubt=kind) for kind in kinds)

        assert await asyncio.to_thread(read) == (1, 0)
        await soon(ref.settle(key, how="it has left"))
        assert await asyncio.to_thread(read) == (0, 0)

    assert told.number("understudy.doubts", tool="courier", doubt="told") == 1
    assert told.number("understudy.doubts.settled") == 1
    assert told.number("understudy.doubts.ended") is None


async def test_a_doubt_that_ends_and_that_nobody_has_settled_is_counted_as_such() -> None:
    told, clock = Told(), SimulatedClock()
    agent = desk(COURIER)
    async with Runtime([agent], clock=clock, telemetry=told.telemetry, doubt_ends=60) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Hi.")))
        await soon(clock.advance(60))
        assert await soon(runtime.doubts()) == []

    assert told.number("understudy.doubts.ended") == 1
    assert told.number("understudy.doubts.settled") is None


@pytest.mark.quick
async def test_a_run_that_another_host_takes_over_is_counted_at_both(hosts: Hosts) -> None:
    here, there, held = Told(), Told(), Held()

    @tool
    async def slow() -> str:
        """Be slow."""
        await held.wait()
        return "late"

    def agent() -> Agent:
        return Agent("desk", by_turn(call("slow"), "went on"), tools=[slow])

    first = opened(host(hosts, "first"), agent(), any_host=False, telemetry=here.telemetry)
    second = opened(host(hosts, "second"), agent(), any_host=False, telemetry=there.telemetry)
    async with first, second:
        run = first.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        hosts.end_lease("first")
        (ref,) = await soon(second.recover())
        outcome = await soon(ref.outcome())
        assert outcome is not None
        completed(outcome)
        held.release.set()
        with pytest.raises(Fenced):
            await soon(run)

    assert there.number("understudy.takeovers", agent="desk") == 1
    assert here.number("understudy.takeovers") is None
    assert here.number("understudy.fences", agent="desk") == 1
    (lost,), (went_on,) = here.spans("invoke_agent"), there.spans("invoke_agent")
    assert attributes_of(lost)["understudy.outcome"] == "fenced"
    assert [event.name for event in lost.events] == ["understudy.fenced"]
    assert [link.context.span_id for link in went_on.links] == [id_of(lost)]


async def test_a_wait_that_is_decided_at_another_host_is_told_once(hosts: Hosts) -> None:
    here, there = Told(), Told()
    first = opened(host(hosts, "first"), desk(PAY), any_host=True, telemetry=here.telemetry)
    second = opened(host(hosts, "second"), desk(PAY), any_host=True, telemetry=there.telemetry)
    async with second:
        async with first:
            with here.caller("chat"):
                run = first.spawn("desk", "t").run("go")
            asked = interrupted(await soon(run))
        with there.caller("approvals") as decides:
            decided = second.get("t").resume(asked.decide(approve()))
        completed(await soon(decided))

    (asks,), (pays,) = here.spans("invoke_agent"), there.spans("invoke_agent")
    assert here.spans("wait_for_person") == []
    waited = there.one("wait_for_person pay")
    assert parent_of(waited) == id_of(asks)
    assert [link.context.span_id for link in waited.links] == [id_of(decides)]
    assert [link.context.span_id for link in pays.links] == [id_of(asks)]
    assert parent_of(pays) == id_of(decides)
    assert there.number("understudy.request.wait", tool="pay") == 1
    assert there.number("understudy.takeovers", agent="desk") == 1
    assert (here.number("understudy.run.duration"), there.number("understudy.run.duration")) == (
        None,
        1,
    )


_of_cluster = Told()


def made() -> Definitions:
    """What the host of a cluster runs."""
    return Definitions([desk()], telemetry=_of_cluster.telemetry)


def test_the_hosts_of_a_cluster_have_telemetry_of_their_own(tmp_path: Path) -> None:
    store, factory = f"sqlite:///{tmp_path}/store.db", f"{__name__}:made"
    with (
        Cluster(factory, 1, store=store, engine=Inline(), context=[TraceContext()]) as cluster,
        _of_cluster.caller("request") as request,
    ):
        completed(cluster.spawn("desk", "c").run("Hi.").get(timeout=60))

    assert parent_of(_of_cluster.one("invoke_agent")) == id_of(request)


def test_each_metric_has_one_name_and_one_unit() -> None:
    names = [metric.name for metric in conventions.METRICS]
    assert len(set(names)) == len(names)
    seconds: Mapping[str, str] = {
        metric.name: metric.unit
        for metric in conventions.METRICS
        if metric.name.endswith((".duration", ".wait", ".oldest"))
    }
    assert set(seconds.values()) == {"s"}


async def test_what_is_used_of_budgets_is_told_and_what_they_refuse_is_counted() -> None:
    """O2: of a budget for each tool by its key; of one for each agent not at all."""
    told = Told()
    twice = [call("pay", {"order": "17"}), call("courier", {"order": "17"}), "Done."]

    @tool(name="courier")
    def sends(order: str) -> str:
        """Send a courier."""
        return "sent"

    agent = Agent("desk", by_turn(*twice), tools=[pay, sends], interrupt_on={"pay": False})
    budgets = [
        Budget("mails", calls("courier", 1), at_limit="ask"),
        Budget("tools", calls("*", 10), per="tool"),
        Budget("agents", calls("*", 10), per="agent"),
    ]
    async with Runtime([agent], telemetry=told.telemetry, budgets=budgets) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Hi.")))
        interrupted(await soon(runtime.spawn("desk", id="b").run("Hi.")))
        await soon(runtime.raise_budget("mails", "0.5", why="more"))

        def read() -> tuple[float | None, ...]:
            return (
                told.number("understudy.budget.used", budget="mails"),
                told.number("understudy.budget.limit", budget="mails", unit="calls"),
                told.number("understudy.budget.used", budget="tools", key="tool=pay"),
                told.number("understudy.budget.used", budget="agents"),
                told.number("understudy.budget.refusals", budget="mails"),
            )

        assert await asyncio.to_thread(read) == (1, 1.5, 2, None, 1)

"""Tools that sleep and wait for the outside, while other calls of the same reply run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from tenacity import AsyncRetrying, wait_fixed

from tests.support.agents import (
    FakeClock,
    Held,
    by_turn,
    completed,
    interrupted,
    results,
    until_status,
    wake,
)
from tests.support.loops import soon, until
from tests.support.places import Place
from tests.support.plans import HOUR, left_after, outcome_of
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Halt,
    Interrupt,
    Outcome,
    Paused,
    Runtime,
    SimulatedClock,
    Status,
    StopAgent,
    Stopped,
    StopSignal,
    Tool,
    ToolContext,
    Waiting,
    call,
    events,
    respond,
    tool,
)
from understudy.errors import Expired
from understudy.journal import MemoryStore
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import Haltable
from understudy.modes import Parallel
from understudy.state.records import Record


class Desk:
    """An agent whose reply has calls that wait, and one that runs until it is released."""

    def __init__(self) -> None:
        self.held = Held()
        self.token = ""
        self.begun = list[str]()
        """The names of the tools, each time that one is entered."""
        self.done = list[str]()
        """What the tools came to behind their points."""

    @property
    def tools(self) -> list[Tool]:
        @tool
        async def nap(ctx: ToolContext, seconds: float = HOUR) -> str:
            self.begun.append("nap")
            await ctx.sleep("nap", seconds)
            await ctx.once("wake", lambda: self.done.append(f"nap {seconds:g}"))
            return "slept"

        @tool
        async def pay(ctx: ToolContext) -> str:
            self.begun.append("pay")
            self.token = await ctx.token("paid")
            who = await ctx.wait_for("paid")
            self.done.append(f"paid by {who}")
            return f"paid by {who}"

        @tool
        async def work() -> str:
            await self.held.wait()
            return "worked"

        return [nap, pay, work]

    def agent(self, turns: Sequence[Any], *tools: Any, **options: Any) -> Agent:
        return Agent("desk", by_turn(turns), tools=[*self.tools, *tools], **options)

    def inside(self, where: str, calls: Sequence[Any]) -> Agent:
        """An agent whose calls, or agents, these are, beside the one that works."""
        if where == "beside":
            return self.agent([*calls, call("work", {})])
        inner = Agent("inner", by_turn(calls, "Done."), tools=self.tools)
        if where == "a branch":
            worker = Agent("worker", by_turn(call("work", {}), "Done."), tools=self.tools)
            return Agent("desk", mode=Parallel([inner, worker]))

        @tool
        async def delegate(ctx: ToolContext) -> str:
            return completed(await ctx.run_agent(inner, "Do it.")).text

        return self.agent([call("delegate", {}), call("work", {})], delegate)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def texts(outcome: Outcome) -> list[Any]:
    return [part.content for part in results(outcome.state)]


async def waits(ref: AgentRef, number: int) -> None:
    """Return when so many calls have come to their points since now."""
    subscription = ref.events()
    try:
        async with asyncio.timeout(60):
            async for each in subscription:
                number -= isinstance(each.event, events.WaitStarted)
                if not number:
                    return
    finally:
        subscription.close()


async def history(ref: AgentRef) -> list[str]:
    """What happened to the agent and to those that it runs, in order."""
    return [entry.what for entry in (await ref.history(limit=1000)).entries]


async def begun(runtime: Runtime, desk: Desk, number: int = 1) -> tuple[AgentRef, Any]:
    """A run in which one call works and so many wait, and its future."""
    ref = runtime.spawn("desk", id="a")
    waiting = asyncio.ensure_future(waits(ref, number))
    await asyncio.sleep(0)
    outcome = ref.run("Go.")
    await soon(waiting)
    await soon(desk.held.entered.wait())
    return ref, outcome


# ------------------------------------------------------------------- it is on time

WHERE = ["beside", "in a sub-agent", "a branch"]


@pytest.mark.parametrize("where", WHERE)
async def test_a_sleep_that_is_over_goes_on_while_what_is_beside_it_runs(
    desk: Desk, clock: SimulatedClock, place: Place, where: str
) -> None:
    """J22: beside another call of the reply, in a sub-agent beside one, in a branch."""
    agent = desk.inside(where, [call("nap", {})])
    async with Runtime([agent], clock=clock, store=place.store()) as runtime:
        ref, outcome = await begun(runtime, desk)
        await soon(clock.advance(HOUR - 1))
        assert desk.done == []
        await soon(clock.advance(1))
        await until(lambda: desk.done == ["nap 3600"])
        assert ref.status() is Status.RUNNING
        desk.held.release.set()
        completed(await soon(outcome))
        found = await history(ref)
    assert desk.begun == ["nap", "nap"]
    assert [what for what in found if what in ("wait_started", "wait_over")] == [
        "wait_started",
        "wait_over",
    ]


@pytest.mark.parametrize("where", WHERE)
async def test_an_answer_goes_on_while_what_is_beside_it_runs(
    desk: Desk, place: Place, where: str
) -> None:
    """J22: as a sleep that is over."""
    agent = desk.inside(where, [call("pay", {})])
    async with Runtime([agent], store=place.store()) as runtime:
        _, outcome = await begun(runtime, desk)
        assert await soon(runtime.resolve(desk.token, "ann"))
        await until(lambda: desk.done == ["paid by ann"])
        desk.held.release.set()
        completed(await soon(outcome))
    assert desk.begun == ["pay", "pay"]


@pytest.mark.quick
async def test_an_answer_that_is_posted_by_another_host_goes_on_at_once(
    desk: Desk, hosts: Hosts
) -> None:
    agent = desk.agent([call("pay", {}), call("work", {})])
    here, there = DatabaseStore(hosts.new("here")), DatabaseStore(hosts.new("there"))
    async with (
        Runtime([agent], store=here, sweep=None) as first,
        Runtime([agent], store=there, sweep=None) as second,
    ):
        _, outcome = await begun(first, desk)
        assert await soon(second.resolve(desk.token, "ann"))
        assert await soon(second.resolve(desk.token, "ann"))
        assert not await soon(second.resolve(desk.token, "ben"))
        await until(lambda: desk.done == ["paid by ann"])
        desk.held.release.set()
        assert texts(await soon(outcome)) == ["paid by ann", "worked"]


async def test_a_tool_that_sleeps_again_and_again_is_on_time_each_time(
    desk: Desk, clock: SimulatedClock
) -> None:
    @tool
    async def poll(ctx: ToolContext) -> str:
        for n in range(5):
            await ctx.sleep(f"wait {n}", HOUR)
            await ctx.once(f"look {n}", lambda: desk.done.append("looked"))
        return "polled"

    agent = desk.agent(
        [call("poll", {}), call("nap", {"seconds": 2.5 * HOUR}), call("work", {})], poll
    )
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await begun(runtime, desk, 2)
        for n in range(1, 6):
            waiting = asyncio.ensure_future(waits(ref, 1))
            await asyncio.sleep(0)
            await soon(clock.advance(HOUR))
            await until(lambda: desk.done.count("looked") == n)  # noqa: B023
            if n < 5:
                await soon(waiting)
        assert desk.done.index("nap 9000") == 2
        desk.held.release.set()
        assert texts(await soon(outcome)) == ["polled", "slept", "worked"]


async def test_a_call_that_waits_since_an_earlier_attempt_is_on_time(
    desk: Desk, clock: SimulatedClock, place: Place
) -> None:
    """The first that wakes keeps the run under way, when the second is due."""

    @tool
    async def early(ctx: ToolContext) -> str:
        await ctx.sleep("early", HOUR)
        await desk.held.wait()
        return "worked"

    agent = desk.agent([call("nap", {"seconds": 2 * HOUR}), call("early", {})], early)
    async with Runtime([agent], clock=clock, store=place.store()) as runtime:
        ref = runtime.spawn("desk", id="a")
        outcome = ref.run("Go.")
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(HOUR))
        await soon(desk.held.entered.wait())
        await soon(clock.advance(HOUR))
        await until(lambda: desk.done == ["nap 7200"])
        desk.held.release.set()
        assert texts(await soon(outcome)) == ["slept", "worked"]


async def test_a_retry_by_a_due_is_on_time_while_another_call_runs(
    desk: Desk, clock: SimulatedClock
) -> None:
    @tool(idempotent=True, retry=AsyncRetrying(wait=wait_fixed(HOUR)))
    async def flaky() -> str:
        desk.done.append("tried")
        if len(desk.done) == 1:
            raise ConnectionError("away")
        return "fetched"

    agent = desk.agent([call("flaky", {}), call("work", {})], flaky)
    async with Runtime([agent], clock=clock) as runtime:
        _, outcome = await begun(runtime, desk)
        await soon(clock.advance(HOUR))
        await until(lambda: len(desk.done) == 2)
        desk.held.release.set()
        assert texts(await soon(outcome)) == ["fetched", "worked"]


async def test_it_is_on_time_while_a_person_is_asked_about_a_third_call(
    desk: Desk, clock: SimulatedClock
) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        if not ctx.resumed:
            raise Interrupt("Which one?")
        return f"this is {ctx.resume_value}"

    agent = desk.agent([call("ask", {}), call("nap", {}), call("work", {})], ask)
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await begun(runtime, desk)
        await soon(clock.advance(HOUR))
        await until(lambda: desk.done == ["nap 3600"])
        desk.held.release.set()
        (request,) = interrupted(await soon(outcome)).requests
        ended = await soon(ref.resume({request.id: respond("17")}))
        assert texts(ended) == ["this is 17", "slept", "worked"]


async def test_without_a_runtime_it_is_on_time_as_well(desk: Desk, clock: SimulatedClock) -> None:
    run = asyncio.ensure_future(
        desk.agent([call("nap", {}), call("work", {})]).execute("Go.", clock=clock)
    )
    await soon(desk.held.entered.wait())
    await soon(clock.advance(HOUR))
    await until(lambda: desk.done == ["nap 3600"])
    desk.held.release.set()
    assert texts(await soon(run)) == ["slept", "worked"]


async def test_the_time_of_the_machine_is_what_counts(desk: Desk) -> None:
    async with Runtime([desk.agent([call("nap", {"seconds": 0.01}), call("work", {})])]) as runtime:
        _, outcome = await begun(runtime, desk)
        await until(lambda: desk.done == ["nap 0.01"])
        desk.held.release.set()
        assert texts(await soon(outcome)) == ["slept", "worked"]


async def test_a_clock_that_is_set_forward_is_noticed_beside_a_call(desk: Desk) -> None:
    clock = FakeClock()
    async with Runtime([desk.agent([call("nap", {}), call("work", {})])], clock=clock) as runtime:
        _, outcome = await begun(runtime, desk)
        clock.advance(2 * HOUR)
        await until(lambda: desk.done == ["nap 3600"])
        desk.held.release.set()
        assert texts(await soon(outcome)) == ["slept", "worked"]


@pytest.mark.slow
async def test_a_clock_that_raises_for_a_while_is_asked_again_beside_a_call(desk: Desk) -> None:
    """J22: also where it raises a `SystemExit`, which would end the loop."""

    class FailingClock(FakeClock):
        fails, failures = False, 0

        def now(self) -> datetime:
            if self.fails:
                self.failures += 1
                raise SystemExit
            return super().now()

    clock = FailingClock()
    agent = desk.agent([call("nap", {}), call("work", {})])
    run = asyncio.ensure_future(agent.execute("Go.", clock=clock))
    await soon(desk.held.entered.wait())
    await until(lambda: desk.begun == ["nap"])
    for _ in range(20):  # it comes to its point
        await asyncio.sleep(0)
    clock.fails = True
    await until(lambda: clock.failures > 0)
    clock.fails = False
    clock.advance(HOUR)
    await until(lambda: desk.done == ["nap 3600"])
    desk.held.release.set()
    assert texts(await soon(run)) == ["slept", "worked"]


# ------------------------------------------------------------- what does not go on


async def test_a_sequential_call_runs_alone_also_after_its_sleep(
    desk: Desk, clock: SimulatedClock
) -> None:
    """T1: neither does it go on beside another call, nor another one beside it."""

    @tool(sequential=True)
    async def alone(ctx: ToolContext) -> str:
        await ctx.sleep("before", HOUR)
        desk.done.append("alone")
        return "alone"

    @tool(sequential=True)
    async def lock() -> str:
        await lone.wait()
        desk.done.append("unlocked")
        return "unlocked"

    lone = Held()
    calls = [call("nap", {}), call("lock", {}), call("alone", {}), call("work", {})]
    async with Runtime([desk.agent(calls, alone, lock)], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        outcome = ref.run("Go.")
        await soon(lone.entered.wait())
        await soon(clock.advance(HOUR))
        assert desk.done == []
        lone.release.set()
        await until(lambda: desk.done == ["unlocked", "nap 3600"])
        await soon(desk.held.entered.wait())
        await soon(clock.advance(HOUR))
        for _ in range(100):
            await asyncio.sleep(0)
        assert desk.done == ["unlocked", "nap 3600"]
        desk.held.release.set()
        assert texts(await soon(outcome)) == ["slept", "unlocked", "alone", "worked"]
    assert desk.done == ["unlocked", "nap 3600", "alone"]


@pytest.mark.parametrize("how", ["stops", "halts"])
async def test_nothing_goes_on_once_a_call_has_stopped_the_run(
    desk: Desk, clock: SimulatedClock, how: str
) -> None:
    """P6, I11: the calls that run finish, and none starts."""
    stopping = Held()

    @tool
    async def end() -> str:
        await stopping.wait()
        raise Halt("enough") if how == "halts" else StopAgent(StopSignal.error("enough"))

    calls = [call("nap", {}), call("end", {}), call("work", {})]
    agent = desk.agent(calls, end, middleware=[Haltable()])
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await begun(runtime, desk)
        told = ref.events()
        stopping.release.set()
        async for each in told:
            if isinstance(each.event, events.ToolEnded):
                break
        await soon(clock.advance(HOUR))
        desk.held.release.set()
        ended = await soon(outcome)
        assert isinstance(ended, Stopped) is (how == "stops")
    assert desk.begun == ["nap"]
    assert desk.done == []


async def test_an_agent_that_is_to_leave_memory_starts_nothing_any_more(
    desk: Desk, clock: SimulatedClock, place: Place
) -> None:
    agent = desk.agent([call("nap", {}), call("work", {})])
    async with Runtime([agent], clock=clock, store=place.store()) as runtime:
        ref, outcome = await begun(runtime, desk)
        stopped = ref.stop(block=False)
        await soon(clock.advance(HOUR))
        assert desk.begun == ["nap"]
        desk.held.release.set()
        assert await soon(stopped)
        assert texts(await soon(outcome)) == ["slept", "worked"]
    assert desk.done == ["nap 3600"]


# ------------------------------------------- cancelled, paused, crashed at that time


async def test_a_cancel_ends_what_woke_and_what_waits(
    desk: Desk, clock: SimulatedClock, place: Place
) -> None:
    woken = Held()

    @tool
    async def doze(ctx: ToolContext) -> str:
        await ctx.sleep("doze", HOUR)
        await woken.wait()
        return "dozed"

    calls = [call("doze", {}), call("pay", {}), call("work", {})]
    async with Runtime([desk.agent(calls, doze)], clock=clock, store=place.store()) as runtime:
        ref, outcome = await begun(runtime, desk, 2)
        await soon(clock.advance(HOUR))
        await soon(woken.entered.wait())
        ended = await soon(ref.cancel())
        assert isinstance(ended, Stopped)
        assert await soon(outcome) == ended
        with pytest.raises(Expired):
            await soon(runtime.resolve(desk.token, "ann"))
        assert (await history(ref)).count("wait_over") == 1
    doubts = [doubt.tool_name for doubt in ended.state.doubts.values()]
    assert sorted(doubts) == ["doze", "work"]


async def test_a_cancel_at_the_time_of_a_due_leaves_nobody_waiting_for_the_clock() -> None:
    """In each turn of the loop, from when it is asked for until the run has ended."""
    for turns in range(30):
        desk, clock = Desk(), SimulatedClock()
        agent = desk.agent([call("nap", {}), call("work", {})])
        async with Runtime([agent], clock=clock) as runtime:
            ref, outcome = await begun(runtime, desk)
            cancelled = ref.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            await soon(clock.advance(HOUR))
            assert isinstance(await soon(cancelled), Stopped)
            await soon(outcome)


class LateClock(FakeClock):
    """A clock that tells of a time though the timer was cancelled, as one of another thread may."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[Callable[[Callable[[], None]], None]] = []

    def call_at(
        self, at: datetime, callback: Callable[[Callable[[], None]], None]
    ) -> Callable[[], None]:
        self.timers.append(callback)
        return lambda: None


async def test_a_time_that_comes_when_the_calls_have_ended_is_handled(desk: Desk) -> None:
    clock, handled = LateClock(), Held()
    agent = desk.agent([call("nap", {}), call("work", {})])
    run = asyncio.ensure_future(agent.execute("Go.", clock=clock))
    await until(lambda: bool(clock.timers))
    desk.held.release.set()
    assert isinstance(await soon(run), Waiting)
    (timer,) = clock.timers
    timer(handled.entered.set)
    await soon(handled.entered.wait())


async def test_a_pause_that_is_asked_for_meanwhile_comes_after_the_reply(
    desk: Desk, clock: SimulatedClock, place: Place
) -> None:
    calls = [call("nap", {}), call("work", {})]
    agent = Agent("desk", by_turn(calls, call("nap", {}), "Done."), tools=desk.tools)
    async with Runtime([agent], clock=clock, store=place.store()) as runtime:
        ref, outcome = await begun(runtime, desk)
        await soon(ref.pause("wait"))
        await soon(clock.advance(HOUR))
        await until(lambda: desk.done == ["nap 3600"])
        desk.held.release.set()
        assert isinstance(await soon(outcome), Paused)
        assert texts(await outcome_of(ref)) == ["slept", "worked"]
        await soon(ref.unpause())
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(HOUR))
        assert texts(await outcome_of(ref)) == ["slept", "worked", "slept"]


async def test_a_crash_after_it_woke_leaves_both_calls_in_doubt_and_repeats_neither(
    desk: Desk, clock: SimulatedClock, place: Place
) -> None:
    woken = Held()

    @tool
    async def doze(ctx: ToolContext) -> str:
        desk.begun.append("doze")
        await ctx.sleep("doze", HOUR)
        await ctx.once("wake", lambda: desk.done.append("woke"))
        await woken.wait()
        return "dozed"

    calls = [call("doze", {}), call("pay", {}), call("work", {})]
    agent = desk.agent(calls, doze)
    options: Any = {"clock": clock, "stop_timeout": 0.01}
    async with Runtime([agent], store=place.store(), **options) as first:
        await begun(first, desk, 2)
        await soon(clock.advance(HOUR))
        await soon(woken.entered.wait())
        left = place.after_crash()
        async with Runtime([agent], store=left, **options) as second:
            await second.recover()
            ref = second.get("a")
            await wake(ref)
            await until_status(ref, Status.WAITING)
            assert await soon(second.resolve(desk.token, "ann"))
            ended = completed(await outcome_of(ref))
            assert (await history(ref)).count("wait_over") == 2
    assert sorted(d.tool_name for d in ended.state.doubts.values()) == ["doze", "work"]
    assert texts(ended)[1] == "paid by ann"
    assert desk.begun == ["doze", "pay", "doze", "pay"]
    assert desk.done == ["woke", "paid by ann"]


async def test_a_host_that_goes_away_at_any_record_of_it_loses_and_doubles_nothing(
    clock: SimulatedClock,
) -> None:
    """Each prefix of the records goes on elsewhere: to the same end, or to a told doubt."""
    desk, store = Desk(), MemoryStore()
    calls = [call("nap", {}), call("pay", {}), call("work", {})]
    async with Runtime([desk.agent(calls)], store=store, clock=clock) as runtime:
        _, outcome = await begun(runtime, desk, 2)
        await soon(clock.advance(HOUR))
        await until(lambda: desk.done == ["nap 3600"])
        first_token = desk.token
        assert await soon(runtime.resolve(first_token, "ann"))
        await until(lambda: len(desk.done) == 2)
        desk.held.release.set()
        expected = texts(await soon(outcome))
    loaded = await store.load("a")
    assert loaded is not None
    names = [record.kind for record in loaded.records]
    for cut in range(names.index("run_started") + 1, len(names) + 1):
        desk, before = Desk(), loaded.records[:cut]
        desk.held.release.set()
        left = await left_after(before)
        again = SimulatedClock(clock.now())
        async with Runtime([desk.agent(calls)], store=left, clock=again) as runtime:
            await runtime.recover()
            ref = runtime.get("a")
            await wake(ref)
            while await until_status(ref, Status.WAITING, Status.IDLE) is Status.WAITING:
                if [wait.name for wait in await runtime.waiting()] == ["paid"]:
                    token = first_token if "token_made" in names[:cut] else desk.token
                    assert await soon(runtime.resolve(token, "ann"))
                    await until_status(ref, Status.IDLE)
                else:
                    await soon(again.advance(HOUR))
            ended = completed(await outcome_of(ref))
        doubtful = {doubt.call_key for doubt in ended.state.doubts.values()}
        for part, same, key in zip(texts(ended), expected, keys_of(ended), strict=True):
            assert part == same or ("unknown" in part and key in doubtful), names[:cut]
        woke = any(r.kind == "point_answered" and r.what == "once" for r in before)
        assert not (woke and "nap 3600" in desk.done)
        assert desk.done.count("nap 3600") < 2


def keys_of(outcome: Outcome) -> list[str]:
    """The keys of the calls of the first reply."""
    return [f"{outcome.run_id}.0.{index}" for index in range(len(results(outcome.state)))]


@pytest.mark.parametrize("where", WHERE[1:])
async def test_what_is_paused_where_it_would_go_on_goes_in_no_circle(
    desk: Desk, where: str
) -> None:
    """The agent that waits finds that a pause was asked for, in the middle of its reply."""
    async with Runtime([desk.inside(where, [call("pay", {})])]) as runtime:
        ref, outcome = await begun(runtime, desk)
        await soon(ref.pause("wait"))
        assert await soon(runtime.resolve(desk.token, "ann"))
        async with asyncio.timeout(60):
            while "paused" not in await history(ref):
                pass
        for _ in range(100):
            await asyncio.sleep(0)
        assert (await history(ref)).count("attempt_started") < 5
        assert desk.done == []
        desk.held.release.set()
        assert isinstance(await soon(outcome), Paused)
        await soon(ref.unpause())
        completed(await outcome_of(ref))
    assert desk.done == ["paid by ann"]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("ends", ["answer", "sleep"])
async def test_what_is_over_inside_a_call_that_asks_goes_on_with_the_answer(
    desk: Desk, clock: SimulatedClock, ends: str, beside: bool
) -> None:
    """J22: the call runs an agent that waits, and asks a person itself: the run comes to rest."""
    turn = call("pay", {}) if ends == "answer" else call("nap", {})
    inner = Agent("inner", by_turn(turn, "Done."), tools=desk.tools)

    @tool
    async def both(ctx: ToolContext) -> str:
        async def ask() -> None:
            if not ctx.resumed:
                raise Interrupt("Which one?")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.run_agent(inner, "Do it."))
            tasks.create_task(ask())
        return "both"

    calls = [call("both", {}), *([call("work", {})] if beside else [])]
    async with Runtime([desk.agent(calls, both)], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        run = ref.run("Go.")
        if beside:
            await soon(desk.held.entered.wait())
            async with asyncio.timeout(60):
                while "request" not in await history(ref):
                    pass
        else:
            await soon(run)
        if ends == "answer":
            assert await soon(runtime.resolve(desk.token, "ann"))
        else:
            await soon(clock.advance(HOUR))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(desk.begun) == 1
        desk.held.release.set()
        (request,) = interrupted(await soon(run)).requests
        await until_status(ref, Status.INTERRUPTED)
        assert (await history(ref)).count("attempt_started") < 5
        assert desk.done == []
        assert texts(await soon(ref.resume({request.id: respond("17")})))[0] == "both"
    assert len(desk.done) == 1


class Lagging:
    """A journal whose records are durable only when somebody waits for that."""

    has_unflushed = False

    def append(self, records: Sequence[Record]) -> None:
        self.has_unflushed = True

    async def durable(self) -> None:
        await asyncio.sleep(0)
        self.has_unflushed = False


async def test_that_a_call_starts_again_is_durable_before_its_body_is_entered(
    clock: SimulatedClock,
) -> None:
    """J3, J22: else a crash could repeat it without a doubt."""
    journal, held, durably = Lagging(), Held(), list[bool]()

    @tool
    async def nap(ctx: ToolContext) -> str:
        durably.append(not journal.has_unflushed)
        await ctx.sleep("nap", HOUR)
        return "slept"

    @tool
    async def work() -> str:
        await held.wait()
        return "worked"

    agent = Agent("desk", by_turn([call("nap", {}), call("work", {})]), tools=[nap, work])
    run = asyncio.ensure_future(agent.execute("Go.", clock=clock, journal=journal))
    await soon(held.entered.wait())
    await until(lambda: len(durably) == 1)
    await soon(clock.advance(HOUR))
    await until(lambda: len(durably) == 2)
    held.release.set()
    assert texts(await soon(run)) == ["slept", "worked"]
    assert durably == [True, True]


async def test_a_wait_in_the_end_is_told_where_nothing_else_runs(
    desk: Desk, clock: SimulatedClock
) -> None:
    """The run comes to rest at what still waits when the last call beside it has ended."""
    desk.held.release.set()
    calls = [call("nap", {}), call("work", {})]
    outcome = await soon(desk.agent(calls).execute("Go.", clock=clock))
    assert isinstance(outcome, Waiting)
    await soon(clock.advance(HOUR))  # nothing of the attempt listens to it any more

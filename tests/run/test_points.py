"""The named points of a tool's body, in runs without a runtime (T11, T17)."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.agents import (
    FakeClock,
    Held,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from tests.support.plans import HOUR
from understudy import (
    Agent,
    AgentState,
    Interrupt,
    Outcome,
    StopAgent,
    Stopped,
    StopSignal,
    ToolContext,
    WaitExpired,
    Waiting,
    WaitRejected,
    call,
    respond,
    tool,
)
from understudy.errors import Expired, UnknownToken, UsageError
from understudy.modes import Parallel


def waits(outcome: Outcome) -> Waiting:
    """The outcome, which must be a wait."""
    assert isinstance(outcome, Waiting), outcome
    return outcome


def agent_of(*tools: Any, calls: Any = None, **options: Any) -> Agent:
    calls = calls if calls is not None else [call(each.name, {}) for each in tools]
    return Agent("shop", by_turn(calls, "Done."), tools=tools, **options)


async def to_the_end(agent: Agent, clock: FakeClock, outcome: Outcome, **options: Any) -> Outcome:
    """Go on, each time when the next wait is over by itself, in another process."""
    while isinstance(outcome, Waiting):
        assert outcome.due is not None
        clock.advance((outcome.due - clock.now()).total_seconds())
        outcome = await agent.resume(reloaded(outcome.state), clock=clock, **options)
    return outcome


def texts(outcome: Outcome) -> list[Any]:
    return [part.content for part in results(outcome.state)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Slow(Disk):
    """What is appended is durable some turns of the loop after somebody waits for it."""

    has_unflushed = True

    async def durable(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_without_a_runtime_a_run_that_waits_has_an_outcome(clock: FakeClock) -> None:
    entered: list[datetime] = []

    @tool
    async def nap(ctx: ToolContext) -> str:
        entered.append(clock.now())
        await ctx.sleep("nap", HOUR)
        return "slept"

    agent = agent_of(nap)
    start = clock.now()
    first = waits(await agent.execute("Go.", clock=clock))
    assert first.explain() == (
        "Waits after 1 model call: 'nap' sleeps at 'nap' until 2030-01-01T13:00:00+00:00."
    )
    assert first.due == first.state.next_due == start + timedelta(hours=1)
    assert first.waits == first.state.waits
    again = waits(await agent.resume(reloaded(first.state), clock=clock))
    assert again.waits == first.waits
    clock.advance(HOUR)
    ended = completed(await agent.resume(reloaded(again.state), clock=clock))
    assert texts(ended) == ["slept"]
    assert entered == [start, start + timedelta(hours=1)]
    assert ended.state.next_due is None
    assert_valid_history(ended.state)


async def test_an_answer_is_given_with_the_state(clock: FakeClock) -> None:
    tokens: list[str] = []

    @tool
    async def pay(ctx: ToolContext) -> Any:
        tokens.append(await ctx.token("paid"))
        return await ctx.wait_for("paid")

    agent = agent_of(pay)
    first = waits(await agent.execute("Go.", clock=clock))
    assert (first.due, first.explain()) == (
        None,
        "Waits after 1 model call: 'pay' waits at 'paid'.",
    )
    for wrong in ({"nonsense": 1}, {tokens[0] + "x": 1}):
        with pytest.raises(UnknownToken):
            await agent.resume(first.state, answers=wrong, clock=clock)
    with pytest.raises(UsageError, match="`answers` must be a mapping"):
        await agent.resume(first.state, answers=[1], clock=clock)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="resolve"):
        await agent.resume(first.state, answers={tokens[0]: object()}, clock=clock)
    answers = {tokens[0]: {"by": "ann"}}
    ended = completed(await agent.resume(reloaded(first.state), answers=answers, clock=clock))
    assert texts(ended) == [{"by": "ann"}]


async def test_several_points_are_passed_one_by_one(clock: FakeClock) -> None:
    done: list[str] = []

    def work(n: int) -> int:
        done.append(str(n))
        return n

    @tool
    async def plan(ctx: ToolContext) -> list[int]:
        found = []
        for n in range(3):
            found.append(await ctx.once(f"step {n}", partial(work, n)))
            await ctx.sleep(f"wait {n}", HOUR)
        return found

    agent = agent_of(plan)
    start = clock.now()
    ended = await to_the_end(agent, clock, await agent.execute("Go.", clock=clock))
    assert texts(completed(ended)) == [[0, 1, 2]]
    assert done == ["0", "1", "2"]
    assert clock.now() - start == timedelta(hours=3)


@pytest.mark.parametrize("group", [True, False])
async def test_points_beside_each_other_are_waited_for_at_once(
    clock: FakeClock, group: bool
) -> None:
    @tool
    async def both(ctx: ToolContext) -> str:
        if group:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ctx.sleep("a", HOUR))
                tasks.create_task(ctx.sleep("b", 2 * HOUR))
        else:
            await asyncio.gather(ctx.sleep("a", HOUR), ctx.sleep("b", 2 * HOUR))
        return "both"

    agent = agent_of(both)
    start = clock.now()
    first = waits(await agent.execute("Go.", clock=clock))
    assert [wait.name for wait in first.waits] == ["a", "b"]
    ended = await to_the_end(agent, clock, first)
    assert texts(completed(ended)) == ["both"]
    assert clock.now() - start == timedelta(hours=2)


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("durable", [True, False])
async def test_all_branches_of_a_tool_come_to_their_points_in_one_run_of_it(
    clock: FakeClock, group: bool, durable: bool
) -> None:
    """Whether what comes before a point has a moment to wait in, for a store, or none."""
    done: list[str] = []

    @tool
    async def plan(ctx: ToolContext) -> str:
        async def branch(name: str) -> None:
            if name == "b":
                await ctx.token(f"wait {name}")
            if name != "a":
                await ctx.once(f"first {name}", lambda: done.append(f"first {name}"))
                await ctx.once(f"then {name}", lambda: done.append(f"then {name}"))
            await ctx.sleep(f"sleep {name}", HOUR)

        if group:
            async with asyncio.TaskGroup() as tasks:
                for name in "abc":
                    tasks.create_task(branch(name))
        else:
            await asyncio.gather(*map(branch, "abc"))
        return "all"

    agent = agent_of(plan)
    journal = Slow() if durable else None
    first = waits(await agent.execute("Go.", clock=clock, journal=journal))
    assert sorted(wait.name for wait in first.waits) == ["sleep a", "sleep b", "sleep c"]
    assert sorted(done) == ["first b", "first c", "then b", "then c"]
    clock.advance(HOUR)
    ended = completed(await agent.resume(reloaded(first.state), clock=clock))
    assert texts(ended) == ["all"]
    assert len(done) == 4


async def test_what_is_done_once_is_not_cut_off_because_a_task_beside_it_sleeps(
    clock: FakeClock,
) -> None:
    held = Held()
    done: list[str] = []

    async def work() -> int:
        await held.wait()
        done.append("work")
        return 7

    @tool
    async def both(ctx: ToolContext) -> int:
        async with asyncio.TaskGroup() as tasks:
            value = tasks.create_task(ctx.once("work", work))
            tasks.create_task(ctx.sleep("a", HOUR))
        return value.result()

    agent = agent_of(both)
    run = asyncio.ensure_future(agent.execute("Go.", clock=clock))
    await soon(held.entered.wait())
    assert not run.done()
    held.release.set()
    ended = await to_the_end(agent, clock, await soon(run))
    assert texts(completed(ended)) == [7]
    assert done == ["work"]


async def test_a_tool_that_catches_everything_does_not_take_a_sleep_for_a_failure(
    clock: FakeClock,
) -> None:
    @tool
    async def careful(ctx: ToolContext) -> str:
        try:
            await ctx.sleep("a", HOUR)
        except Exception as error:
            return f"failed: {error}"
        return "slept"

    agent = agent_of(careful)
    ended = await to_the_end(agent, clock, await agent.execute("Go.", clock=clock))
    assert texts(completed(ended)) == ["slept"]


async def test_a_time_that_has_passed_is_over_at_once(clock: FakeClock) -> None:
    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep_until("a", clock.now() - timedelta(days=1))
        await ctx.sleep("b", 0)
        return "slept"

    completed(await agent_of(nap).execute("Go.", clock=clock))


async def test_the_first_time_of_a_sleep_counts(clock: FakeClock) -> None:
    spans: Iterator[float | timedelta] = iter([timedelta(hours=1), 9 * HOUR, timedelta(hours=9)])

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("a", next(spans))
        return "slept"

    agent = agent_of(nap)
    ended = await to_the_end(agent, clock, await agent.execute("Go.", clock=clock))
    completed(ended)
    assert clock.now() == FakeClock().now() + timedelta(hours=1)


async def test_a_point_that_the_tool_no_longer_reaches_wakes_nobody(clock: FakeClock) -> None:
    runs: list[int] = []

    @tool
    async def fickle(ctx: ToolContext) -> str:
        runs.append(1)
        if len(runs) == 1:
            await asyncio.gather(ctx.sleep("short", HOUR), ctx.sleep("long", 9 * HOUR))
        await ctx.sleep("other", 3 * HOUR)
        return "done"

    agent = agent_of(fickle)
    first = waits(await agent.execute("Go.", clock=clock))
    clock.advance(HOUR)
    second = waits(await agent.resume(first.state, clock=clock))
    assert [wait.name for wait in second.waits] == ["other"]
    clock.advance(3 * HOUR)
    ended = completed(await agent.resume(second.state, clock=clock))
    assert ended.state.next_due is None
    assert len(runs) == 3


async def test_a_tool_may_ask_a_person_and_sleep(clock: FakeClock) -> None:
    @tool
    async def both(ctx: ToolContext) -> str:
        await ctx.sleep("before", HOUR)
        if not ctx.resumed:
            raise Interrupt("Which?")
        await ctx.sleep("after", HOUR)
        return str(ctx.resume_value)

    agent = agent_of(both)
    outcome = await to_the_end(agent, clock, await agent.execute("Go.", clock=clock))
    asked = interrupted(outcome)
    outcome = await agent.resume(asked.state, asked.decide(respond("this")), clock=clock)
    ended = completed(await to_the_end(agent, clock, outcome))
    assert texts(ended) == ["this"]


async def test_a_stop_ends_a_call_that_sleeps(clock: FakeClock) -> None:
    @tool
    async def nap(ctx: ToolContext) -> None:
        await ctx.sleep("a", HOUR)

    @tool
    async def stop() -> None:
        raise StopAgent(StopSignal.stop_requested("enough"))

    ended = await agent_of(nap, stop).execute("Go.", clock=clock)
    assert isinstance(ended, Stopped)
    assert str(texts(ended)[0]).startswith("Ran in part: another call of the same reply ")
    assert ended.state.doubts == {}
    assert_valid_history(ended.state)


async def test_parallel_branches_wait_each_for_its_own(clock: FakeClock) -> None:
    @tool
    async def nap(ctx: ToolContext, hours: float) -> str:
        await ctx.sleep("a", hours * HOUR)
        return "slept"

    def branch(name: str, hours: float) -> Agent:
        return Agent(name, by_turn(call("nap", {"hours": hours}), name), tools=[nap])

    agent = Agent("boss", mode=Parallel([branch("one", 1), branch("two", 2)]))
    first = waits(await agent.execute("Go.", clock=clock))
    assert [wait.agent_path for wait in first.waits] == [("boss", "one"), ("boss", "two")]
    ended = completed(await to_the_end(agent, clock, first))
    assert ended.text == "[one] one\n\n[two] two"
    assert clock.now() == FakeClock().now() + timedelta(hours=2)


# ------------------------------------------------------------------------- once


async def test_what_raises_is_not_done_and_is_called_again(clock: FakeClock) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("away")
        return "done"

    @tool
    async def persistent(ctx: ToolContext) -> str:
        try:
            return await ctx.once("work", flaky)
        except ConnectionError:
            await ctx.sleep("later", HOUR)
        raise AssertionError("after the sleep it is tried again")

    agent = agent_of(persistent)
    first = waits(await agent.execute("Go.", clock=clock))
    clock.advance(HOUR)
    ended = completed(await agent.resume(first.state, clock=clock))
    assert texts(ended) == ["done"]


@pytest.mark.parametrize(
    "value", [object(), {"a": object()}, "\ud800", float("nan"), {"a": [float("-inf")]}]
)
async def test_what_is_done_and_has_no_value_to_keep_is_not_done_again(
    clock: FakeClock, value: Any
) -> None:
    done: list[int] = []

    def work() -> Any:
        done.append(1)
        return value

    @tool
    async def odd(ctx: ToolContext) -> str:
        try:
            await ctx.once("work", work)
        except UsageError as error:
            text = str(error)
        await ctx.sleep("a", HOUR)
        return text

    agent = agent_of(odd)
    ended = await to_the_end(agent, clock, await agent.execute("Go.", clock=clock))
    (text,) = texts(completed(ended))
    assert text.startswith("ctx.once('work') is done, but its value cannot be kept: ")
    assert text.count("once('work')") == 1, "it says it once"
    assert done == [1]


async def test_a_value_is_a_copy(clock: FakeClock) -> None:
    given: list[Any] = []

    @tool
    async def change(ctx: ToolContext) -> list[int]:
        value = await ctx.once("work", lambda: [1])
        given.append(value)
        value.append(2)
        await ctx.sleep("a", HOUR)
        return value

    agent = agent_of(change)
    ended = await to_the_end(agent, clock, await agent.execute("Go.", clock=clock))
    assert texts(completed(ended)) == [[1, 2]]


async def test_the_value_of_what_is_done_once_is_durable_before_it_is_returned() -> None:
    """T11."""
    disk = Disk()
    seen: list[bool] = []

    @tool
    async def pay(ctx: ToolContext) -> str:
        token = await ctx.token("paid")
        seen.append(any('"token_made"' in line for line in disk.lines))
        await ctx.once("create", lambda: 7)
        seen.append(any('"point_answered"' in line for line in disk.lines))
        assert not any(token in line for line in disk.lines)
        return "done"

    completed(await agent_of(pay).execute("Go.", journal=disk))
    assert seen == [True, True]


async def test_a_token_is_durable_before_anybody_has_it() -> None:
    """J22."""

    class Slow(Disk):
        """Keeps nothing until it is released."""

        held = Held()
        waiting = False

        @property
        def has_unflushed(self) -> bool:
            return self.waiting

        def append(self, records: Any) -> None:
            super().append(records)
            self.waiting = any(record.kind == "token_made" for record in records)

        async def durable(self) -> None:
            if self.waiting:
                await self.held.wait()
                self.waiting = False

    disk, tokens = Slow(), []

    @tool
    async def pay(ctx: ToolContext) -> str:
        tokens.append(await ctx.token("paid"))
        return "done"

    run = asyncio.ensure_future(agent_of(pay).execute("Go.", journal=disk))
    await soon(disk.held.entered.wait())
    assert tokens == []
    disk.held.release.set()
    completed(await soon(run))
    assert len(tokens) == 1


# ------------------------------------------------------------------------- crashes


class Shop:
    """A tool with effects outside, which remember how often they came."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.tokens: list[str] = []

    def agent(self, *, idempotent: bool = False) -> Agent:
        def effect(name: str) -> Callable[[], str]:
            def work() -> str:
                self.effects.append(name)
                return name

            return work

        @tool(idempotent=idempotent)
        async def order(ctx: ToolContext) -> str:
            token = await ctx.token("paid")
            self.tokens.append(token)
            first = await ctx.once("create", effect("create"))
            await ctx.sleep("cool down", HOUR)
            second = await ctx.once("charge", effect("charge"))
            try:
                third = await ctx.wait_for("paid", timeout=HOUR)
            except WaitExpired:
                third = await ctx.once("refund", effect("refund"))
            return f"{first} {second} {third}"

        return agent_of(order)


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_run_that_is_cut_off_at_any_record_does_nothing_twice(idempotent: bool) -> None:
    """T11: each prefix of the records continues: to the same end, or to a doubt in the middle."""
    clock, whole = FakeClock(), Disk()
    agent = Shop().agent(idempotent=idempotent)
    outcome = await agent.execute("Go.", clock=clock, journal=whole)
    times = []
    while isinstance(outcome, Waiting):
        assert outcome.due is not None
        clock.advance((outcome.due - clock.now()).total_seconds())
        times.append(len(whole.lines))
        state = outcome.state
        outcome = await agent.resume(state, clock=clock, journal=Disk())
    assert texts(outcome) == ["create charge refund"]
    doubts = 0
    for limit in range(1, 60):
        shop, clock, disk = Shop(), FakeClock(), Disk(limit)
        agent = shop.agent(idempotent=idempotent)
        ended: Outcome | None = None
        try:
            ended = await to_the_end(
                agent, clock, await agent.execute("Go.", clock=clock, journal=disk), journal=disk
            )
        except Crash:
            if not any('"run_started"' in line for line in disk.lines):
                continue
            again = disk.load()
            ended = await to_the_end(agent, clock, await agent.resume(again, clock=clock))
        doubts += bool(ended.state.doubts)
        text = texts(completed(ended))[0]
        if ended.state.doubts:
            assert "unknown" in text
            assert not idempotent
            assert len(shop.effects) == len(set(shop.effects))
        else:
            assert text == "create charge refund"
        if not idempotent:
            assert len(shop.effects) == len(set(shop.effects)), (limit, shop.effects)
        if disk.limit is not None and len(disk.lines) < disk.limit:
            break
    else:
        raise AssertionError("the run has more records than this test has limits")
    assert bool(doubts) is not idempotent


# ------------------------------------------------------------------------- bad input


async def failure(body: Callable[[ToolContext], Any], outcome: str = "failed") -> str:
    """What the model gets as the error of a tool with this body."""

    @tool
    async def odd(ctx: ToolContext) -> str:
        await body(ctx)
        return "nothing was wrong"

    ended = completed(await agent_of(odd).execute("Go.", clock=FakeClock()))
    (part,) = results(ended.state)
    assert part.outcome == outcome, part.content
    return str(part.content)


@pytest.mark.parametrize(
    "seconds", [-1, float("nan"), float("inf"), 1e300, "1", None, True, timedelta(-1)]
)
async def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    expected = "must be seconds from 0 on, or a timedelta, at most 100 years"
    assert expected in await failure(lambda ctx: ctx.sleep("a", seconds))
    if seconds is not None:
        assert expected in await failure(lambda ctx: ctx.wait_for("a", timeout=seconds))


async def test_a_timeout_of_zero_is_refused() -> None:
    assert "must be above 0" in await failure(lambda ctx: ctx.wait_for("a", timeout=0))
    nothing = timedelta(0)
    assert "must be above 0" in await failure(lambda ctx: ctx.wait_for("a", timeout=nothing))


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), "2030-01-01", 7, None])
async def test_a_point_in_time_needs_a_zone(at: Any) -> None:
    assert "time zone" in await failure(lambda ctx: ctx.sleep_until("a", at))


@pytest.mark.parametrize("name", ["", None, 7, "\ud800"])
async def test_a_bad_name_is_refused(name: Any) -> None:
    assert "The name of a point" in await failure(lambda ctx: ctx.sleep(name, 1))
    assert "The name of a point" in await failure(lambda ctx: ctx.once(name, list))
    assert "The name of a point" in await failure(lambda ctx: ctx.token(name))


async def test_two_points_of_one_name_are_refused() -> None:
    async def kinds(ctx: ToolContext) -> None:
        await ctx.token("a")
        await ctx.sleep("a", 1)

    async def twice(ctx: ToolContext) -> None:
        await ctx.once("a", list)
        await ctx.once("a", list)

    async def at_once(ctx: ToolContext) -> None:
        await asyncio.gather(ctx.sleep_until("a", FakeClock().now()), ctx.sleep("a", 1))

    assert "is a wait for an answer, and cannot be a sleep, too" in await failure(kinds)
    told = await failure(twice, "interrupted")  # what it did once is done: the rest is unknown
    assert "came to the point 'a' twice" in told
    assert "after it had done this: 'a' once" in told
    assert "came to the point 'a' twice" in await failure(at_once)


async def test_a_wait_that_nobody_can_answer_is_refused() -> None:
    assert "call `await ctx.token('a')` first" in await failure(lambda ctx: ctx.wait_for("a"))


async def test_a_point_inside_of_once_is_refused() -> None:
    text = await failure(lambda ctx: ctx.once("a", lambda: ctx.sleep("b", 1)))
    assert "inside of ctx.once" in text
    inner = Agent("inner", by_turn("Hello."))
    text = await failure(lambda ctx: ctx.once("a", lambda: ctx.run_agent(inner, "Go.")))
    assert "inside of ctx.once" in text


async def test_an_async_tool_awaits_and_a_plain_one_does_not() -> None:
    assert "is for plain tools" in await failure(lambda ctx: ctx.sync.sleep("a", 1))

    @tool
    def plain(ctx: ToolContext) -> None:
        ctx.sleep("a", 1).close()

    @tool(inline=True)
    def inline(ctx: ToolContext) -> None:
        ctx.sync.sleep("a", 1)

    @tool
    def wrong(ctx: ToolContext) -> None:
        async def work() -> None: ...

        _ = ctx.sync.once("a", work)

    ended = completed(await agent_of(plain, inline, wrong).execute("Go."))
    first, second, third = map(str, texts(ended))
    assert "a plain tool calls ctx.sync.sleep(...)" in first
    assert "a tool with inline=True cannot wait" in second
    assert "the function must be a plain one" in third


async def test_a_context_that_outlives_its_call_has_no_points(clock: FakeClock) -> None:
    kept: list[ToolContext] = []

    @tool
    async def leave(ctx: ToolContext) -> str:
        kept.append(ctx)
        return "left"

    agent = agent_of(leave)
    ended = completed(await agent.execute("Go.", clock=clock))
    before = ended.state.to_dict()
    with pytest.raises(BaseException) as raised:
        await kept[0].sleep("a", 1)
    assert type(raised.value).__name__ == "CallSuspended"
    assert ended.state.to_dict() == before


async def test_a_state_with_points_is_a_value(clock: FakeClock) -> None:
    tokens: list[str] = []

    @tool
    async def pay(ctx: ToolContext) -> Any:
        tokens.append(await ctx.token("paid"))
        try:
            return await ctx.wait_for("paid", timeout=HOUR)
        except (WaitExpired, WaitRejected) as error:
            return str(error)

    agent = agent_of(pay)
    first = waits(await agent.execute("Go.", clock=clock))
    before = first.state.to_dict()
    answered = completed(await agent.resume(first.state, answers={tokens[0]: 1}, clock=clock))
    assert first.state.to_dict() == before
    clock.advance(HOUR)
    with pytest.raises(Expired):
        await agent.resume(first.state, answers={tokens[0]: 1}, clock=clock)
    expired = completed(await agent.resume(first.state, clock=clock))
    assert (texts(answered), texts(expired)) == ([1], ["Nobody answered 'paid' in time"])
    assert AgentState.from_dict(before) == first.state


@pytest.mark.parametrize("function", [None, 5, "mail"])
async def test_what_is_to_be_done_once_is_a_function(function: Any) -> None:
    assert "takes a function" in await failure(lambda ctx: ctx.once("mail", function))


async def test_what_a_thread_does_once_is_not_cut_off_because_another_one_sleeps(
    clock: FakeClock,
) -> None:
    begun, release = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> int:
        begun.set()
        assert release.wait(60)
        done.append("work")
        return 7

    @tool
    def both(ctx: ToolContext) -> int:
        values: list[int] = []
        once = threading.Thread(target=lambda: values.append(ctx.sync.once("work", work)))
        once.start()
        assert begun.wait(60)
        ctx.sync.sleep("a", HOUR)
        once.join()
        return values[0]

    agent = agent_of(both)
    run = asyncio.ensure_future(agent.execute("Go.", clock=clock))
    assert await asyncio.to_thread(begun.wait, 60)
    ended, _ = await asyncio.wait({run}, timeout=0.1)  # it would end at once
    assert not ended
    release.set()
    assert texts(completed(await to_the_end(agent, clock, await soon(run)))) == [7]
    assert done == ["work"]


def test_a_point_that_is_reached_when_the_loop_is_closed_ends_the_tool() -> None:
    """By what no `except Exception` of a tool takes for a failure."""
    entered, release = threading.Event(), threading.Event()
    raised: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    @tool
    def late(ctx: ToolContext) -> str:
        entered.set()
        assert release.wait(60)
        try:
            ctx.sync.sleep("a", HOUR)
        except BaseException as error:
            raised.put(error)
            raise
        return "slept"

    async def until_it_runs() -> None:
        run = asyncio.ensure_future(agent_of(late).execute("Go."))
        assert await asyncio.to_thread(entered.wait, 60)
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run

    asyncio.run(until_it_runs())
    release.set()
    assert not isinstance(raised.get(timeout=60), Exception)

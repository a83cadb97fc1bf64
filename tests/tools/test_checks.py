"""Doubts that settle themselves: a tool's `check` is asked what a call of it did (T15) (I7)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.agents import (
    Held,
    by_turn,
    completed,
    contents,
    interrupted,
    reloaded,
    results,
    until_status,
    wake,
)
from tests.support.loops import never, skip, soon, until
from tests.support.places import Place
from tests.support.plans import kinds, left_after
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Failed,
    Halt,
    Interrupt,
    Outcome,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    StopAgent,
    Stopped,
    StopSignal,
    Tool,
    ToolContext,
    ToolResult,
    UsageError,
    Waiting,
    approve,
    call,
    edit,
    events,
    reject,
    respond,
    tool,
)
from understudy.journal import MemoryStore
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Parallel
from understudy.run.tool_call import ToolCall
from understudy.state.records import Record
from understudy.tools import DidNotHappen, Happened, OutcomeUnknown, Retry, ToolFailed, Unknown

MINUTE = 60.0
HOUR = 60 * MINUTE
TIMES = (60.0, 120.0, 600.0, 1800.0, 3600.0)
"""Seconds from the doubt to each question, by default."""
Answer = Callable[[ToolContext, dict[str, Any]], Any]


class Bank:
    """It takes payments, may lose the answer to one, and can be asked for one by its key."""

    def __init__(self) -> None:
        self.paid: dict[str, int] = {}
        """The orders that it took money for, and how often."""
        self.by_key: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """What was asked for, in order: the key, and the arguments."""
        self.answers: list[Answer] = []
        """How it answers what is asked, one by one; in the end it tells what it knows."""
        self.fails: Callable[[], Any] = self.lose
        """What it does when it has the money."""
        self.takes = True
        """Whether it gets the money at all."""

    def lose(self) -> None:
        raise ConnectionResetError("the connection was reset")

    def take(self, key: str, order: str) -> None:
        if self.takes:
            self.paid[order] = self.paid.get(order, 0) + 1
            self.by_key[key] = order

    def find(self, ctx: ToolContext, arguments: dict[str, Any]) -> Any:
        self.asked.append((ctx.call_key, arguments))
        if self.answers:
            return self.answers.pop(0)(ctx, arguments)
        order = self.by_key.get(ctx.call_key)
        return DidNotHappen() if order is None else Happened(f"paid {order}")

    def tool(self, **options: Any) -> Tool:
        options.setdefault("check", self.find)

        @tool(**options)
        async def pay(ctx: ToolContext, order: str, currency: str = "EUR") -> str:
            """Pay for an order."""
            self.take(ctx.call_key, order)
            failed = self.fails()
            if isinstance(failed, Awaitable):
                await failed
            return f"paid {order} at once"

        return pay

    def agent(self, *turns: Any, tools: Sequence[Any] = (), **options: Any) -> Agent:
        turns = turns or (call("pay", {"order": "17"}),)
        own = [] if any(each.name == "pay" for each in tools) else [self.tool()]
        return Agent("shop", by_turn(*turns, "Done."), tools=[*own, *tools], **options)


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def unknown(*_: object) -> Unknown:
    return Unknown()


def text(outcome: Outcome | None, index: int = 0) -> Any:
    """The model's text about a call."""
    assert outcome is not None
    return results(outcome.state)[index].content


async def waiting(runtime: Runtime) -> tuple[AgentRef, Any]:
    """An agent that waits, and the future of its run."""
    ref = runtime.spawn("shop", id="a")
    outcome = ref.run("Go.")
    await until_status(ref, Status.WAITING)
    return ref, outcome


async def seconds_to_check(ref: AgentRef, clock: SimulatedClock) -> float:
    (wait,) = (await soon(ref.state())).waits
    assert (wait.kind, wait.tool_name) == ("check", "pay")
    assert wait.expires_at is not None
    return (wait.expires_at - clock.now()).total_seconds()


async def until_doubts(ref: AgentRef, count: int) -> list[str]:
    """The keys of the calls in doubt, when there are so many."""
    async with asyncio.timeout(60):
        while len(doubts := (await ref.state()).doubts) != count:  # noqa: ASYNC110  # a look
            await asyncio.sleep(0)
    return list(doubts)


async def until_checks(ref: AgentRef, count: int) -> None:
    """Until what the n-th question has brought is recorded."""
    async with asyncio.timeout(60):
        while True:
            state = await ref.state()
            assert state.run is not None
            assert state.run.turn is not None
            call = next(iter(state.run.turn.calls.values()))
            if call.result is not None or call.checks > count:
                return


async def asked_so_often(bank: Bank, count: int) -> None:
    await until(lambda: len(bank.asked) >= count)
    assert len(bank.asked) == count


# ------------------------------------------------------------------- what a check finds


async def test_what_a_check_finds_becomes_the_result_of_the_call(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    """T15."""
    async with Runtime([bank.agent()], store=place.store(), clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        assert await seconds_to_check(ref, clock) == 60.0
        assert [doubt.tool_name for doubt in (await ref.state()).doubts.values()] == ["pay"]
        await soon(clock.advance(59))
        assert bank.asked == []
        await soon(clock.advance(1))
        ended = completed(await soon(outcome))
    assert text(ended) == "paid 17"
    assert results(ended.state)[0].outcome == "success"
    assert ended.state.doubts == {}
    assert ended.state.decisions == []
    assert bank.paid == {"17": 1}


async def test_a_check_gets_the_context_and_the_canonical_arguments_of_the_call(
    bank: Bank, clock: SimulatedClock
) -> None:
    seen: list[tuple[Any, ...]] = []

    async def find(ctx: ToolContext, arguments: dict[str, Any]) -> Happened:
        seen.append((ctx.deps, ctx.agent_id, ctx.tool_name, ctx.tool_call_id, ctx.call_key))
        seen.append((len(ctx.state.messages), arguments))
        ctx.emit({"looks": arguments["order"]})
        return Happened("paid")

    agent = bank.agent(call("pay", {"order": "17"}, id="p1"), tools=[bank.tool(check=find)])
    async with Runtime([agent], clock=clock, deps_for=lambda _: "the deps") as runtime:
        ref, outcome = await waiting(runtime)
        told = ref.events()
        await soon(clock.advance(MINUTE))
        await soon(outcome)
        emitted = None
        async for event in told:
            if isinstance(event.event, events.ToolEmitted):
                emitted = event.event.data
                break
    (key,) = bank.by_key
    assert seen == [
        ("the deps", "a", "pay", "p1", key),
        (2, {"order": "17", "currency": "EUR"}),
    ]
    assert emitted == {"looks": "17"}


@pytest.mark.parametrize("how", ["async", "plain", "object", "partial", "returns a coroutine"])
async def test_a_check_may_be_any_function_of_two_parameters(
    bank: Bank, clock: SimulatedClock, how: str
) -> None:
    threads: list[threading.Thread] = []

    async def find_async(_ctx: ToolContext, arguments: dict[str, Any]) -> Happened:
        return Happened(arguments["order"])

    def find(_ctx: ToolContext, arguments: dict[str, Any]) -> Happened:
        threads.append(threading.current_thread())
        return Happened(arguments["order"])

    class Finder:
        async def __call__(self, ctx: ToolContext, arguments: dict[str, Any]) -> Happened:
            return find(ctx, arguments)

    checks: dict[str, Any] = {
        "async": find_async,
        "plain": find,
        "object": Finder(),
        "partial": partial(lambda _, ctx, arguments: find(ctx, arguments), "x"),
        "returns a coroutine": lambda ctx, arguments: find_async(ctx, arguments),
    }
    agent = bank.agent(tools=[bank.tool(check=checks[how])])
    async with Runtime([agent], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        assert text(await soon(outcome)) == "17"
    if how == "plain":
        assert threads[0] is not threading.current_thread(), "it may block"


async def test_what_was_found_is_kept_as_the_value_of_a_tool(clock: SimulatedClock) -> None:
    """Of an until tool it is the outcome: of the type that the tool returns."""

    @tool(check=lambda _ctx, _arguments: Happened(ToolResult("a receipt", value=timedelta(days=3))))
    async def buy() -> ToolResult[timedelta]:
        raise ConnectionResetError

    agent = Agent("shop", by_turn(call("buy", {})), tools=[buy])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.", until_tool="buy")
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    assert ended.tool_result is not None
    assert (ended.tool_result.content, ended.tool_result.value) == ("a receipt", timedelta(days=3))
    assert not ended.tool_result.is_error


async def test_what_was_found_and_cannot_be_kept_ran_all_the_same(
    bank: Bank, clock: SimulatedClock
) -> None:
    bank.answers = [lambda *_: Happened(object())]
    turns = [call("pay", {"order": "17"}), call("pay", {"order": "17"})]
    async with Runtime([bank.agent(*turns)], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    for index in range(2):
        assert "'pay' ran, but" in text(ended, index), "an equal call is refused"
    assert ended.state.doubts == {}
    assert bank.paid == {"17": 1}


async def test_that_it_did_not_happen_is_told_and_the_call_does_not_run_by_itself(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    """T15."""
    bank.takes = False
    async with Runtime([bank.agent()], store=place.store(), clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    (part,) = results(ended.state)
    assert part.outcome == "failed", "the model may call again"
    assert "did not take effect" in str(part.content)
    assert ended.state.doubts == {}
    assert bank.paid == {}


async def test_after_that_the_model_may_call_again_and_nobody_is_asked(
    bank: Bank, clock: SimulatedClock
) -> None:
    bank.takes = False
    turns = [call("pay", {"order": "17"}), call("pay", {"order": "17"})]
    async with Runtime([bank.agent(*turns)], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        await until_status(ref, Status.WAITING)
        bank.takes = True
        bank.by_key[(await soon(ref.state())).waits[0].call_key] = "17"
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    assert [part.outcome for part in results(ended.state)] == ["failed", "success"]
    assert len({key for key, _ in bank.asked}) == 2


# -------------------------------------------------------------------- when it is asked


async def test_it_is_asked_again_later_each_time_and_then_a_person_is(
    bank: Bank, clock: SimulatedClock
) -> None:
    bank.answers = [unknown] * 5
    async with Runtime([bank.agent()], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        begin, passed = clock.now(), 0.0
        for count, seconds in enumerate(TIMES):
            assert await seconds_to_check(ref, clock) == seconds - passed
            (wait,) = await runtime.waiting()
            assert (wait.since, wait.name) == (begin, f"check/{count + 1}")
            await soon(clock.advance(seconds - passed - 1))
            assert len(bank.asked) == count
            await soon(clock.advance(1))
            await asked_so_often(bank, count + 1)
            passed = seconds
            await until_status(ref, Status.WAITING, Status.INTERRUPTED)
        asked = interrupted(await soon(outcome))
        (request,) = asked.requests
        assert request.kind == "doubt"
        assert "reset" in request.payload["reason"]
        assert "check could not tell" in request.payload["reason"]
        assert await runtime.waiting() == []
        assert asked.state.doubts == {}, "a person is asked about it"
        await soon(clock.advance(24 * HOUR))
        ended = completed(await soon(ref.resume({request.id: respond("paid by card")})))
    assert text(ended) == "paid by card"
    assert len(bank.asked) == 5


async def test_a_person_who_finds_that_it_had_no_effect_lets_it_run(
    bank: Bank, clock: SimulatedClock
) -> None:
    """Its next doubt has questions of its own."""
    bank.answers = [unknown]
    agent = bank.agent(tools=[bank.tool(check_after=[MINUTE])])
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        (request,) = interrupted(await soon(outcome)).requests
        await soon(clock.advance(HOUR))
        outcome = ref.resume({request.id: approve()})
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, clock) == MINUTE
        await soon(clock.advance(MINUTE))
        assert text(await soon(outcome)) == "paid 17"
    assert bank.paid == {"17": 2}
    assert len(bank.asked) == 2


@pytest.mark.parametrize("choice", ["ask", "tell", None])
async def test_on_unknown_says_who_is_told_in_the_end(
    bank: Bank, clock: SimulatedClock, choice: Any
) -> None:
    bank.answers = [unknown]
    agent = bank.agent(tools=[bank.tool(check_after=[MINUTE], on_unknown=choice)])
    async with Runtime([agent], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        if choice != "tell":
            interrupted(await soon(outcome))
            return
        ended = completed(await soon(outcome))
    assert "unknown" in text(ended)
    assert "check could not tell" in text(ended)
    assert len(ended.state.doubts) == 1


async def test_that_nothing_happened_does_not_count_too_early(
    bank: Bank, clock: SimulatedClock
) -> None:
    """A payment that is being processed is not found. One that is found counts at once."""
    agent = bank.agent(tools=[bank.tool(check_after=[10, 59, 90])])
    bank.answers = [lambda *_: DidNotHappen()] * 2
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        for seconds in (10, 49):
            await soon(clock.advance(seconds))
            await until_status(ref, Status.WAITING)
        await asked_so_often(bank, 2)
        await soon(clock.advance(31))
        assert text(await soon(outcome)) == "paid 17"
    bank.answers, bank.asked = [], []
    async with Runtime([agent], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(10))
        assert text(await soon(outcome)) == "paid 17"


async def test_where_each_answer_came_too_early_a_person_is_asked(
    bank: Bank, clock: SimulatedClock
) -> None:
    agent = bank.agent(tools=[bank.tool(check_after=[59])])
    bank.takes = False
    async with Runtime([agent], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(59))
        interrupted(await soon(outcome))


async def test_that_nothing_happened_does_not_count_while_the_body_goes_on(
    clock: SimulatedClock,
) -> None:
    """T15: a thread that was given up after its limit may pay yet."""
    entered, goes_on, paid = threading.Event(), threading.Event(), list[str]()

    def find(_ctx: ToolContext, _arguments: dict[str, Any]) -> Happened | DidNotHappen:
        return Happened("paid") if paid else DidNotHappen()

    @tool(timeout=30, check=find)
    def pay(order: str) -> str:
        entered.set()
        goes_on.wait(60)
        paid.append(order)
        return "paid in the end"

    agent = Agent("shop", by_turn(call("pay", {"order": "17"}), "Done."), tools=[pay])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.")
        await until(entered.is_set)
        skip(asyncio.get_running_loop(), 30)
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(MINUTE))
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, clock) == MINUTE
        goes_on.set()
        await until(lambda: bool(paid))
        await soon(clock.advance(MINUTE))
        assert text(await soon(outcome)) == "paid"


async def test_that_nothing_happened_counts_a_minute_after_the_body_has_ended(
    clock: SimulatedClock,
) -> None:
    """What a thread did last, after it was given up, may be under way for a while."""
    entered, goes_on = threading.Event(), threading.Event()

    @tool(timeout=30, check=lambda _ctx, _arguments: DidNotHappen(), check_after=[60, 119, 179])
    def pay(order: str) -> str:
        entered.set()
        goes_on.wait(60)
        raise KeyError(order)

    agent = Agent("shop", by_turn(call("pay", {"order": "17"}), "Done."), tools=[pay])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.")
        await until(entered.is_set)
        skip(asyncio.get_running_loop(), 30)
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(MINUTE))
        await until_status(ref, Status.WAITING)
        goes_on.set()
        await until(lambda: runtime.status().abandoned_threads == 0)
        await soon(clock.advance(59))
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, clock) == MINUTE
        await soon(clock.advance(MINUTE))
        assert "did not take effect" in str(text(await soon(outcome)))


async def test_a_late_result_settles_a_doubt_whose_run_has_ended_before_the_check(
    clock: SimulatedClock,
) -> None:
    entered, goes_on = threading.Event(), threading.Event()

    @tool(timeout=30, check=unknown)
    def pay(order: str) -> str:
        entered.set()
        goes_on.wait(60)
        return f"paid {order}"

    agent = Agent("shop", by_turn(call("pay", {"order": "17"}), "Done."), tools=[pay])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.")
        await until(entered.is_set)
        skip(asyncio.get_running_loop(), 30)
        await until_status(ref, Status.WAITING)
        await soon(ref.cancel())
        assert len((await soon(outcome)).state.doubts) == 1
        goes_on.set()
        await until_doubts(ref, 0)


async def test_after_a_long_standstill_it_is_asked_once(bank: Bank, place: Place) -> None:
    """Not as often as it would have been asked meanwhile."""
    clock = SimulatedClock()
    bank.answers = [unknown] * 3
    async with Runtime([bank.agent()], store=place.store(), clock=clock) as runtime:
        ref, _ = await waiting(runtime)
        begin = clock.now()
    later = SimulatedClock(begin + timedelta(seconds=700))
    async with Runtime([bank.agent()], store=place.store(), clock=later) as runtime:
        ref = runtime.get("a")
        await asked_so_often(bank, 1)
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, later) == 1100.0
    last = SimulatedClock(begin + timedelta(days=3))
    async with Runtime([bank.agent()], store=place.store(), clock=last) as runtime:
        ref = runtime.get("a")
        await until_status(ref, Status.INTERRUPTED)
        await asked_so_often(bank, 2)


async def test_the_times_go_on_where_the_agent_is_compacted(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    bank.answers = [unknown]
    async with Runtime([bank.agent()], store=place.store(), clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.compact())
        assert ref.status() is Status.PASSIVE
        await soon(clock.advance(MINUTE))
        await until_status(ref, Status.WAITING)
        await soon(ref.compact())
        await soon(clock.advance(MINUTE))
        assert text(await soon(outcome)) == "paid 17"


# ----------------------------------------------------------------- what leaves a doubt


def cancel_itself() -> None:
    raise asyncio.CancelledError


def fail(error: BaseException) -> None:
    raise error


class AsksTwice(Middleware):
    """A wrapper that calls a tool again where it raised."""

    async def wrap_tool_call(self, run: Any, call: ToolCall, next: Any) -> Any:
        try:
            return await next(call)
        except ToolFailed:
            return await next(call)


DOUBTS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "reset": (lambda: fail(ConnectionResetError("x")), {}),
    "the tool does not know": (lambda: fail(OutcomeUnknown("x")), {}),
    "cancelled from within": (cancel_itself, {}),
    "an own limit": (lambda: fail(TimeoutError()), {}),
    "the limit of the tool": (never, {"timeout": 0.01}),
    "a wrapper that calls again": (lambda: fail(ToolFailed("x")), {"twice": True}),
}


@pytest.mark.parametrize("what", DOUBTS)
async def test_each_doubt_waits_for_the_check(bank: Bank, clock: SimulatedClock, what: str) -> None:
    bank.fails, options = DOUBTS[what]
    middleware = [AsksTwice()] if options.pop("twice", False) else []
    agent = bank.agent(tools=[bank.tool(**options)], middleware=middleware)
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        assert await seconds_to_check(ref, clock) == MINUTE
        await soon(clock.advance(MINUTE))
        assert text(await soon(outcome)) == "paid 17"
    assert bank.paid == {"17": 1}


@pytest.mark.parametrize("error", [Retry("again"), ToolFailed("no"), KeyError("nothing")])
async def test_what_proves_that_nothing_happened_leaves_nothing_to_check(
    bank: Bank, error: Exception
) -> None:
    bank.fails = lambda: fail(error)
    agent = bank.agent(tools=[bank.tool(nothing_happened=[KeyError])])
    ended = completed(await soon(agent.execute("Go.")))
    assert results(ended.state)[0].outcome == "failed"
    assert bank.asked == []


@pytest.mark.usefixtures("repeats_at_once")
async def test_an_idempotent_call_is_repeated_before_it_is_checked(
    bank: Bank, clock: SimulatedClock
) -> None:
    agent = bank.agent(tools=[bank.tool(idempotent=True)])
    async with Runtime([agent], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        assert bank.paid == {"17": 3}, "under one key"
        assert len(bank.by_key) == 1
        await soon(clock.advance(MINUTE))
        assert text(await soon(outcome)) == "paid 17"


async def test_what_undeclared_says_does_not_cover_a_tool_with_a_check(
    bank: Bank, clock: SimulatedClock
) -> None:
    async with Runtime([bank.agent(undeclared="read_only")], clock=clock) as runtime:
        ref, _ = await waiting(runtime)
        assert await seconds_to_check(ref, clock) == MINUTE


async def test_a_late_result_settles_a_doubt_before_its_check(clock: SimulatedClock) -> None:
    """If the run continues meanwhile, nobody has to look."""
    entered, goes_on, asked, held = threading.Event(), threading.Event(), list[Any](), Held()

    def find(_ctx: ToolContext, arguments: dict[str, Any]) -> Unknown:
        asked.append(arguments)
        return Unknown()

    @tool(timeout=30, check=find)
    def pay(order: str) -> str:
        entered.set()
        goes_on.wait(60)
        return "paid in the end"

    @tool
    async def work() -> str:
        await held.wait()
        return "worked"

    turns = [call("pay", {"order": "17"}), call("work", {})]
    agent = Agent("shop", by_turn(turns, "Done."), tools=[pay, work])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.")
        await until(lambda: held.entered.is_set() and entered.is_set())
        skip(asyncio.get_running_loop(), 30)
        await until_doubts(ref, 1)
        goes_on.set()
        await until_doubts(ref, 0)
        held.release.set()
        ended = completed(await soon(outcome))
        how = [e.detail["how"] for e in (await ref.history()).entries if e.what == "settled"]
    assert [part.content for part in results(ended.state)] == ["paid in the end", "worked"]
    assert how == ["late result"]
    assert asked == []


# -------------------------------------------------------------- a check that cannot tell


async def too_slow(_ctx: ToolContext, _arguments: dict[str, Any]) -> Happened:
    raise TimeoutError


def sleeps(ctx: ToolContext, _arguments: dict[str, Any]) -> Happened:
    ctx.sync.sleep("a while", 60)
    return Happened()


async def runs_an_agent(ctx: ToolContext, _arguments: dict[str, Any]) -> Happened:
    await ctx.run_agent(Agent("other", ScriptedModel(["hello"])), "Go.")
    return Happened()


async def cancels_itself(_ctx: ToolContext, _arguments: dict[str, Any]) -> Happened:
    raise asyncio.CancelledError


async def fails_in_a_group(_ctx: ToolContext, _arguments: dict[str, Any]) -> Happened:
    async with asyncio.TaskGroup() as group:
        group.create_task(too_slow(_ctx, _arguments))
        await never()
    return Happened()


def raises(error: BaseException) -> Any:
    def check(_ctx: ToolContext, _arguments: dict[str, Any]) -> Happened:
        raise error

    return check


UNTOLD: dict[str, Any] = {
    "an error": raises(ValueError("no such account")),
    "a limit": too_slow,
    "an exit": raises(SystemExit(3)),
    "a question": raises(Interrupt("what now?")),
    "a stop": raises(StopAgent(StopSignal.stop_requested("stop"))),
    "a halt": raises(Halt("halt")),
    "a cancellation of its own": cancels_itself,
    "a group": fails_in_a_group,
    "nothing": lambda _ctx, _arguments: None,
    "the class": lambda _ctx, _arguments: DidNotHappen,
    "a sleep": sleeps,
    "an agent": runs_an_agent,
}


@pytest.mark.parametrize("what", UNTOLD)
async def test_a_check_that_fails_cannot_tell_and_that_is_logged(
    bank: Bank, clock: SimulatedClock, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    agent = bank.agent(tools=[bank.tool(check=UNTOLD[what])])
    async with Runtime([agent], clock=clock) as runtime:
        ref, _ = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, clock) == MINUTE
        assert (await soon(ref.state())).requests == ()
    (logged,) = [record for record in caplog.records if "could not tell" in record.getMessage()]
    assert "'pay'" in logged.getMessage()


async def test_a_check_that_does_not_return_cannot_tell(
    bank: Bank, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_ctx: ToolContext, _arguments: dict[str, Any]) -> Happened:
        await never()
        return Happened()

    monkeypatch.setattr("understudy.modes.steps.tool_call.checks.CHECK_SECONDS", 0.01)
    async with Runtime([bank.agent(tools=[bank.tool(check=hang)])], clock=clock) as runtime:
        ref, _ = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, clock) == MINUTE


# -------------------------------------------------------------------------- equal calls


async def test_while_a_check_is_waited_for_an_equal_call_needs_a_person(
    bank: Bank, clock: SimulatedClock
) -> None:
    calls = [call("pay", {"order": order}) for order in ("17", "18", "17")]
    agent = bank.agent(calls, tools=[bank.tool(sequential=True)])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        (request,) = interrupted(await soon(ref.run("Go."))).requests
    assert (request.kind, request.arguments["order"]) == ("approval", "17")
    (doubt,) = request.doubts
    assert doubt.call_key != request.call_key
    assert bank.paid == {"17": 1, "18": 1}, "another order is another call"


async def test_two_equal_calls_in_doubt_at_once_settle_themselves(
    bank: Bank, clock: SimulatedClock
) -> None:
    """Nobody is asked whether they may run: they have run."""
    calls = [call("pay", {"order": "17"}), call("pay", {"order": "17"})]
    async with Runtime([bank.agent(calls)], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    assert [part.content for part in results(ended.state)] == ["paid 17", "paid 17"]
    assert len(bank.asked) == 2


async def test_a_gate_of_today_asks_nobody_about_what_is_in_doubt(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    async with Runtime([bank.agent()], store=place.store(), clock=clock) as runtime:
        await waiting(runtime)
    gated = bank.agent(middleware=[HumanInTheLoop({"pay": True})])
    async with Runtime([gated], store=place.store(), clock=clock) as runtime:
        await soon(clock.advance(MINUTE))
        assert text(await soon(runtime.get("a").outcome())) == "paid 17"


async def test_when_the_check_has_told_the_held_call_still_needs_its_answer(
    bank: Bank, clock: SimulatedClock
) -> None:
    calls = [call("pay", {"order": "17"}), call("pay", {"order": "17"})]
    agent = bank.agent(calls, tools=[bank.tool(sequential=True)])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        (request,) = interrupted(await soon(ref.run("Go."))).requests
        await soon(clock.advance(MINUTE))
        await asked_so_often(bank, 1)
        await until_status(ref, Status.INTERRUPTED)
        state = await soon(ref.state())
        assert state.doubts == {}
        assert [each.id for each in state.requests] == [request.id]
        ended = completed(await soon(ref.resume({request.id: reject("it is paid")})))
    assert [part.outcome for part in results(ended.state)] == ["success", "denied"]
    assert bank.paid == {"17": 1}


async def test_a_call_of_another_agent_of_the_run_is_held_as_well(
    bank: Bank, clock: SimulatedClock
) -> None:
    helper = Agent("helper", by_turn(call("pay", {"order": "17"}), "Helped."), tools=[bank.tool()])
    turns = [
        call("pay", {"order": "17"}),
        call("task", {"task_name": "helper", "instructions": "Pay."}),
    ]
    agent = Agent(
        "shop",
        by_turn(turns, "Done."),
        tools=[bank.tool()],
        middleware=[SubAgent([helper], general_purpose=False)],
    )
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        (request,) = interrupted(await soon(ref.run("Go."))).requests
        assert request.agent_path == ("shop", "helper")
        assert len(request.doubts) == 1
        await soon(clock.advance(MINUTE))
        await until_status(ref, Status.INTERRUPTED)
        ended = completed(await soon(ref.resume({request.id: reject()})))
    assert text(ended) == "paid 17"
    assert bank.paid == {"17": 1}


# ------------------------------------------------------------------------------- people


async def test_a_person_may_settle_it_before(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    async with Runtime([bank.agent()], store=place.store(), clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        (key,) = (await soon(ref.state())).doubts
        await soon(ref.settle(key, how="found on the statement of May"))
        ended = completed(await soon(outcome))
        await soon(clock.advance(2 * HOUR))
    (part,) = results(ended.state)
    assert "found on the statement of May" in str(part.content)
    assert part.outcome == "interrupted", "no error, which the model would repair by a call"
    assert ended.state.doubts == {}
    assert bank.asked == []


async def test_who_settles_the_doubt_while_its_check_is_asked_has_decided(
    bank: Bank, clock: SimulatedClock
) -> None:
    """T15."""
    held = Held()

    async def find(_ctx: ToolContext, _arguments: dict[str, Any]) -> DidNotHappen:
        await held.wait()
        return DidNotHappen()

    async with Runtime([bank.agent(tools=[bank.tool(check=find)])], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(clock.advance(MINUTE))
        await soon(held.entered.wait())
        (key,) = (await soon(ref.state())).doubts
        await soon(ref.settle(key, how="it is paid"))
        held.release.set()
        ended = completed(await soon(outcome))
    assert "it is paid" in str(text(ended))
    assert ended.state.doubts == {}


async def test_what_was_settled_goes_on_beside_another_call(
    bank: Bank, clock: SimulatedClock
) -> None:
    held = Held()

    @tool
    async def work() -> str:
        await held.wait()
        return "worked"

    turns = [call("pay", {"order": "17"}), call("work", {})]
    async with Runtime([bank.agent(turns, tools=[work])], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.")
        await soon(held.entered.wait())
        (key,) = await until_doubts(ref, 1)
        await soon(ref.settle(key, how="it is paid"))
        await until_checks(ref, 1)
        assert not outcome.done()
        held.release.set()
        assert "it is paid" in str(text(await soon(outcome)))


async def test_a_crash_after_it_was_settled_loses_nothing(clock: SimulatedClock) -> None:
    bank, store = Bank(), MemoryStore()
    async with Runtime([bank.agent()], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        (key,) = (await soon(ref.state())).doubts
        await soon(ref.settle(key, how="it is paid"))
        await soon(outcome)
    loaded = await store.load("a")
    assert loaded is not None
    cut = [record.kind for record in loaded.records].index("settled") + 1
    left = await left_after(loaded.records[:cut], agent="shop")
    async with Runtime([bank.agent()], store=left, clock=clock) as runtime:
        await runtime.recover()
        assert "it is paid" in str(text(await soon(runtime.get("a").outcome())))
    assert bank.asked == []


async def test_the_arguments_of_an_edit_are_what_is_looked_for(
    bank: Bank, clock: SimulatedClock
) -> None:
    agent = bank.agent(middleware=[HumanInTheLoop({"pay": True})])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        (request,) = interrupted(await soon(ref.run("Go."))).requests
        outcome = ref.resume({request.id: edit({"order": "18"})})
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    assert bank.asked[0][1] == {"order": "18", "currency": "EUR"}
    assert text(ended)["result"] == "paid 18"


async def test_an_approved_call_in_doubt_is_not_asked_about_anew_where_its_tool_has_changed(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    gate = HumanInTheLoop({"pay": True})
    agent = bank.agent(middleware=[gate])
    async with Runtime([agent], store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        (request,) = interrupted(await soon(ref.run("Go."))).requests
        ref.resume({request.id: approve()})
        await until_status(ref, Status.WAITING)
    changed = bank.agent(tools=[bank.tool(version="2")], middleware=[gate])
    async with Runtime([changed], store=place.store(), clock=clock) as runtime:
        await soon(clock.advance(MINUTE))
        assert text(await soon(runtime.get("a").outcome())) == "paid 17"
    assert bank.paid == {"17": 1}


async def test_a_definition_without_the_check_asks_a_person(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    async with Runtime([bank.agent()], store=place.store(), clock=clock) as runtime:
        await waiting(runtime)
    without = bank.agent(tools=[bank.tool(check=None, on_unknown="ask")])
    async with Runtime([without], store=place.store(), clock=clock) as runtime:
        await soon(clock.advance(MINUTE))
        ref = runtime.get("a")
        await until_status(ref, Status.INTERRUPTED)
        (request,) = (await soon(ref.state())).requests
    assert request.kind == "doubt"
    assert bank.asked == []


# ----------------------------------------------------------- without a runtime, and ends


async def test_without_a_runtime_the_caller_goes_on(bank: Bank, clock: SimulatedClock) -> None:
    agent = bank.agent()
    bank.answers = [unknown]
    first = await soon(agent.execute("Go.", clock=clock))
    assert isinstance(first, Waiting)
    assert first.due == clock.now() + timedelta(seconds=60)
    assert "'pay' is in doubt, and waits for its check until" in first.explain()
    assert len(first.state.doubts) == 1
    again = await soon(agent.resume(reloaded(first.state), clock=clock))
    assert isinstance(again, Waiting)
    assert (again.waits, bank.asked) == (first.waits, [])
    await soon(clock.advance(60))
    again = await soon(agent.resume(reloaded(again.state), clock=clock))
    assert isinstance(again, Waiting)
    await soon(clock.advance(60))
    assert text(await soon(agent.resume(reloaded(again.state), clock=clock))) == "paid 17"
    assert len(bank.asked) == 2


async def test_two_copies_of_a_state_that_go_on_at_once_both_have_their_results(bank: Bank) -> None:
    """What is noted of a body that runs is that of both."""

    @tool(check=bank.find, ask=True)
    async def pay() -> str:
        await asyncio.sleep(0)
        return "paid"

    desk = Agent("desk", by_turn(call("pay")), tools=[pay])
    asked = interrupted(await soon(desk.execute("Pay.")))
    answers = asked.decide(approve())
    ends = await soon(
        asyncio.gather(*(desk.resume(reloaded(asked.state), answers) for _ in range(2)))
    )
    assert [contents(completed(end).state) for end in ends] == [[("success", "paid")]] * 2


async def test_without_a_runtime_a_person_may_settle_it_as_well(bank: Bank) -> None:
    agent = bank.agent()
    waits = await soon(agent.execute("Go."))
    (key,) = waits.state.doubts
    ended = completed(await soon(agent.resume(agent.settle(waits.state, key, how="it is paid"))))
    assert "it is paid" in text(ended)
    assert bank.asked == []


async def test_the_end_of_the_run_leaves_the_doubt(bank: Bank, clock: SimulatedClock) -> None:
    """The model of a later run is informed, and an equal call needs a person."""
    turns = [call("pay", {"order": "17"}), call("pay", {"order": "17"})]
    async with Runtime([bank.agent(*turns)], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        assert await soon(ref.cancel())
        ended = await soon(outcome)
        assert isinstance(ended, Stopped)
        assert "unknown" in text(ended)
        assert len(ended.state.doubts) == 1
        await soon(clock.advance(2 * HOUR))
        assert bank.asked == []
        (request,) = interrupted(await soon(ref.run("Go on."))).requests
        assert len(request.doubts) == 1
    assert bank.paid == {"17": 1}


async def test_a_call_that_stops_the_run_leaves_the_doubt_of_another(
    bank: Bank, clock: SimulatedClock
) -> None:
    held = Held()

    @tool
    async def stop() -> str:
        await held.wait()
        raise StopAgent(StopSignal.stop_requested("enough"))

    turns = [call("pay", {"order": "17"}), call("stop", {})]
    async with Runtime([bank.agent(turns, tools=[stop])], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.")
        await until_doubts(ref, 1)
        held.release.set()
        ended = await soon(outcome)
    assert isinstance(ended, Stopped)
    assert "unknown" in text(ended)
    assert len(ended.state.doubts) == 1


async def test_a_failed_run_that_is_continued_checks_what_it_had_left(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    held, is_down = Held(), [True]

    async def reply(_: ScriptedRequest) -> Any:
        if is_down:
            await held.wait()
            raise ConnectionError("down")
        return "two"

    one = Agent("one", by_turn(call("pay", {"order": "17"}), "one"), tools=[bank.tool()])
    both = Agent("both", mode=Parallel([one, Agent("two", ScriptedModel(reply))]))
    async with Runtime([both], store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("both", id="a")
        failing = ref.run("Go.")
        await soon(held.entered.wait())
        async with asyncio.timeout(60):
            while not (await ref.state()).doubts_in_tree:  # noqa: ASYNC110  # a look
                await asyncio.sleep(0)
        held.release.set()
        assert isinstance(await soon(failing), Failed)
        is_down.clear()
        outcome = ref.retry()
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, clock) == MINUTE
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    assert ended.state.doubts_in_tree == {}
    assert bank.paid == {"17": 1}
    assert len(bank.asked) == 1


async def test_an_imported_agent_checks_anew_and_runs_nothing_again(
    bank: Bank, clock: SimulatedClock
) -> None:
    async with Runtime([bank.agent()], clock=clock) as runtime:
        await waiting(runtime)
        exported = await soon(runtime.export("a"))
    async with Runtime([bank.agent()], clock=clock) as runtime:
        await soon(runtime.import_(exported))
        await runtime.recover()
        ref = runtime.get("a")
        await wake(ref)
        await until_status(ref, Status.WAITING)
        assert await seconds_to_check(ref, clock) == MINUTE
        await soon(clock.advance(MINUTE))
        assert text(await soon(ref.outcome())) == "paid 17"
    assert bank.paid == {"17": 1}


# ------------------------------------------------------------------ agents inside others


async def test_a_call_of_an_agent_inside_settles_itself(
    bank: Bank, clock: SimulatedClock, place: Place
) -> None:
    helper = bank.agent()
    chief = Agent(
        "chief",
        by_turn(call("task", {"task_name": "shop", "instructions": "Pay."}), "Done."),
        middleware=[SubAgent([helper], general_purpose=False)],
    )
    async with Runtime([chief], store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("chief", id="a")
        outcome = ref.run("Go.")
        await until_status(ref, Status.WAITING)
        (wait,) = await runtime.waiting()
        assert (wait.agent_path, wait.kind) == (("chief", "shop"), "check")
        await soon(clock.advance(MINUTE))
        assert text(await soon(outcome)) == "Done."
    assert bank.paid == {"17": 1}
    assert len(bank.asked) == 1


async def test_the_branches_of_a_workflow_settle_themselves(
    bank: Bank, clock: SimulatedClock
) -> None:
    branches = [
        Agent(name, by_turn(call("pay", {"order": name}), "Done."), tools=[bank.tool()])
        for name in ("one", "two")
    ]
    both = Agent("both", mode=Parallel(branches))
    async with Runtime([both], clock=clock) as runtime:
        ref = runtime.spawn("both", id="a")
        outcome = ref.run("Go.")
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(MINUTE))
        ended = completed(await soon(outcome))
    assert [each.outcome for each in ended.results] == ["completed"] * 2
    assert bank.paid == {"one": 1, "two": 1}


async def test_a_check_goes_on_beside_other_calls_each_time(
    bank: Bank, clock: SimulatedClock
) -> None:
    """It is on time, also the second time, while another call of the reply runs."""
    held = Held()

    @tool
    async def work() -> str:
        await held.wait()
        return "worked"

    bank.answers = [unknown] * 2
    turns = [call("pay", {"order": "17"}), call("work", {})]
    async with Runtime([bank.agent(turns, tools=[work])], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.")
        await soon(held.entered.wait())
        await until_doubts(ref, 1)
        for count, seconds in enumerate((60, 60, 480), 1):
            await soon(clock.advance(seconds))
            await asked_so_often(bank, count)
            await until_checks(ref, count)
        assert not outcome.done()
        held.release.set()
        assert text(await soon(outcome)) == "paid 17"


# -------------------------------------------------------------- crashes, and other hosts


@asynccontextmanager
async def gone_on(
    records: Sequence[Record], bank: Bank, clock: SimulatedClock
) -> AsyncIterator[AgentRef]:
    """The agent after its host went away when it had written these records."""
    left = await left_after(records, agent="shop")
    async with Runtime([bank.agent()], store=left, clock=clock) as runtime:
        await runtime.recover()
        ref = runtime.get("a")
        await wake(ref)
        yield ref


async def to_the_end(ref: AgentRef, clock: SimulatedClock) -> Completed:
    async with asyncio.timeout(60):
        while await until_status(ref, Status.WAITING, Status.IDLE) is Status.WAITING:
            await clock.advance(MINUTE)
    return completed_of(await soon(ref.outcome()))


def completed_of(outcome: Outcome | None) -> Completed:
    assert outcome is not None
    return completed(outcome)


@pytest.mark.parametrize("takes", [True, False])
async def test_a_host_that_goes_away_after_any_record_pays_nothing_twice(takes: bool) -> None:
    """Whatever the last host has recorded, the next one asks, and comes to the same end."""
    clock, bank, store = SimulatedClock(), Bank(), MemoryStore()
    bank.takes, bank.answers = takes, [unknown]
    async with Runtime([bank.agent()], store=store, clock=clock) as runtime:
        ref, _ = await waiting(runtime)
        end = await to_the_end(ref, clock)
    loaded = await store.load("a")
    assert loaded is not None
    names = [record.kind for record in loaded.records]
    assert names.count("point_reached") == 2
    started = names.index("started")
    for cut in range(names.index("run_started") + 1, len(names) + 1):
        again = Bank()
        again.takes = takes
        if cut > started:
            again.paid, again.by_key = dict(bank.paid), dict(bank.by_key)
        later = SimulatedClock(clock.now())
        async with gone_on(loaded.records[:cut], again, later) as ref:
            ended = await to_the_end(ref, later)
        assert again.paid == bank.paid, names[:cut]
        assert text(ended) == text(end), names[:cut]
        assert ended.state.doubts == {}


async def test_a_check_that_is_cut_off_is_asked_again(clock: SimulatedClock, place: Place) -> None:
    bank, held = Bank(), Held()

    async def find(_ctx: ToolContext, _arguments: dict[str, Any]) -> DidNotHappen:
        await held.wait()
        return DidNotHappen()

    first = bank.agent(tools=[bank.tool(check=find)])
    async with Runtime([first], store=place.store(), clock=clock) as runtime:
        await waiting(runtime)
        await soon(clock.advance(MINUTE))
        await soon(held.entered.wait())
        async with Runtime([bank.agent()], store=place.after_crash(), clock=clock) as another:
            await another.recover()
            assert text(await soon(another.get("a").outcome())) == "paid 17"
        held.release.set()
    assert bank.paid == {"17": 1}


async def test_a_check_comes_due_at_another_host(bank: Bank, hosts: Hosts) -> None:
    clock, other = SimulatedClock(), SimulatedClock()
    here, there = DatabaseStore(hosts.new("here")), DatabaseStore(hosts.new("there"))
    async with Runtime([bank.agent()], store=here, clock=clock, sweep=None) as first:
        ref, outcome = await waiting(first)
        await soon(ref.stop(block=False))
        async with Runtime([bank.agent()], store=there, clock=other, sweep=None) as second:
            await soon(other.advance(MINUTE))
            assert text(await soon(second.get("a").outcome())) == "paid 17"
            assert text(await soon(outcome)) == "paid 17", "who waits at the first host hears of it"
            await soon(clock.advance(MINUTE))
            assert (await kinds(second)).count("point_answered") == 1
    assert len(bank.asked) == 1
    assert bank.paid == {"17": 1}


@pytest.mark.quick
async def test_two_hosts_whose_clocks_come_to_a_check_ask_once(bank: Bank, hosts: Hosts) -> None:
    clock, other = SimulatedClock(), SimulatedClock()
    here, there = DatabaseStore(hosts.new("here")), DatabaseStore(hosts.new("there"))
    async with Runtime([bank.agent()], store=here, clock=clock, sweep=None) as first:
        ref, outcome = await waiting(first)
        await soon(ref.stop(block=False))
        async with Runtime([bank.agent()], store=there, clock=other, sweep=None):
            await soon(asyncio.gather(clock.advance(MINUTE), other.advance(MINUTE)))
            assert text(await soon(outcome)) == "paid 17"
            told = await kinds(first)
    assert told.count("point_answered") == 1
    assert len(bank.asked) == 1


# ------------------------------------------------------------------------ what is seen


async def test_it_is_seen_by_subscribers_and_in_the_history(
    bank: Bank, clock: SimulatedClock
) -> None:
    bank.answers = [unknown]
    async with Runtime([bank.agent()], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        told = ref.events()
        outcome = ref.run("Go.")
        for _ in range(2):
            await until_status(ref, Status.WAITING)
            await soon(clock.advance(MINUTE))
            await until(lambda: outcome.done() or ref.status() is Status.WAITING)
        await soon(outcome)
        seen: list[Any] = []
        async for each in told:
            match each.event:
                case events.WaitStarted(name=name, what=what, expires_at=at):
                    seen.append(("wait", name, what, at))
                case events.WaitOver(name=name, what=what, how=how):
                    seen.append(("over", name, what, how))
                case events.ToolEnded(outcome=how):
                    seen.append(("ended", how))
                case events.RunFinished():
                    break
        entries = (await soon(ref.history())).entries
    start = clock.now() - timedelta(seconds=120)
    assert seen == [
        ("wait", "check/1", "check", start + timedelta(seconds=60)),
        ("over", "check/1", "check", "over"),
        ("wait", "check/2", "check", start + timedelta(seconds=120)),
        ("over", "check/2", "check", "over"),
        ("ended", "success"),
    ]
    whats = [entry.what for entry in entries]
    assert whats.count("wait_started") == 2
    (settled,) = [entry for entry in entries if entry.what == "settled"]
    assert (settled.who, settled.detail) == ("check", {"how": "check"})
    first = entries[whats.index("wait_started")]
    assert first.detail["what"] == "check"
    assert "reset" in first.detail["reason"]


async def test_a_display_shows_the_wait_and_who_settled_it(
    bank: Bank, clock: SimulatedClock
) -> None:
    async with Runtime([bank.agent()], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        (row,) = [row for row in (await soon(ref.display())).rows if row.kind == "call"]
        assert row.state == "waiting"
        assert row.detail["waits_for"]["what"] == "check"
        assert row.detail["waits_for"]["until"] == "2030-01-01T12:01:00+00:00"
        await soon(clock.advance(MINUTE))
        await soon(outcome)
        (row,) = [row for row in (await soon(ref.display())).rows if row.kind == "call"]
        assert (row.state, row.detail["settled"]) == ("success", "check")


# --------------------------------------------------------------------------- bad input


def three(_ctx: ToolContext, _arguments: dict[str, Any], _more: str) -> Happened:
    return Happened()


def generator(_ctx: ToolContext, _arguments: dict[str, Any]) -> Any:
    yield Happened()


@pytest.mark.parametrize(
    "check", [lambda _ctx: Happened(), lambda: Happened(), three, generator, "find", 3, Happened]
)
def test_a_check_that_is_no_function_of_two_parameters_is_refused(check: Any) -> None:
    with pytest.raises(UsageError, match=r"'pay': `check` must be a function of two parameters"):
        tool(check=check, name="pay")(three)


def test_a_check_of_a_tool_that_only_looks_is_refused(bank: Bank) -> None:
    with pytest.raises(UsageError, match=r"use `check` .* or `read_only` .*, not both"):
        bank.tool(read_only=True)


@pytest.mark.parametrize(
    "times", [[], [0], [-1, 5], [60, 60], [120, 60], "60", 60, [True], [float("nan")], [1e18]]
)
def test_times_that_cannot_be_are_refused(bank: Bank, times: Any) -> None:
    with pytest.raises(UsageError, match="`check_after`"):
        bank.tool(check_after=times)


def test_times_without_a_check_are_refused(bank: Bank) -> None:
    with pytest.raises(UsageError, match="`check_after` says when `check` is asked: give both"):
        bank.tool(check=None, check_after=[60])


async def test_a_point_of_a_tool_has_no_name_of_a_check() -> None:
    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("check/1", 60)
        return "slept"

    agent = Agent("shop", by_turn(call("nap", {}), "Done."), tools=[nap])
    ended = completed(await soon(agent.execute("Go.")))
    assert "begins with 'check/'" in text(ended)


def test_a_tool_of_a_schema_may_have_a_check(bank: Bank) -> None:
    made = Tool.from_schema(
        "pay",
        "Pays.",
        {"type": "object"},
        lambda arguments: arguments,
        check=bank.find,
        check_after=[90],
    )
    assert (made.check, made.check_after) == (bank.find, (90.0,))

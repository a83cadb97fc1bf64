"""`@tool(key=...)`: calls that are equal whatever else they say do not just run (T14)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from typing import Any

import pytest

from tests.support.agents import (
    Held,
    Stage,
    by_turn,
    completed,
    interrupted,
    results,
    until_status,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon, until
from tests.support.places import Place, SqlitePlace
from understudy import (
    Agent,
    Interrupt,
    Outcome,
    Request,
    Runtime,
    SimulatedClock,
    Status,
    Tool,
    ToolContext,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.errors import StoreUnavailable
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import Middleware, SubAgent
from understudy.testing import FaultyBackend
from understudy.tools import Retry, ToolFailed

HOUR = 3600.0


def order_of(arguments: Mapping[str, Any]) -> str:
    return f"refund:{arguments['order_id']}"


class Till:
    """Tools that pay money back, and what they really did."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.raises: dict[int, BaseException] = {}
        """By amount: what the payment of it raises, after it was made."""
        self.held: dict[int, Held] = {}
        """By amount: where the payment of it waits, after it was made."""

    def refund(self, **options: Any) -> Tool:
        async def refund(order_id: str, amount: int) -> str:
            """Pay money back."""
            self.paid.append((order_id, amount))
            if amount in self.held:
                await self.held[amount].wait()
            if amount in self.raises:
                raise self.raises[amount]
            return f"paid {amount}"

        return Tool(refund, **{"key": order_of, **options})


def refund(amount: int, order_id: str = "17", name: str = "refund") -> Any:
    return call(name, {"order_id": order_id, "amount": amount})


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture(params=["here", "elsewhere"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(elsewhere=request.param == "elsewhere")


def asked(outcome: Outcome) -> Request:
    """The one request of the outcome."""
    (request,) = interrupted(outcome).requests
    return request


def beside(request: Request) -> list[tuple[int | None, str]]:
    """The amount and the status of each call that a person is shown beside the one asked about."""
    return [(doubt.arguments.get("amount"), doubt.status) for doubt in request.doubts]


# ------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"key": order_of, "read_only": True}, ["`key`", "`read_only`"]),
        ({"key": "order_id"}, ["'refund'", "`key`", "plain function"]),
        ({"key": None, "on_repeat": "ask"}, ["`on_repeat`", "`key`"]),
        ({"key": None, "key_kept": 3}, ["`key_kept`", "`key`"]),
        ({"on_repeat": "never"}, ["`on_repeat`", "'never'"]),
        ({"key_kept": 0}, ["`key_kept`", "more than 0"]),
        ({"key_kept": timedelta(0)}, ["`key_kept`", "more than 0"]),
        ({"key_kept": True}, ["`key_kept`"]),
        ({"key_kept": 1e9}, ["`key_kept`", "100 years"]),
    ],
)
def test_options_that_do_not_fit_are_refused(
    till: Till, options: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(UsageError) as refused:
        till.refund(**options)
    for name in names:
        assert name in str(refused.value)


def test_an_async_function_makes_no_key(till: Till) -> None:
    async def later(arguments: Mapping[str, Any]) -> str:
        return order_of(arguments)

    with pytest.raises(UsageError, match="`key` must be a plain function"):
        till.refund(key=later)


@pytest.mark.parametrize("key", [lambda _arguments, _ctx: "one", lambda: "one"])
def test_a_function_of_another_number_of_parameters_makes_no_key(till: Till, key: Any) -> None:
    with pytest.raises(UsageError, match="`key` must be a plain function of one parameter"):
        till.refund(key=key)


def no_key(arguments: Mapping[str, Any]) -> Any:
    return arguments["order_id"] or None


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(
    ("key", "why"),
    [
        (lambda arguments: arguments["number"], "KeyError"),
        (lambda arguments: arguments["amount"], "got 5"),
        (lambda _: "", "got ''"),
        (lambda _: None, "got None"),
    ],
)
def test_a_call_whose_key_cannot_be_made_does_not_run(
    stage: Stage, till: Till, key: Any, why: str, gated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """T14: and nobody is asked about it. The log tells who wrote the tool."""
    stage.cast(refund(5), tools=[till.refund(key=key, ask=gated)])
    (part,) = results(completed(stage.start()).state)
    assert (part.outcome, till.paid) == ("failed", [])
    assert "'refund'" in str(part.content)
    assert "`key`" in str(part.content)
    assert why in str(part.content)
    assert why in caplog.text


def test_a_key_is_made_of_the_arguments_as_a_gate_sees_them(till: Till) -> None:
    seen: list[Any] = []

    def key(arguments: Mapping[str, Any]) -> str:
        seen.append(dict(arguments))
        return str(arguments["order"])

    @tool(key=key, ask=True)
    def pay(order: int, note: str = "no note") -> str:
        """Pay."""
        return "paid"

    stage = Stage(elsewhere=False)
    stage.cast(call("pay", {"order": "17"}), tools=[pay])
    outcome = interrupted(stage.start())
    assert seen == [{"order": 17, "note": "no note"}] == [outcome.requests[0].arguments]


def test_a_key_changes_no_arguments(stage: Stage, till: Till) -> None:
    def emptying(arguments: Any) -> str:
        order_id = arguments["order_id"]
        arguments.clear()
        return str(order_id)

    stage.cast(refund(5), tools=[till.refund(key=emptying)])
    completed(stage.start())
    assert till.paid == [("17", 5)]


def test_a_tool_with_a_key_has_effects_whatever_holds_for_undeclared_ones(till: Till) -> None:
    """T14: `undeclared="read_only"` does not cover it: it is in doubt."""
    till.raises = {5: TimeoutError(), 6: TimeoutError()}
    other = Tool(till.refund().function, name="look_up")
    agent = Agent(
        "desk",
        by_turn([refund(5), refund(6, name="look_up")]),
        tools=[till.refund(), other],
        undeclared="read_only",
    )
    end = completed(agent.execute_sync("go"))
    assert [doubt.tool_name for doubt in end.state.doubts.values()] == ["refund"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionRefusedError(), "interrupted"),
        (ValueError("no such order"), "interrupted"),
        (ToolFailed("no such order"), "failed"),
        (Retry("another order"), "failed"),
        (LookupError("no such order"), "failed"),
    ],
)
def test_of_a_tool_with_a_key_only_its_own_words_prove_that_nothing_happened(
    till: Till, error: BaseException, outcome: str
) -> None:
    """T14: its author knows that it has effects."""
    till.raises = {5: error}
    tool = till.refund(nothing_happened=LookupError)
    agent = Agent("desk", by_turn(refund(5)), tools=[tool])
    (part,) = results(completed(agent.execute_sync("go")).state)
    assert part.outcome == outcome


# ------------------------------------------------------------------- one run, no store


def test_an_equal_call_needs_a_person_who_sees_both(stage: Stage, till: Till) -> None:
    """T14: whatever else it says."""
    stage.cast(refund(5), refund(6), tools=[till.refund()])
    request = asked(stage.start())
    assert (request.kind, request.arguments["amount"]) == ("approval", 6)
    assert beside(request) == [(5, "done")]
    assert request.doubts[0].tool_name == "refund"
    assert till.paid == [("17", 5)]


def test_a_call_with_another_key_runs(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), refund(5, "18"), tools=[till.refund()])
    completed(stage.start())
    assert till.paid == [("17", 5), ("18", 5)]


def test_two_tools_with_one_key_are_equal(stage: Stage, till: Till) -> None:
    other = till.refund(name="refund_all")
    stage.cast(refund(5), refund(6, name="refund_all"), tools=[till.refund(), other])
    request = asked(stage.start())
    assert (request.tool_name, beside(request)) == ("refund_all", [(5, "done")])


def test_a_person_approves_the_repetition(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), refund(6), tools=[till.refund()])
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve())))
    assert till.paid == [("17", 5), ("17", 6)]
    assert [part.outcome for part in results(end.state)] == ["success", "success"]


def test_a_person_rejects_the_repetition(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), refund(6), tools=[till.refund()])
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(reject("paid already"))))
    assert till.paid == [("17", 5)]
    assert [part.outcome for part in results(end.state)] == ["success", "denied"]


def test_an_answer_about_two_calls_holds_for_these_two(stage: Stage, till: Till) -> None:
    """T14: the third one is another pair, with each of them."""
    stage.cast(refund(5), refund(6), refund(7), tools=[till.refund()])
    outcome = interrupted(stage.start())
    request = asked(stage.resume(outcome, outcome.decide(approve())))
    assert beside(request) == [(5, "done"), (6, "done")]
    assert till.paid == [("17", 5), ("17", 6)]


def test_an_edit_to_another_key_is_another_call(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), refund(6), refund(7, "18"), tools=[till.refund()])
    outcome = interrupted(stage.start())
    other = edit({"order_id": "18", "amount": 6})
    request = asked(stage.resume(outcome, outcome.decide(other)))
    assert till.paid == [("17", 5), ("18", 6)]
    assert beside(request) == [(6, "done")]


def test_an_edit_to_the_key_of_a_third_call_is_asked_about_again(stage: Stage, till: Till) -> None:
    stage.cast(refund(4, "18"), refund(5), refund(6), tools=[till.refund()])
    outcome = interrupted(stage.start())
    request = asked(stage.resume(outcome, outcome.decide(edit({"order_id": "18", "amount": 6}))))
    assert till.paid == [("18", 4), ("17", 5)]
    assert (request.arguments["order_id"], beside(request)) == ("18", [(4, "done")])


def test_of_two_equal_calls_in_one_reply_none_runs_before_a_person_has_decided(
    stage: Stage, till: Till
) -> None:
    """T14, I2."""
    stage.cast([refund(5), refund(6), refund(7, "18")], tools=[till.refund()])
    outcome = interrupted(stage.start())
    assert till.paid == []
    request = asked(outcome)
    assert (request.arguments["amount"], beside(request)) == (6, [(5, "open")])
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert sorted(till.paid) == [("17", 5), ("17", 6), ("18", 7)]


def test_a_gate_asks_once_about_a_repetition(stage: Stage, till: Till) -> None:
    """T14: the person sees the other call in the request of the gate."""
    stage.cast(refund(5), refund(6), tools=[till.refund(ask=["approve", "reject"])])
    outcome = interrupted(stage.start())
    assert beside(asked(outcome)) == []
    outcome = interrupted(stage.resume(outcome, outcome.decide(approve())))
    request = asked(outcome)
    assert (request.allowed, beside(request)) == (("approve", "reject"), [(5, "done")])
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert till.paid == [("17", 5), ("17", 6)]


def test_a_grant_covers_no_repetition(stage: Stage, till: Till) -> None:
    """T14, J4."""
    stage.cast(refund(5), refund(5, "18"), refund(6), tools=[till.refund(ask=True)])
    outcome = interrupted(stage.start())
    request = asked(stage.resume(outcome, outcome.decide(approve(always=True))))
    assert till.paid == [("17", 5), ("18", 5)]
    assert beside(request) == [(5, "done")]


@pytest.mark.parametrize("gated", [False, True])
def test_a_repetition_that_is_refused_is_told_to_the_model(
    stage: Stage, till: Till, gated: bool
) -> None:
    """T14: and nobody is asked."""
    stage.cast(refund(5), refund(6), tools=[till.refund(on_repeat="refuse", ask=gated)])
    outcome = stage.start()
    if gated:
        waiting = interrupted(outcome)
        outcome = stage.resume(waiting, waiting.decide(approve()))
    paid, refused = results(completed(outcome).state)
    assert till.paid == [("17", 5)]
    assert (paid.outcome, refused.outcome) == ("success", "failed")
    assert "has run before" in str(refused.content)
    assert "Do not call it again" in str(refused.content)


def test_a_repetition_that_is_allowed_runs(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), refund(6), tools=[till.refund(on_repeat="allow")])
    completed(stage.start())
    assert till.paid == [("17", 5), ("17", 6)]


@pytest.mark.parametrize("error", [ToolFailed("no money"), Retry("another time")])
def test_a_call_that_failed_gives_its_key_back(
    stage: Stage, till: Till, error: BaseException
) -> None:
    till.raises = {5: error}
    stage.cast(refund(5), refund(6), tools=[till.refund()])
    completed(stage.start())
    assert till.paid == [("17", 5), ("17", 6)]


def test_a_call_that_a_person_has_rejected_takes_no_key(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), refund(6), tools=[till.refund(ask=True)])
    outcome = interrupted(stage.start())
    outcome = interrupted(stage.resume(outcome, outcome.decide(reject())))
    assert beside(asked(outcome)) == []


@pytest.mark.parametrize("on_repeat", ["ask", "refuse", "allow"])
def test_a_call_in_doubt_holds_up_whatever_is_equal(
    stage: Stage, till: Till, on_repeat: str
) -> None:
    """T14, J4: a person is asked, though the arguments differ, and whatever a repetition is."""
    till.raises = {5: TimeoutError()}
    stage.cast(refund(5), refund(6), tools=[till.refund(on_repeat=on_repeat)])
    outcome = interrupted(stage.start())
    assert beside(asked(outcome)) == [(5, "in_doubt")]
    assert till.paid == [("17", 5)]
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert till.paid == [("17", 5), ("17", 6)]


def test_a_grant_covers_no_call_while_an_equal_one_is_in_doubt(stage: Stage, till: Till) -> None:
    till.raises = {5: TimeoutError()}
    tool = till.refund(ask=True, on_unknown="tell")
    stage.cast(refund(1, "1"), refund(5), refund(6), tools=[tool])
    outcome = interrupted(stage.start())
    request = asked(stage.resume(outcome, outcome.decide(approve(always=True))))
    assert till.paid == [("1", 1), ("17", 5)]
    assert beside(request) == [(5, "in_doubt")]


def test_a_doubt_holds_in_the_next_run_and_what_is_done_does_not(stage: Stage, till: Till) -> None:
    """T14: without a store, what is done is known within one run."""
    till.raises = {5: TimeoutError()}
    turns = ([refund(5), refund(4, "18")], "first", refund(6, "18"), refund(7))
    stage.cast(*turns, tools=[till.refund()])
    before = completed(stage.start())
    request = asked(stage.start(state=stage.carried(before.state)))
    assert (request.arguments["amount"], beside(request)) == (7, [(5, "in_doubt")])
    assert sorted(till.paid) == [("17", 5), ("18", 4), ("18", 6)]


def test_a_doubt_that_is_settled_is_done(stage: Stage, till: Till) -> None:
    till.raises = {5: TimeoutError()}
    stage.cast(refund(5), refund(6), tools=[till.refund(on_repeat="allow")])
    outcome = interrupted(stage.start())
    (doubt,) = outcome.requests[0].doubts
    state = stage.agent.settle(stage.carried(outcome.state), doubt.call_key, how="it is paid")
    assert [held.is_done for held in state.held_keys.values()] == [True]


def test_a_doubt_from_before_the_tool_had_a_key_counts(stage: Stage, till: Till) -> None:
    """T14: by what the tool says now."""
    till.raises = {5: TimeoutError()}
    stage.cast(refund(5), "moved on", refund(6), tools=[till.refund(key=None)])
    before = completed(stage.start())
    stage.cast(refund(5), "moved on", refund(6), tools=[till.refund()])
    request = asked(stage.start(state=stage.carried(before.state)))
    assert beside(request) == [(5, "in_doubt")]


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param(
            [call("task", {"task_name": "clerk", "instructions": "x"}), refund(6)], id="child first"
        ),
        pytest.param(
            [refund(6), call("task", {"task_name": "clerk", "instructions": "x"})],
            id="child second",
        ),
        pytest.param(
            [[call("task", {"task_name": "clerk", "instructions": "x"})] * 2], id="two children"
        ),
    ],
)
def test_calls_of_a_parent_and_its_children_are_equal(
    stage: Stage, till: Till, turns: list[Any]
) -> None:
    """T14: in the whole tree of agents."""

    def children() -> list[Middleware]:
        return [SubAgent(agents=[Agent("clerk", by_turn(refund(5)), tools=[till.refund()])])]

    stage.cast(*turns, tools=[till.refund()], middleware=children)
    outcome = interrupted(stage.start())
    assert len(till.paid) == 1
    assert len(beside(asked(outcome))) == 1
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert len(till.paid) == 2


def test_a_call_whose_result_is_lost_is_done(stage: Stage, till: Till) -> None:
    """T14: it ran."""

    @tool(key=order_of)
    async def refund(order_id: str, amount: int) -> Any:
        """Pay money back."""
        till.paid.append((order_id, amount))
        return float("nan")

    turns = [call("refund", {"order_id": "17", "amount": n}) for n in (5, 6)]
    stage.cast(*turns, tools=[refund])
    assert beside(asked(stage.start())) == [(5, "done")]
    assert till.paid == [("17", 5)]


class Asks:
    """A tool that asks a question, and pays after the answer."""

    def __init__(self, till: Till) -> None:
        @tool(name="refund", key=order_of)
        async def asking(ctx: ToolContext, order_id: str, amount: int) -> str:
            """Pay money back."""
            if ctx.resume_value is None and amount == 5:
                raise Interrupt("sure?")
            till.paid.append((order_id, amount))
            return "paid"

        self.tool = asking


def test_a_call_that_asks_has_its_key_meanwhile_and_gives_it_back_if_it_is_rejected(
    stage: Stage, till: Till
) -> None:
    stage.cast(refund(5), refund(6), tools=[Asks(till).tool])
    outcome = interrupted(stage.start())
    assert len(outcome.state.held_keys) == 1
    end = completed(stage.resume(outcome, outcome.decide(reject())))
    assert till.paid == [("17", 6)]
    assert [part.outcome for part in results(end.state)] == ["denied", "success"]


def test_a_question_that_is_answered_leaves_a_call_that_is_done(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), refund(6), tools=[Asks(till).tool])
    outcome = interrupted(stage.start())
    request = asked(stage.resume(outcome, outcome.decide(respond("yes"))))
    assert (request.kind, beside(request)) == ("approval", [(5, "done")])
    assert till.paid == [("17", 5)]


class Lowers(Middleware):
    """Changes the arguments of a call."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        return await next(call.replace({**call.arguments, **self.changes}))


def test_a_middleware_may_change_what_the_key_is_not_made_of(stage: Stage, till: Till) -> None:
    stage.cast(refund(5), tools=[till.refund()], middleware=lambda: [Lowers(amount=1)])
    completed(stage.start())
    assert till.paid == [("17", 1)]


def test_a_middleware_that_changes_the_key_keeps_the_call_from_running(
    stage: Stage, till: Till
) -> None:
    """T14: what it would run under, nobody has looked up."""
    stage.cast(refund(5), tools=[till.refund()], middleware=lambda: [Lowers(order_id="18")])
    (part,) = results(completed(stage.start()).state)
    assert (till.paid, part.outcome) == ([], "failed")
    assert "middleware" in str(part.content)
    assert "key" in str(part.content)


def test_a_run_that_is_cut_off_at_any_record_has_paid_once(till: Till) -> None:
    """T14, J4: each call that may have paid holds the equal one up."""
    agent = Agent("desk", by_turn(refund(5), refund(6)), tools=[till.refund()])
    records = Disk()
    asked(agent.execute_sync("go", journal=records))
    for limit in range(1, len(records.lines)):
        till.paid.clear()
        disk = Disk(limit)
        with pytest.raises(Crash):
            agent.execute_sync("go", journal=disk)
        state = disk.load()
        if state.run is None:
            continue
        interrupted(agent.resume_sync(state))
        assert len(till.paid) == 1, limit


# ------------------------------------------------------------------- agents of one store


@asynccontextmanager
async def opened(store: Any, *agents: Agent, **options: Any) -> AsyncIterator[Runtime]:
    async with Runtime(agents, store=store, sweep=None, stop_timeout=0.1, **options) as runtime:
        yield runtime


def desk(till: Till, *turns: Any, name: str = "desk", **options: Any) -> Agent:
    return Agent(name, by_turn(*turns), tools=[till.refund(**options)])


async def go(runtime: Runtime, id: str, agent: str = "desk") -> Outcome:
    return await soon(runtime.spawn(agent, id).run("go"))


async def test_equal_calls_of_two_agents_do_not_both_just_run(place: Place, till: Till) -> None:
    """T14: the person sees whose call the other one is, and what it said."""
    first, second = desk(till, refund(5), name="one"), desk(till, refund(6), name="two")
    async with opened(place.store(), first, second) as runtime:
        completed(await go(runtime, "a", "one"))
        request = asked(await go(runtime, "b", "two"))
        assert beside(request) == [(5, "done")]
        assert request.doubts[0].agent_id == "a"
        assert till.paid == [("17", 5)]
        outcome = await soon(runtime.get("b").resume({request.id: approve()}))
        completed(outcome)
        assert till.paid == [("17", 5), ("17", 6)]
        third = asked(await go(runtime, "c", "one"))
        assert [(doubt.agent_id, doubt.status) for doubt in third.doubts] == [
            ("a", "done"),
            ("b", "done"),
        ]


async def test_calls_of_two_runs_of_an_agent_are_equal(place: Place, till: Till) -> None:
    agent = desk(till, refund(5), "first", refund(6))
    async with opened(place.store(), agent) as runtime:
        completed(await go(runtime, "a"))
        request = asked(await go(runtime, "a"))
        assert (beside(request), request.doubts[0].agent_id) == ([(5, "done")], "")


@pytest.mark.parametrize(("on_repeat", "paid"), [("refuse", 1), ("allow", 2)])
async def test_a_repetition_in_another_agent_is_refused_or_runs(
    place: Place, till: Till, on_repeat: str, paid: int
) -> None:
    async with opened(place.store(), desk(till, refund(5), on_repeat=on_repeat)) as runtime:
        for id in ("a", "b"):
            completed(await go(runtime, id))
    assert till.paid == [("17", 5)] * paid


async def test_a_call_that_is_under_way_holds_up_one_of_another_agent(
    place: Place, till: Till
) -> None:
    till.held = {5: Held()}
    first, second = desk(till, refund(5), name="one"), desk(till, refund(6), name="two")
    async with opened(place.store(), first, second) as runtime:
        running = runtime.spawn("one", "a").run("go")
        await soon(till.held[5].entered.wait())
        request = asked(await go(runtime, "b", "two"))
        assert (beside(request), request.doubts[0].agent_id) == ([(5, "open")], "a")
        till.held[5].release.set()
        completed(await soon(running))
        completed(await soon(runtime.get("b").resume({request.id: approve()})))
    assert till.paid == [("17", 5), ("17", 6)]


@pytest.mark.quick
async def test_equal_calls_of_many_agents_at_once_run_once(place: Place, till: Till) -> None:
    """T14."""
    async with opened(place.store(), desk(till, refund(5))) as runtime:
        futures = [runtime.spawn("desk", f"a{n}").run("go") for n in range(10)]
        outcomes = [await soon(future) for future in futures]
        assert len(till.paid) == 1
        assert sum(type(outcome).__name__ == "Completed" for outcome in outcomes) == 1
        for outcome in outcomes:
            if type(outcome).__name__ != "Completed":
                assert len(asked(outcome).doubts) == 1


async def test_a_call_that_failed_gives_its_key_back_to_other_agents(
    place: Place, till: Till
) -> None:
    till.raises = {5: ToolFailed("no money")}
    first, second = desk(till, refund(5), name="one"), desk(till, refund(6), name="two")
    async with opened(place.store(), first, second) as runtime:
        completed(await go(runtime, "a", "one"))
        completed(await go(runtime, "b", "two"))
    assert till.paid == [("17", 5), ("17", 6)]


async def in_doubt(runtime: Runtime, till: Till, on_unknown: str = "tell") -> None:
    """Agent `a` has a call in doubt."""
    till.raises[5] = TimeoutError()
    outcome = await go(runtime, "a", "one")
    if on_unknown == "tell":
        completed(outcome)
    else:
        assert asked(outcome).kind == "doubt"


def two(till: Till, **options: Any) -> tuple[Agent, Agent]:
    """Two agents with a refund of one order."""
    return (
        desk(till, refund(5), name="one", **options),
        desk(till, refund(6), name="two", **options),
    )


async def test_a_doubt_holds_up_other_agents_until_it_is_settled(place: Place, till: Till) -> None:
    async with opened(place.store(), *two(till, on_repeat="allow")) as runtime:
        await in_doubt(runtime, till)
        request = asked(await go(runtime, "b", "two"))
        assert (beside(request), request.doubts[0].agent_id) == ([(5, "in_doubt")], "a")
        (doubt,) = request.doubts
        await soon(runtime.get("a").settle(doubt.call_key, how="it is paid"))
        completed(await go(runtime, "c", "two"))
    assert till.paid == [("17", 5), ("17", 6)]


@pytest.mark.parametrize(
    ("answer", "others"),
    [
        (respond("paid, says the bank"), [[(5, "done")]]),
        (reject("not paid"), []),
        (approve(), [[(5, "in_doubt")]]),
    ],
)
async def test_a_persons_word_about_a_doubt_is_what_becomes_of_its_key(
    place: Place, till: Till, answer: Any, others: list[Any]
) -> None:
    """T14: it happened; it did not; or it is to run again, which leaves it in doubt once more."""
    async with opened(place.store(), *two(till, on_unknown="ask")) as runtime:
        await in_doubt(runtime, till, "ask")
        (request,) = (await soon(runtime.get("a").state())).requests
        await soon(runtime.get("a").resume({request.id: answer}))
        outcome = await go(runtime, "b", "two")
        assert [beside(request) for request in outcome.state.requests] == others


async def test_a_call_that_was_cut_off_holds_up_other_agents(place: Place, till: Till) -> None:
    """T14, J4: the process has ended in the middle of it."""
    till.held = {5: Held()}
    async with opened(place.store(), *two(till)) as runtime:
        runtime.spawn("one", "a").run("go")
        await soon(till.held[5].entered.wait())
        left = place.after_crash()
        async with opened(left, *two(till)) as after:
            request = asked(await go(after, "b", "two"))
            assert (beside(request), request.doubts[0].agent_id) == ([(5, "open")], "a")
            await soon(after.recover())
            await soon(after.get("a").outcome())
            assert beside(asked(await go(after, "c", "two"))) == [(5, "in_doubt")]
        till.held[5].release.set()
    assert till.paid == [("17", 5)]


class GoneBehindKey(FaultyBackend):
    """The process goes away right behind the commit of a key: nothing of the start is kept."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self.keys = 1
        """So many keys are taken so."""

    def take_key(self, *args: Any) -> Any:
        found = self._backend.take_key(*args)
        if self.keys and not found:
            self.keys -= 1
            self.fail("append_all")
        return found


def gone_behind_key(sqlite: SqlitePlace) -> DatabaseStore:
    return DatabaseStore(GoneBehindKey(sqlite.backend()), patience=0.0)


async def test_a_call_finds_its_key_again_after_a_crash_right_behind_it(
    sqlite: SqlitePlace, till: Till
) -> None:
    """T14, J85: nobody is asked, for it was never started."""
    async with opened(gone_behind_key(sqlite), *two(till)) as runtime:
        ref = runtime.spawn("one", "a")
        with pytest.raises(StoreUnavailable):
            await soon(ref.run("go"))
        assert till.paid == []
        request = asked(await go(runtime, "b", "two"))
        assert (beside(request), request.doubts[0].agent_id) == ([(5, "open")], "a")
        outcome = await soon(ref.outcome())
        assert outcome is not None
        completed(outcome)
        assert till.paid == [("17", 5)]


async def test_a_key_of_a_call_that_was_never_started_is_given_back(
    sqlite: SqlitePlace, till: Till
) -> None:
    """J85: by the process that finds the call over."""
    store = gone_behind_key(sqlite)
    async with opened(store, *two(till)) as runtime:
        ref = runtime.spawn("one", "a")
        with pytest.raises(StoreUnavailable):
            await soon(ref.run("go"))
        await soon(ref.cancel())
        await soon(ref.outcome())
        completed(await go(runtime, "b", "two"))
        assert till.paid == [("17", 6)]
        assert beside(asked(await go(runtime, "c", "one"))) == [(6, "done")]


async def test_a_store_that_cannot_be_asked_for_a_key_lets_nothing_run(
    sqlite: SqlitePlace, till: Till
) -> None:
    """T14: and the run continues when it is there again."""
    for method in ("key_secret", "key_uses", "take_key"):
        backend = FaultyBackend(sqlite.backend())
        async with opened(DatabaseStore(backend, patience=0.0), desk(till, refund(5))) as runtime:
            backend.fail(method)
            ref = runtime.spawn("desk", method)
            with pytest.raises(StoreUnavailable):
                await soon(ref.run("go", message_id="only"))
            assert till.paid == []
            completed(await soon(ref.run("go", message_id="only")))
        assert till.paid == [("17", 5)]
        till.paid.clear()
        sqlite.path.unlink()


class Waits:
    """A tool that posts a refund, and waits for the word of the bank."""

    def __init__(self, till: Till) -> None:
        @tool(name="refund", key=order_of)
        async def waiting(ctx: ToolContext, order_id: str, amount: int) -> str:
            """Pay money back."""
            await ctx.token("word")
            till.paid.append((order_id, amount))
            return str(await ctx.wait_for("word"))

        self.tool = waiting


async def test_a_call_that_waits_has_its_key_and_is_done_though_its_run_is_stopped(
    place: Place, till: Till
) -> None:
    """T14: what it had done before it waited stands."""
    waiting = Agent("one", by_turn(refund(5)), tools=[Waits(till).tool])
    async with opened(place.store(), waiting, two(till)[1]) as runtime:
        ref = runtime.spawn("one", "a")
        ref.run("go")
        await until_status(ref, Status.WAITING)
        assert beside(asked(await go(runtime, "b", "two"))) == [(5, "open")]
        await soon(ref.cancel())
        assert beside(asked(await go(runtime, "c", "two"))) == [(5, "done")]


async def test_a_run_that_is_cancelled_in_a_call_leaves_a_doubt(place: Place, till: Till) -> None:
    till.held = {5: Held()}
    async with opened(place.store(), *two(till)) as runtime:
        ref = runtime.spawn("one", "a")
        running = ref.run("go")
        await soon(till.held[5].entered.wait())
        await soon(ref.cancel())
        await soon(running)
        assert beside(asked(await go(runtime, "b", "two"))) == [(5, "in_doubt")]


async def test_a_new_message_instead_of_an_answer_gives_the_key_back(
    place: Place, till: Till
) -> None:
    """T14: the tool had asked before it did anything."""
    agent = Agent("one", by_turn(refund(5), "never mind"), tools=[Asks(till).tool])
    async with opened(place.store(), agent, two(till)[1]) as runtime:
        interrupted(await go(runtime, "a", "one"))
        completed(await go(runtime, "a", "one"))
        completed(await go(runtime, "b", "two"))
    assert till.paid == [("17", 6)]


@pytest.mark.parametrize(("raised", "status"), [(None, "done"), (TimeoutError(), "in_doubt")])
async def test_a_deleted_agent_that_has_paid_has_paid_and_one_that_may_have_paid_may_have(
    place: Place, till: Till, raised: BaseException | None, status: str
) -> None:
    if raised is not None:
        till.raises = {5: raised}
    async with opened(place.store(), *two(till)) as runtime:
        completed(await go(runtime, "a", "one"))
        await soon(runtime.delete("a"))
        request = asked(await go(runtime, "b", "two"))
        assert beside(request) == [(None, status)], "its arguments are deleted, too"
        assert (request.doubts[0].agent_id, request.doubts[0].tool_name) == ("a", "refund")
        completed(await soon(runtime.get("b").resume({request.id: approve()})))
    assert till.paid == [("17", 5), ("17", 6)]


async def test_a_compaction_keeps_keys(place: Place, till: Till) -> None:
    till.raises = {5: TimeoutError()}
    agent = desk(till, refund(5), refund(1, "18"), name="one")
    other = desk(till, [refund(6), refund(7, "18")], name="two")
    async with opened(place.store(), agent, other) as runtime:
        completed(await go(runtime, "a", "one"))
        await soon(runtime.compact("a"))
        first, second = interrupted(await go(runtime, "b", "two")).requests
        assert (beside(first), beside(second)) == ([(5, "in_doubt")], [(1, "done")])


@pytest.mark.parametrize("same_store", [True, False])
async def test_an_import_brings_no_keys(
    place: Place, sqlite: SqlitePlace, till: Till, same_store: bool
) -> None:
    """T14: a copied call is in doubt in the copy, and is the original's in its store."""
    till.held = {5: Held()}
    async with opened(place.store(), *two(till)) as runtime:
        runtime.spawn("one", "a").run("go")
        await soon(till.held[5].entered.wait())
        exported = json.loads(json.dumps(await soon(runtime.export("a"))))
        if same_store:
            await soon(runtime.import_(exported, id="copy"))
            await soon(runtime.get("copy").outcome())
            (doubt,) = (await soon(runtime.get("copy").state())).doubts.values()
            assert doubt.arguments["amount"] == 5
            assert [each.agent_id for each in asked(await go(runtime, "b", "two")).doubts] == ["a"]
        else:
            folder = sqlite.path.parent / "there"
            folder.mkdir()
            async with opened(SqlitePlace(folder).store(), *two(till)) as there:
                await soon(there.import_(exported))
                await soon(there.recover())
                completed(await go(there, "b", "two"))
        till.held[5].release.set()


async def test_an_imported_call_in_doubt_holds_up_equal_ones_of_its_agent(
    place: Place, till: Till
) -> None:
    """T14: by what its tool says of its arguments, for the store knows nothing of it."""
    till.held = {5: Held()}
    async with opened(place.store(), *two(till)) as runtime:
        runtime.spawn("one", "a").run("go")
        await soon(till.held[5].entered.wait())
        exported = await soon(runtime.export("a"))
        till.held[5].release.set()
    async with opened("memory:", desk(till, refund(5), refund(6), name="one")) as there:
        await soon(there.import_(exported))
        await soon(there.recover())
        outcome = await soon(there.get("a").outcome())
        assert outcome is not None
        assert beside(asked(outcome)) == [(5, "in_doubt")]


async def test_an_imported_call_that_runs_again_takes_its_key_anew(
    place: Place, till: Till
) -> None:
    till.held = {5: Held()}
    agents = two(till, on_unknown="ask")
    async with opened(place.store(), *agents) as runtime:
        runtime.spawn("one", "a").run("go")
        await soon(till.held[5].entered.wait())
        exported = await soon(runtime.export("a"))
        till.held.pop(5).release.set()
    async with opened("memory:", *agents) as there:
        await soon(there.import_(exported))
        await soon(there.recover())
        outcome = await soon(there.get("a").outcome())
        assert outcome is not None
        request = asked(outcome)
        completed(await soon(there.get("a").resume({request.id: approve()})))
        assert beside(asked(await go(there, "b", "two"))) == [(5, "done")]


async def test_what_was_done_long_ago_counts_no_longer(place: Place, till: Till) -> None:
    clock = SimulatedClock()
    agents = two(till, key_kept=timedelta(hours=5))
    async with opened(place.store(), *agents, clock=clock) as runtime:
        completed(await go(runtime, "a", "one"))
        await soon(clock.advance(4 * HOUR))
        assert beside(asked(await go(runtime, "b", "two"))) == [(5, "done")]
        await soon(clock.advance(2 * HOUR))
        completed(await go(runtime, "c", "two"))


def rows(sqlite: SqlitePlace) -> int:
    with closing(sqlite3.connect(sqlite.path)) as other:
        ((count,),) = other.execute("SELECT count(*) FROM call_keys").fetchall()
        return int(count)


async def test_a_sweep_deletes_old_keys(sqlite: SqlitePlace, till: Till) -> None:
    clock = SimulatedClock()
    agents = two(till, key_kept=1)
    async with Runtime(agents, store=sqlite.store(), sweep=0.01, clock=clock) as runtime:
        completed(await go(runtime, "a", "one"))
        assert rows(sqlite) == 1
        await soon(clock.advance(48 * HOUR))
        await until(lambda: rows(sqlite) == 0)


async def test_without_a_key_a_store_is_asked_for_none(sqlite: SqlitePlace, till: Till) -> None:
    """T14: nothing is read, and nothing written."""
    backend = FaultyBackend(sqlite.backend())
    store = DatabaseStore(backend, patience=0.0)
    agent = Agent("desk", by_turn(refund(5), refund(6)), tools=[till.refund(key=None)])
    async with opened(store, agent) as runtime:
        for method in ("key_secret", "key_uses", "take_key"):
            backend.fail(method, times=100)
            completed(await go(runtime, method))
    assert rows(sqlite) == 0


async def test_the_key_itself_is_not_stored(sqlite: SqlitePlace, till: Till) -> None:
    """J85: nor is the secret shown."""
    tool = till.refund(key=lambda _: "a key that is nobody's business")
    async with opened(sqlite.store(), Agent("desk", by_turn(refund(5)), tools=[tool])) as runtime:
        completed(await go(runtime, "a"))
        with closing(sqlite.backend()) as reader:
            secret = reader.key_secret()
        exported = json.dumps(await soon(runtime.export("a")))
        assert secret.hex() not in exported
    files = b"".join(file.read_bytes() for file in sqlite.path.parent.iterdir())
    assert b"nobody's business" not in files

"""After a deploy, the gates of today are asked about calls that are open (I4) (I7)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Annotated, Any

import pytest
from pydantic import Field

from tests.support.agents import by_turn, completed, contents, interrupted, reloaded, until_status
from tests.support.cut_off import Crash, CutBefore
from tests.support.loops import soon
from tests.support.places import Place
from understudy import (
    Agent,
    AgentState,
    DecisionError,
    Interrupt,
    Outcome,
    Request,
    Runtime,
    ScriptedModel,
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
from understudy.journal import MemoryStore
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent, TodoList
from understudy.models import ScriptedRequest
from understudy.modes import Loop, Parallel, Sequential
from understudy.run.run import Run

NOW = "No gate asked about this call when it was made. One does now."
CHANGED = "The call, or its tool, is not what was decided about."
OFF = {"when": lambda arguments, ctx: False}
"""A gate that asks about no call."""
DELEGATE = call("task", {"task_name": "clerk", "instructions": "Pay."})
PAY = call("pay", {"amount": 1}, id="p1")
LET_PASS = [call("look", {}, id="l1"), PAY]
"""A reply of whose calls the gates of then have been asked when the first one starts."""


@tool(sequential=True, read_only=True)
async def look() -> str:
    """Look first."""
    return "looked"


class Bank:
    """A tool that pays, under any name, and what it really paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def tool(self, name: str = "pay", **options: Any) -> Tool:
        @tool(name=name, **options)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        return pay

    def agent(
        self, *turns: Any, name: str = "desk", tools: Any = (), gate: Any = None, **options: Any
    ) -> Agent:
        if gate is not None:
            options["interrupt_on"] = {"pay": gate}
        given = [*(tools or [self.tool()]), look]
        return Agent(name, by_turn(*turns or (PAY,)), tools=given, **options)


@pytest.fixture
def bank() -> Bank:
    return Bank()


def cut_before(
    kind: str, agent: Agent, *resumed: Any, inside: bool = False, tool: str | None = None
) -> AgentState:
    """What is left of a run, or of one that is resumed, that goes away before such a record."""
    disk = CutBefore(kind, inside=inside, tool=tool)
    run, given = (agent.resume_sync, resumed) if resumed else (agent.execute_sync, ("Go.",))
    with pytest.raises(Crash):
        run(*given, journal=disk)
    return disk.load()


def deployed(agent: Agent, before: Outcome | AgentState, *answers: Any) -> Outcome:
    """The same run, gone on with by the agent of today."""
    if isinstance(before, AgentState):
        return agent.resume_sync(reloaded(before))
    decisions = interrupted(before).decide(*answers) if answers else None
    return agent.resume_sync(reloaded(before.state), decisions)


def asked(outcome: Outcome) -> list[tuple[str, str]]:
    """Which tools a person is asked about, and why once more."""
    return [(request.tool_name, request.asked_again) for request in interrupted(outcome).requests]


# ------------------------------------------------------ a gate that a deploy switches on


@pytest.mark.parametrize("before", [None, OFF], ids=["no gate", "a gate that did not ask"])
@pytest.mark.parametrize("reply", [PAY, LET_PASS], ids=["the first to start", "the second"])
def test_a_gate_of_today_is_asked_about_a_call_that_a_crash_kept_from_starting(
    bank: Bank, before: Any, reply: Any
) -> None:
    state = cut_before("started", bank.agent(reply, gate=before), tool="pay")
    outcome = deployed(bank.agent(reply, gate=True), state)
    assert [request.arguments for request in interrupted(outcome).requests] == [{"amount": 1}]
    assert bank.paid == []
    end = completed(deployed(bank.agent(reply, gate=True), outcome, approve()))
    assert bank.paid == [1]
    assert contents(end.state)[-1] == ("success", "paid 1")


def test_a_gate_of_today_is_asked_about_a_call_behind_a_pause(bank: Bank) -> None:
    paused = bank.agent(pause_when=lambda: True).execute_sync("Go.")
    assert asked(deployed(bank.agent(gate=True), paused)) == [("pay", "")]
    assert bank.paid == []


@pytest.mark.parametrize("gate", ["of the agent", "of the tool", "of a middleware"])
def test_each_kind_of_gate_is_asked_again_and_says_why(bank: Bank, gate: str) -> None:
    class Careful(Middleware):
        async def check_tool_calls(self, run: Run, calls: Any) -> list[Request]:
            return [each.request() for each in calls]

    state = cut_before("started", bank.agent(LET_PASS, gate=OFF), tool="pay")
    kinds: dict[str, dict[str, Any]] = {
        "of the agent": {"gate": True},
        "of the tool": {"tools": [bank.tool(ask=True)]},
        "of a middleware": {"middleware": [Careful()]},
    }
    options = kinds[gate]
    outcome = deployed(bank.agent(LET_PASS, **options), state)
    assert asked(outcome) == [("pay", NOW)]
    completed(deployed(bank.agent(LET_PASS, **options), outcome, approve()))
    assert bank.paid == [1]


def test_a_when_of_today_is_asked_with_the_arguments_of_the_call(bank: Bank) -> None:
    seen: list[Any] = []

    def is_large(arguments: Mapping[str, Any], ctx: ToolContext) -> bool:
        seen.append(arguments)
        return bool(arguments["amount"] > 1)

    turn = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    state = cut_before("started", bank.agent(turn, gate=OFF))
    outcome = deployed(bank.agent(turn, gate={"when": is_large}), state)
    assert seen == [{"amount": 1}, {"amount": 2}]
    assert [request.arguments for request in interrupted(outcome).requests] == [{"amount": 2}]
    assert bank.paid == [], "nothing of the reply starts before the answer"


def test_a_gate_of_today_is_asked_about_a_call_beside_an_open_request(bank: Bank) -> None:
    turn = [call("pay", {"amount": 1}), call("other", {"amount": 2})]
    tools = [bank.tool(), bank.tool("other")]
    before = bank.agent(turn, tools=tools, gate=True).execute_sync("Go.")
    assert asked(before) == [("pay", "")]

    def today() -> Agent:
        return bank.agent(turn, tools=tools, interrupt_on={"pay": True, "other": True})

    outcome = deployed(today(), before, approve())
    assert asked(outcome) == [("other", NOW)]
    assert bank.paid == []
    completed(deployed(today(), outcome, reject()))
    assert bank.paid == [1]


def test_a_gate_of_today_is_asked_about_an_idempotent_call_before_it_is_repeated(
    bank: Bank,
) -> None:
    tools = [bank.tool(idempotent=True)]
    state = cut_before("result", bank.agent(tools=tools))
    assert bank.paid == [1]
    outcome = deployed(bank.agent(tools=tools, gate=True), state)
    assert asked(outcome) == [("pay", NOW)]
    end = completed(deployed(bank.agent(tools=tools, gate=True), outcome, reject()))
    assert bank.paid == [1]
    ((how, told),) = contents(end.state)
    assert how == "denied"
    assert "may have taken effect" in told
    completed(deployed(bank.agent(tools=tools, gate=True), outcome, approve()))
    assert bank.paid == [1, 1]


def test_a_call_that_is_in_doubt_is_not_put_to_a_gate_of_today(bank: Bank) -> None:
    state = cut_before("result", bank.agent(gate=OFF))
    end = completed(deployed(bank.agent(gate=True), state))
    assert bank.paid == [1]
    assert [how for how, _ in contents(end.state)] == ["interrupted"]


def test_a_call_with_arguments_that_fit_no_more_is_an_error_and_nobody_is_asked(
    bank: Bank,
) -> None:
    state = cut_before("started", bank.agent(gate=OFF))

    @tool(ask=True)
    async def pay(amount: int, to: str) -> str:
        raise AssertionError

    end = completed(deployed(bank.agent(tools=[pay]), state))
    ((how, told),) = contents(end.state)
    assert how == "failed"
    assert "to" in told


# ------------------------------------------------------------- where, and in what places


def sleeper(bank: Bank, name: str = "pay", **options: Any) -> Agent:
    """An agent whose tool sleeps before it pays."""

    @tool(name=name, **options)
    async def pay(ctx: ToolContext, amount: int) -> str:
        """Pay in a minute."""
        await ctx.sleep("a minute", 60)
        bank.paid.append(amount)
        return "paid"

    return bank.agent(tools=[pay])


async def test_a_runtime_asks_the_gates_of_today_about_a_call_that_sleeps(
    bank: Bank, place: Place
) -> None:
    clock = SimulatedClock()
    async with Runtime([sleeper(bank, ask=OFF)], store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Go."))
        await until_status(ref, Status.WAITING)
    async with Runtime([sleeper(bank, ask=True)], store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(clock.advance(60))
        await until_status(ref, Status.INTERRUPTED)
        (request,) = (await soon(ref.state())).requests
        assert request.asked_again == NOW
        assert bank.paid == []
        await soon(ref.resume({request.id: approve()}))
    assert bank.paid == [1]


async def test_a_runtime_asks_the_gates_of_today_about_what_an_older_definition_has_begun(
    bank: Bank, place: Place
) -> None:
    turn = [call("pay", {"amount": 1}), call("other", {"amount": 2})]
    tools = [bank.tool(), bank.tool("other")]

    def desk(**gates: Any) -> Agent:
        return bank.agent(turn, tools=tools, interrupt_on=gates)

    async with Runtime([desk(pay=True)], store=place.store()) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Go."))
        await until_status(ref, Status.INTERRUPTED)
    async with Runtime([desk(pay=True, other=True)], store=place.store()) as runtime:
        ref = runtime.spawn("desk", id="a")
        (first,) = (await soon(ref.state())).requests
        outcome = interrupted(await soon(ref.resume({first.id: approve()})))
        assert asked(outcome) == [("other", NOW)]
        completed(await soon(ref.resume({outcome.requests[0].id: approve()})))
    assert sorted(bank.paid) == [1, 2]


WORKFLOWS: dict[str, Callable[[Agent], Any]] = {
    "sequential": lambda agent: Sequential([agent]),
    "parallel": lambda agent: Parallel([agent, Agent("beside", by_turn("done"))]),
    "loop": lambda agent: Loop([agent], max_iterations=1),
}


def around(kind: str, clerk: Agent, **options: Any) -> Agent:
    """An agent that runs the clerk, as its child or in a workflow."""
    if kind == "task":
        middleware = [SubAgent([clerk], general_purpose=False), *options.pop("middleware", ())]
        return Agent("boss", by_turn(DELEGATE), middleware=middleware, **options)
    return Agent("boss", None, mode=WORKFLOWS[kind](clerk), **options)


@pytest.mark.parametrize("kind", ["task", *WORKFLOWS])
@pytest.mark.parametrize("whose", ["its own", "of the agent above"])
def test_gates_of_today_are_asked_about_calls_of_agents_inside(
    bank: Bank, kind: str, whose: str
) -> None:
    def boss(gate: Any) -> Agent:
        if whose == "its own":
            return around(kind, bank.agent(LET_PASS, name="clerk", gate=gate))
        clerk = bank.agent(LET_PASS, name="clerk")
        return around(kind, clerk, middleware=[HumanInTheLoop({"pay": gate})])

    state = cut_before("started", boss(OFF), inside=True, tool="pay")
    assert bank.paid == []
    outcome = deployed(boss(True), state)
    assert asked(outcome) == [("pay", NOW)]
    completed(deployed(boss(True), outcome, approve()))
    assert bank.paid == [1]


@pytest.mark.parametrize("kind", ["task", *WORKFLOWS])
def test_a_gate_of_today_of_an_agent_above_counts_where_the_agent_inside_is_the_same_object(
    bank: Bank, kind: str
) -> None:
    clerk = bank.agent(LET_PASS, name="clerk")

    def boss(gate: Any) -> Agent:
        return around(kind, clerk, middleware=[HumanInTheLoop({"pay": gate})])

    state = cut_before("started", boss(OFF), inside=True, tool="pay")
    assert asked(deployed(boss(True), state)) == [("pay", NOW)]
    assert bank.paid == []


def test_a_gate_of_today_is_asked_about_an_agent_that_a_tool_runs(bank: Bank) -> None:
    clerk = bank.agent(LET_PASS, name="clerk", tools=[bank.tool(ask=OFF)])

    def boss(clerk: Agent) -> Agent:
        @tool(read_only=True)
        async def delegate(ctx: ToolContext) -> str:
            """Delegate."""
            return (await ctx.run_agent(clerk, "Pay.")).explain()

        return Agent("boss", by_turn(call("delegate", {})), tools=[delegate])

    state = cut_before("started", boss(clerk), inside=True, tool="pay")
    gated = bank.agent(LET_PASS, name="clerk", tools=[bank.tool(ask=True)])
    assert asked(deployed(boss(gated), state)) == [("pay", NOW)]


# ------------------------------------------------------ nothing where the verdict is the same


@pytest.mark.parametrize("gate", [None, OFF], ids=["no gate", "a gate that asks nobody"])
def test_gates_that_say_the_same_as_before_leave_no_record(bank: Bank, gate: Any) -> None:
    state = cut_before("started", bank.agent(gate=gate))
    disk = CutBefore("never")
    completed(bank.agent(gate=gate).resume_sync(reloaded(state), journal=disk))
    kinds = [json.loads(line)["kind"] for line in disk.lines]
    assert kinds[:3] == ["snapshot", "attempt", "started"]
    assert bank.paid == [1]


def test_the_same_definition_does_not_ask_its_gates_twice(bank: Bank) -> None:
    looked: list[int] = []

    def when(arguments: Mapping[str, Any], ctx: ToolContext) -> bool:
        looked.append(arguments["amount"])
        return False

    turn = [call("pay", {"amount": 1}), call("other", {"amount": 2})]
    tools = [bank.tool(), bank.tool("other")]
    agent = bank.agent(turn, tools=tools, interrupt_on={"pay": {"when": when}, "other": True})
    before = interrupted(agent.execute_sync("Go."))
    completed(deployed(agent, before, approve()))
    assert looked == [1]


def test_a_request_of_today_that_is_open_is_not_made_once_more(bank: Bank) -> None:
    state = cut_before("started", bank.agent(gate=OFF))
    first = interrupted(deployed(bank.agent(gate=True), state))
    again = interrupted(deployed(bank.agent(gate=True), first))
    assert again.requests == first.requests


def test_a_call_runs_with_the_new_default_that_a_gate_of_today_has_seen() -> None:
    numbers, seen, paid = count(1), list[Any](), list[int]()

    @tool(name="pay")
    async def before(amount: int) -> str:
        raise AssertionError

    def is_large(arguments: Mapping[str, Any], ctx: ToolContext) -> bool:
        seen.append(arguments["number"])
        return False

    @tool(name="pay", ask={"when": is_large})
    async def today(
        amount: int, number: Annotated[int, Field(default_factory=lambda: next(numbers))]
    ) -> str:
        paid.append(number)
        return "paid"

    old = Agent("desk", by_turn(PAY), tools=[before], interrupt_on={"pay": OFF})
    state = cut_before("started", old)
    completed(deployed(Agent("desk", by_turn(PAY), tools=[today]), state))
    assert seen == paid


async def test_an_agent_that_a_tool_makes_anew_is_asked_by_its_gates_of_today_each_time() -> None:
    """Though the agent that runs it has not changed, and has not left memory."""
    paid: list[int] = []
    gates: list[Any] = [OFF]

    @tool
    async def pay(ctx: ToolContext, amount: int) -> str:
        """Pay."""
        await ctx.sleep("a minute", 60)
        paid.append(amount)
        return "paid"

    @tool(read_only=True)
    async def delegate(ctx: ToolContext) -> str:
        """Delegate."""
        clerk = Agent("clerk", by_turn(PAY), tools=[pay], interrupt_on={"pay": gates[-1]})
        return (await ctx.run_agent(clerk, "Pay.")).explain()

    clock = SimulatedClock()
    boss = Agent("boss", by_turn(call("delegate", {})), tools=[delegate])
    async with Runtime([boss], clock=clock) as runtime:
        ref = runtime.spawn("boss", id="a")
        await soon(ref.send("Go."))
        await until_status(ref, Status.WAITING)
        gates.append(True)
        await soon(clock.advance(60))
        await until_status(ref, Status.INTERRUPTED)
        (request,) = (await soon(ref.state())).requests
        assert request.asked_again == NOW
        assert paid == []


# ------------------------------------------------------------- the stricter of then and now


def test_a_yes_for_exactly_these_arguments_stays(bank: Bank) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    state = cut_before(
        "started", bank.agent(gate=True), reloaded(before.state), before.decide(approve())
    )
    end = completed(deployed(bank.agent(tools=[bank.tool(ask=True)]), state))
    assert bank.paid == [1]
    assert len(end.state.decisions) == 1


def test_a_yes_for_an_edited_call_stays(bank: Bank) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    answers = before.decide(edit({"amount": 5}))
    state = cut_before("started", bank.agent(gate=True), reloaded(before.state), answers)
    completed(deployed(bank.agent(gate=True), state))
    assert bank.paid == [5]


def test_a_yes_does_not_hold_for_a_tool_that_has_changed_and_the_request_says_why(
    bank: Bank,
) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    today = [bank.tool(version="2")]
    outcome = deployed(bank.agent(tools=today, gate=True), before, approve())
    assert asked(outcome) == [("pay", CHANGED)]
    assert bank.paid == []
    completed(deployed(bank.agent(tools=today, gate=True), outcome, approve()))
    assert bank.paid == [1]


@pytest.mark.parametrize("today", [None, OFF, False], ids=["no gate", "asks nobody", "False"])
def test_a_request_that_is_open_stays_where_no_gate_of_today_asks(bank: Bank, today: Any) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    still = interrupted(deployed(bank.agent(gate=today), before))
    assert still.requests == before.requests
    assert bank.paid == []
    completed(deployed(bank.agent(gate=today), still, approve()))
    assert bank.paid == [1]


@pytest.mark.parametrize("today", [None, OFF, False], ids=["no gate", "asks nobody", "False"])
def test_a_rejection_stays_where_no_gate_of_today_asks(bank: Bank, today: Any) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    answers = before.decide(reject("too much"))
    state = cut_before("result", bank.agent(gate=True), reloaded(before.state), answers)
    end = completed(deployed(bank.agent(gate=today), state))
    assert bank.paid == []
    ((how, told),) = contents(end.state)
    assert (how, "too much" in told) == ("denied", True)


@pytest.mark.parametrize("decision", [approve(always=True), reject(always=True)])
def test_an_earlier_answer_for_always_answers_a_gate_of_today(bank: Bank, decision: Any) -> None:
    turns = (PAY, "over", call("pay", {"amount": 2}))
    before = interrupted(bank.agent(*turns, gate=True).execute_sync("Go."))
    end = completed(deployed(bank.agent(*turns, gate=True), before, decision))
    disk = CutBefore("started")
    with pytest.raises(Crash):
        bank.agent(*turns, gate=OFF).execute_sync("Go.", state=reloaded(end.state), journal=disk)
    completed(deployed(bank.agent(*turns, gate=True), disk.load()))
    assert bank.paid == ([1, 2] if decision.type == "approve" else [])


def questioner(bank: Bank, **options: Any) -> Tool:
    """A tool that asks before it pays."""

    @tool(**options)
    async def pay(ctx: ToolContext, amount: int) -> str:
        """Pay."""
        if ctx.resume_value is None:
            raise Interrupt("From which account?")
        bank.paid.append(amount)
        return f"paid from {ctx.resume_value}"

    return pay


@pytest.mark.parametrize("then", [None, OFF], ids=["no gate", "a gate that did not ask"])
def test_a_question_of_a_tool_is_no_yes_to_a_gate_of_today(bank: Bank, then: Any) -> None:
    tools = [questioner(bank)]
    before = bank.agent(tools=tools, gate=then).execute_sync("Go.")
    outcome = deployed(bank.agent(tools=tools, gate=True), before, respond("mine"))
    assert asked(outcome) == [("pay", NOW)]
    assert bank.paid == []
    end = completed(deployed(bank.agent(tools=tools, gate=True), outcome, approve()))
    assert contents(end.state) == [("success", "paid from mine")]


async def test_a_runtime_asks_the_gates_of_today_about_each_of_two_calls_that_ask(
    bank: Bank, place: Place
) -> None:
    """Also if it continued the run before the second question was answered."""

    def desk(**options: Any) -> Agent:
        turn = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
        return bank.agent(turn, tools=[questioner(bank, ask=OFF)], **options)

    async with Runtime([desk()], store=place.store()) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Go."))
        await until_status(ref, Status.INTERRUPTED)
    async with Runtime([desk(interrupt_on={"pay": True})], store=place.store()) as runtime:
        ref = runtime.spawn("desk", id="a")
        first, second = (await soon(ref.state())).requests
        await soon(ref.resume({first.id: respond("mine")}))
        outcome = interrupted(await soon(ref.resume({second.id: respond("yours")})))
        gates = [request for request in outcome.requests if request.kind == "approval"]
        assert [request.arguments["amount"] for request in gates] == [1, 2]
        assert bank.paid == []
        await soon(ref.resume({request.id: approve() for request in gates}))
    assert sorted(bank.paid) == [1, 2]


def test_who_lets_a_call_in_doubt_run_has_said_yes_to_a_gate_of_today(bank: Bank) -> None:
    tools = [bank.tool(on_unknown="ask")]
    state = cut_before("result", bank.agent(tools=tools))
    doubt = interrupted(deployed(bank.agent(tools=tools), state))
    assert [request.kind for request in doubt.requests] == ["doubt"]
    completed(deployed(bank.agent(tools=tools, gate=True), doubt, approve()))
    assert bank.paid == [1, 1]


# ------------------------------------------------------------------- a tool with a new name


def test_an_open_approval_of_a_renamed_tool_continues_by_its_alias(bank: Bank) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))

    def today() -> Agent:
        return bank.agent(tools=[bank.tool("charge", aliases=["pay"], ask=True)])

    still = interrupted(deployed(today(), before))
    assert still.requests == before.requests
    end = completed(deployed(today(), still, approve()))
    assert bank.paid == [1]
    assert contents(end.state) == [("success", "paid 1")]


def test_an_approval_that_was_given_continues_by_the_alias(bank: Bank) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    state = cut_before(
        "started", bank.agent(gate=True), reloaded(before.state), before.decide(approve())
    )
    today = bank.agent(tools=[bank.tool("charge", aliases=["pay"], ask=True)])
    completed(deployed(today, state))
    assert bank.paid == [1]


async def test_a_call_of_a_renamed_tool_that_sleeps_continues_by_its_alias(bank: Bank) -> None:
    store, clock = MemoryStore(), SimulatedClock()
    async with Runtime([sleeper(bank, "pay")], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(ref.send("Go."))
        await until_status(ref, Status.WAITING)
    today = sleeper(bank, "charge", aliases=["pay"])
    async with Runtime([today], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        await soon(clock.advance(60))
        await until_status(ref, Status.IDLE)
        assert contents(await soon(ref.state())) == [("success", "paid")]
    assert bank.paid == [1]


@pytest.mark.parametrize("decision", [approve(always=True), reject(always=True)])
def test_an_answer_for_always_holds_for_the_new_name_of_a_tool(bank: Bank, decision: Any) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    charge = call("charge", {"amount": 2})
    today = [bank.tool("charge", aliases=["pay"], ask=True)]
    end = completed(deployed(bank.agent(PAY, "over", charge, tools=today), before, decision))
    later = bank.agent(PAY, "over", charge, tools=today)
    completed(later.execute_sync("Again.", state=reloaded(end.state)))
    assert bank.paid == ([1, 2] if decision.type == "approve" else [])


def test_an_answer_for_always_under_the_new_name_holds_for_a_call_by_the_old_one(
    bank: Bank,
) -> None:
    charge = call("charge", {"amount": 2})
    today = [bank.tool("charge", aliases=["pay"], ask=True)]
    before = interrupted(bank.agent(charge, "over", PAY, tools=today).execute_sync("Go."))
    end = completed(
        deployed(bank.agent(charge, "over", PAY, tools=today), before, approve(always=True))
    )
    later = bank.agent(charge, "over", PAY, tools=today)
    completed(later.execute_sync("Again.", state=reloaded(end.state)))
    assert bank.paid == [2, 1]


def test_an_answer_for_always_does_not_hold_for_a_renamed_tool_that_has_changed(
    bank: Bank,
) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    turns = (PAY, "over", call("charge", {"amount": 2}))
    end = completed(deployed(bank.agent(*turns, gate=True), before, approve(always=True)))
    today = [bank.tool("charge", aliases=["pay"], ask=True, version="2")]
    later = bank.agent(*turns, tools=today).execute_sync("Again.", state=reloaded(end.state))
    assert asked(later) == [("charge", "")]


@pytest.mark.parametrize("kind", ["started", "reply"])
def test_a_run_until_a_tool_ends_by_the_new_name_of_the_tool(bank: Bank, kind: str) -> None:
    """Else the model, which knows the new name alone, would pay again and again."""
    disk = CutBefore(kind)
    with pytest.raises(Crash):
        bank.agent().execute_sync("Go.", until_tool="pay", force=True, journal=disk)
    charge = call("charge", {"amount": 2})
    turns = (PAY if kind == "started" else charge, charge, charge)
    today = bank.agent(*turns, tools=[bank.tool("charge", aliases=["pay"])])
    end = completed(deployed(today, disk.load()))
    assert bank.paid == ([1] if kind == "started" else [2])
    assert end.tool_result is not None
    assert end.tool_result.content == f"paid {bank.paid[0]}"


@pytest.mark.parametrize("named", ["pay", "charge"])
@pytest.mark.parametrize("called", ["pay", "charge"])
@pytest.mark.parametrize("where", ["its own", "of the agent above"])
def test_a_gate_holds_by_either_name_of_a_renamed_tool(
    bank: Bank, named: str, called: str, where: str
) -> None:
    charge = [bank.tool("charge", aliases=["pay"])]
    turn = call(called, {"amount": 1})
    gate = HumanInTheLoop({named: True})
    if where == "its own":
        agent = bank.agent(turn, tools=charge, middleware=[gate])
    else:
        agent = around("task", bank.agent(turn, tools=charge, name="clerk"), middleware=[gate])
    assert asked(agent.execute_sync("Go.")) == [(called, "")]
    assert bank.paid == []


def test_without_an_alias_an_open_approval_is_impossible_and_the_remedy_is_named(
    bank: Bank,
) -> None:
    before = interrupted(bank.agent(gate=True).execute_sync("Go."))
    today = bank.agent(tools=[bank.tool("charge", ask=True)])
    still = interrupted(deployed(today, before))
    assert still.requests == before.requests
    for decision in (approve(), edit({"amount": 2})):
        with pytest.raises(DecisionError, match=r"no tool 'pay' any more.*aliases=\['pay'\]"):
            deployed(today, still, decision)
    end = completed(deployed(today, still, reject()))
    assert bank.paid == []
    assert [how for how, _ in contents(end.state)] == ["denied"]
    end = completed(deployed(today, still, respond("paid by hand")))
    assert contents(end.state) == [("success", "paid by hand")]


def test_without_an_alias_an_open_approval_of_an_agent_inside_is_impossible(bank: Bank) -> None:
    before = around("task", bank.agent(name="clerk", gate=True)).execute_sync("Go.")
    today = around("task", bank.agent(name="clerk", tools=[bank.tool("charge", ask=True)]))
    with pytest.raises(DecisionError, match=r"agent 'clerk' has no tool 'pay' any more"):
        deployed(today, before, approve())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"name": "pay", "aliases": ["charge"]}, {"name": "charge", "aliases": ["pay"]}),
        ({"name": "pay", "aliases": ["charge"]}, {"name": "charge"}),
        ({"name": "charge"}, {"name": "pay", "aliases": ["charge"]}),
        ({"name": "pay", "aliases": ["buy"]}, {"name": "charge", "aliases": ["buy"]}),
    ],
    ids=["in a circle", "of a tool", "of a tool before", "of both"],
)
def test_a_name_that_two_tools_have_is_refused_naming_both(
    bank: Bank, one: Any, other: Any
) -> None:
    with pytest.raises(UsageError, match=r"'pay'.*'charge'|'charge'.*'pay'"):
        bank.agent(tools=[bank.tool(**one), bank.tool(**other)])


def test_a_name_that_a_tool_of_a_middleware_has_is_no_alias(bank: Bank) -> None:
    renamed = bank.tool("charge", aliases=["write_todos"])
    with pytest.raises(UsageError, match=r"'charge'.*'write_todos'"):
        bank.agent(tools=[renamed], middleware=[TodoList()])


@pytest.mark.parametrize("aliases", ["pay", ["pay"], ["a", "a"], [""], [1], 7])
def test_aliases_that_are_none_are_refused_naming_the_tool(bank: Bank, aliases: Any) -> None:
    with pytest.raises(UsageError, match=r"aliases|`name`"):
        bank.tool("pay", aliases=aliases)


def test_a_model_does_not_see_an_alias(bank: Bank) -> None:
    seen: list[ScriptedRequest] = []

    def reply(request: ScriptedRequest) -> str:
        seen.append(request)
        return "done"

    today = [bank.tool("charge", aliases=["pay"])]
    completed(Agent("desk", ScriptedModel(reply), tools=today).execute_sync("Go."))
    assert list(seen[0].tools) == ["charge"]

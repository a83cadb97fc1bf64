"""Calls that equal a call in doubt are held, and calls that equal a finished one show it (J4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from tenacity import AsyncRetrying, wait_fixed

from tests.support.agents import by_turn, completed, contents, interrupted, reloaded
from tests.support.cut_off import Crash, CutBefore, Disk
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentState,
    Failed,
    Outcome,
    Request,
    ScriptedModel,
    Tool,
    approve,
    call,
    edit,
    reject,
    tool,
)
from understudy.interrupts import EarlierCall
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Parallel, Sequential

PAY = call("pay", {"amount": 1})
OTHER = call("pay", {"amount": 2})


class Bank:
    """A tool that pays; the answers to its first payments may be lost."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.loses = 1
        """The answers to so many payments are lost."""

    def tool(self, name: str = "pay", **options: Any) -> Tool:
        @tool(name=name, **options)
        async def pay(amount: int, currency: str = "EUR") -> str:
            """Pay."""
            self.paid.append(amount)
            if len(self.paid) <= self.loses:
                raise TimeoutError
            return f"paid {amount}"

        return pay

    def agent(self, *turns: Any, name: str = "desk", tools: Any = (), **options: Any) -> Agent:
        return Agent(name, by_turn(*turns), tools=tools or [self.tool()], **options)


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def sound() -> Bank:
    """A bank that loses nothing."""
    bank = Bank()
    bank.loses = 0
    return bank


def task(name: str = "clerk") -> Any:
    return call("task", {"task_name": name, "instructions": "Pay."})


def held(outcome: Outcome) -> Request:
    """The one request, which shows the one call in doubt that it may repeat."""
    (request,) = [each for each in interrupted(outcome).requests if each.kind == "approval"]
    assert len(request.doubts) == 1
    assert request.doubts[0].arguments["amount"] == request.arguments["amount"]
    return request


def seen(outcome: Outcome) -> list[tuple[str, str]]:
    """What the one request shows of equal calls before: how each ended, and whose it was."""
    (request,) = interrupted(outcome).requests
    return [(each.outcome, each.agent) for each in request.earlier]


# ----------------------------------------------------------------- what is held, and where


def test_a_call_that_leaves_out_a_default_equals_one_that_gives_it(bank: Bank) -> None:
    again = call("pay", {"amount": 1, "currency": "EUR"})
    request = held(bank.agent(PAY, again).execute_sync("Go."))
    assert request.arguments == request.doubts[0].arguments | {"currency": "EUR"}
    assert bank.paid == [1]


def test_a_child_is_held_by_a_doubt_of_its_parent(bank: Bank) -> None:
    clerk = bank.agent(PAY, name="clerk")
    boss = bank.agent(PAY, task(), middleware=[SubAgent([clerk], general_purpose=False)])
    request = held(boss.execute_sync("Go."))
    assert (request.agent_path, request.doubts[0].agent) == (("desk", "clerk"), "desk")
    assert bank.paid == [1]


def test_a_parent_is_held_by_a_doubt_of_a_child_that_is_over(bank: Bank) -> None:
    clerk = bank.agent(PAY, name="clerk")
    boss = bank.agent(task(), PAY, middleware=[SubAgent([clerk], general_purpose=False)])
    request = held(boss.execute_sync("Go."))
    assert (request.agent_path, request.doubts[0].agent) == (("desk",), "clerk")
    assert bank.paid == [1]


def test_a_child_is_held_by_a_doubt_of_another_child(bank: Bank) -> None:
    clerks = [bank.agent(PAY, name="clerk"), bank.agent(PAY, name="other")]
    middleware = [SubAgent(clerks, general_purpose=False)]
    boss = Agent("desk", by_turn(task(), task("other")), middleware=middleware)
    request = held(boss.execute_sync("Go."))
    assert (request.agent_path, request.doubts[0].agent) == (("desk", "other"), "clerk")
    assert bank.paid == [1]


def test_a_child_of_a_later_run_is_held_by_a_doubt_of_a_child_of_an_earlier_run(
    bank: Bank,
) -> None:
    def boss() -> Agent:
        clerk = Agent("clerk", pays_once(), tools=[bank.tool()])
        inside = [SubAgent([clerk], general_purpose=False)]
        middle = Agent("middle", by_turn(task()), middleware=inside)
        turns = (task("middle"), "over", task("middle"))
        return Agent(
            "desk", by_turn(*turns), middleware=[SubAgent([middle], general_purpose=False)]
        )

    before = completed(boss().execute_sync("Go."))
    request = held(boss().execute_sync("Again.", state=reloaded(before.state)))
    assert request.agent_path == ("desk", "middle", "clerk")
    assert request.doubts[0].agent == "clerk"
    assert bank.paid == [1]


def test_an_agent_of_a_workflow_is_held_by_a_doubt_of_the_one_before(bank: Bank) -> None:
    def steps() -> list[Agent]:
        return [bank.agent(PAY, name="first"), Agent("second", pays_once(), tools=[bank.tool()])]

    request = held(Agent("flow", None, mode=Sequential(steps())).execute_sync("Go."))
    assert (request.agent_path, request.doubts[0].agent) == (("flow", "second"), "first")
    assert bank.paid == [1]


def pays_once(until: asyncio.Event | None = None) -> ScriptedModel:
    """A model that pays in its first reply, whatever the agents before it have said."""
    asked: list[ScriptedRequest] = []

    async def reply(request: ScriptedRequest) -> Any:
        asked.append(request)
        if len(asked) > 1:
            return "done"
        if until is not None:
            await until.wait()
        return PAY

    return ScriptedModel(reply)


@pytest.mark.parametrize("who", ["ask", "tell"])
async def test_a_branch_is_held_by_a_doubt_of_another_branch_whoever_is_asked_about_it(
    bank: Bank, who: Any
) -> None:
    in_doubt = asyncio.Event()

    @tool(on_unknown=who)
    async def pay(amount: int) -> str:
        """Pay."""
        bank.paid.append(amount)
        in_doubt.set()
        raise TimeoutError

    branches = [
        Agent("first", by_turn(PAY), tools=[pay]),
        Agent("second", pays_once(in_doubt), tools=[pay]),
    ]
    outcome = await soon(Agent("flow", None, mode=Parallel(branches)).execute("Go."))
    request = held(outcome)
    assert (request.agent_path, request.doubts[0].agent) == (("flow", "second"), "first")
    assert bank.paid == [1]


async def test_a_branch_is_held_while_an_equal_call_of_another_branch_waits_to_be_tried_again(
    bank: Bank,
) -> None:
    """An attempt at it left open what it did, and the call of this branch has another key."""
    is_unknown = asyncio.Event()

    @tool(idempotent=True, retry=AsyncRetrying(wait=wait_fixed(3600)))
    async def pay(amount: int) -> str:
        """Pay."""
        bank.paid.append(amount)
        is_unknown.set()
        raise TimeoutError

    branches = [
        Agent("first", by_turn(PAY), tools=[pay]),
        Agent("second", pays_once(is_unknown), tools=[pay]),
    ]
    outcome = await soon(Agent("flow", None, mode=Parallel(branches)).execute("Go."))
    request = held(outcome)
    assert (request.agent_path, request.doubts[0].agent) == (("flow", "second"), "first")
    assert bank.paid == [1]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("crashes_in", ["the first branch", "the last branch"])
async def test_a_call_that_was_cut_off_deep_in_a_workflow_holds_an_equal_one_from_the_beginning(
    bank: Bank, depth: int, crashes_in: str
) -> None:
    """After a crash both branches continue at once; one has to say first that it is in doubt."""
    entered = asyncio.Event()

    @tool
    async def pay(amount: int) -> str:
        """Pay, and never hear of it."""
        bank.paid.append(amount)
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    def flow(first: ScriptedModel) -> Agent:
        deep = Agent("deep", by_turn(PAY), tools=[pay])
        for level in range(depth):
            deep = Agent(f"level{level}", None, mode=Sequential([deep]))
        branches = [Agent("flat", first, tools=[pay]), deep]
        if crashes_in == "the first branch":
            branches.reverse()
        return Agent("flow", None, mode=Parallel(branches))

    class SecondStart(Disk):
        """Keeps all records until a second call starts."""

        def append(self, records: Any) -> None:
            for record in records:
                super().append([record])
                started = sum('"kind": "started"' in line for line in self.lines)
                if started == 2:
                    self.lines.pop()
                    self.limit = len(self.lines)
                    raise Crash

    disk = SecondStart()
    with pytest.raises(Crash):
        await soon(flow(pays_once(entered)).execute("Go.", journal=disk))
    assert bank.paid == [1]
    request = held(await soon(flow(by_turn()).resume(disk.load())))
    assert (request.agent_path, request.doubts[0].agent) == (("flow", "flat"), "deep")
    assert bank.paid == [1]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("place", ["first", "last"])
async def test_a_call_that_the_failure_of_a_branch_cut_off_holds_an_equal_one_after_a_retry(
    bank: Bank, depth: int, place: str
) -> None:
    """What the failed run knew of the doubt is void: the branch has to find it out anew."""
    entered, is_down = asyncio.Event(), True

    @tool
    async def pay(amount: int) -> str:
        """Pay, and never hear of it."""
        bank.paid.append(amount)
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def fails(request: ScriptedRequest) -> Any:
        await entered.wait()
        if is_down:
            raise ConnectionError("down")
        return "done" if paid_already(request) else PAY

    def paid_already(request: ScriptedRequest) -> bool:
        return any(isinstance(message, ModelResponse) for message in request.messages)

    cut_off = Agent("cut_off", by_turn(PAY), tools=[pay])
    for level in range(depth):
        cut_off = Agent(f"level{level}", None, mode=Sequential([cut_off]))
    branches = [cut_off, Agent("fails", ScriptedModel(fails), tools=[pay])]
    flow = Agent("flow", None, mode=Parallel(branches if place == "first" else branches[::-1]))
    failed = await soon(flow.execute("Go."))
    assert isinstance(failed, Failed)
    assert bank.paid == [1]
    is_down = False
    request = held(await soon(flow.retry(reloaded(failed.state))))
    assert request.agent_path == ("flow", "fails")
    assert request.doubts[0].agent == "cut_off"
    assert bank.paid == [1]


def test_a_renamed_tool_is_held_by_a_doubt_of_its_old_name(bank: Bank) -> None:
    before = completed(bank.agent(PAY).execute_sync("Go."))
    charge = [bank.tool("charge", aliases=["pay"])]
    turns = (PAY, "over", call("charge", {"amount": 1}))
    later = bank.agent(*turns, tools=charge)
    request = held(later.execute_sync("Again.", state=reloaded(before.state)))
    assert (request.tool_name, request.doubts[0].tool_name) == ("charge", "pay")
    assert bank.paid == [1]


def test_a_renamed_tool_that_ran_and_whose_result_is_lost_does_not_run_again(
    sound: Bank,
) -> None:
    @tool(name="pay")
    async def lost(amount: int, currency: str = "EUR") -> Any:
        """Pay, and return what is no JSON."""
        sound.paid.append(amount)
        return object()

    turns = (PAY, call("charge", {"amount": 1}))
    disk = CutBefore("turn_closed")
    with pytest.raises(Crash):
        sound.agent(*turns, tools=[lost]).execute_sync("Go.", journal=disk)
    today = sound.agent(*turns, tools=[sound.tool("charge", aliases=["pay"])])
    end = completed(today.resume_sync(disk.load()))
    assert sound.paid == [1]
    assert [how for how, _ in contents(end.state)] == ["failed", "failed"]


def test_calls_that_are_not_equal_are_held_only_where_a_gate_names_their_tool(bank: Bank) -> None:
    completed(bank.agent(PAY, OTHER).execute_sync("Go."))
    assert bank.paid == [1, 2]


def test_calls_that_are_not_equal_are_held_where_a_gate_above_names_their_tool(
    bank: Bank,
) -> None:
    clerk = bank.agent(PAY, OTHER, name="clerk")
    middleware = [
        SubAgent([clerk], general_purpose=False),
        HumanInTheLoop({"pay": {"when": lambda arguments, ctx: False}}),
    ]
    outcome = Agent("desk", by_turn(task()), middleware=middleware).execute_sync("Go.")
    (request,) = interrupted(outcome).requests
    assert request.arguments["amount"] == 2
    assert [doubt.arguments["amount"] for doubt in request.doubts] == [1]
    assert bank.paid == [1]


# ---------------------------------------------------------------- what a person has answered


def test_an_answer_about_a_pair_holds_for_the_pair(bank: Bank) -> None:
    """Where the run is cut off between the answer and the start, nobody is asked again."""
    outcome = interrupted(bank.agent(PAY, PAY).execute_sync("Go."))
    disk = CutBefore("started")
    answers = outcome.decide(approve())
    with pytest.raises(Crash):
        bank.agent(PAY, PAY).resume_sync(reloaded(outcome.state), answers, journal=disk)
    assert bank.paid == [1]
    end = completed(bank.agent(PAY, PAY).resume_sync(disk.load()))
    assert bank.paid == [1, 1]
    assert len(end.state.decisions) == 1


@pytest.mark.parametrize("always", [False, True])
def test_an_answer_about_a_pair_is_none_about_the_next_equal_call(bank: Bank, always: bool) -> None:
    outcome = interrupted(bank.agent(PAY, PAY, PAY).execute_sync("Go."))
    answers = outcome.decide(approve(always=always))
    again = bank.agent(PAY, PAY, PAY).resume_sync(reloaded(outcome.state), answers)
    held(again)
    assert bank.paid == [1, 1]


def test_two_equal_calls_of_one_reply_are_both_held(bank: Bank) -> None:
    outcome = interrupted(bank.agent(PAY, [PAY, PAY]).execute_sync("Go."))
    assert [len(request.doubts) for request in outcome.requests] == [1, 1]
    answers = outcome.decide(approve(), reject())
    completed(bank.agent(PAY, [PAY, PAY]).resume_sync(reloaded(outcome.state), answers))
    assert bank.paid == [1, 1]


def test_an_edit_of_a_call_that_is_held_runs_as_edited(bank: Bank) -> None:
    outcome = interrupted(bank.agent(PAY, PAY).execute_sync("Go."))
    answers = outcome.decide(edit({"amount": 3}))
    completed(bank.agent(PAY, PAY).resume_sync(reloaded(outcome.state), answers))
    assert bank.paid == [1, 3]


# ------------------------------------------------------- finished ones: shown, and not held


def test_finished_equal_calls_hold_nothing(sound: Bank) -> None:
    completed(sound.agent([PAY, PAY], PAY).execute_sync("Go."))
    assert sound.paid == [1, 1, 1]


def test_a_request_shows_an_equal_call_that_was_paid_before(sound: Bank) -> None:
    turns = (PAY, "over", [PAY, OTHER])
    end = completed(sound.agent(*turns).execute_sync("Go."))
    later = sound.agent(*turns, interrupt_on={"pay": True})
    outcome = interrupted(later.execute_sync("Again.", state=reloaded(end.state)))
    first, second = outcome.requests
    (earlier,) = first.earlier
    assert isinstance(earlier, EarlierCall)
    assert (earlier.outcome, earlier.content) == ("success", "paid 1")
    assert earlier.at is not None
    assert earlier.at <= first.created_at
    assert second.earlier == ()


def test_a_request_shows_an_equal_call_that_was_rejected_and_why(sound: Bank) -> None:
    gate = {"pay": True}
    outcome = interrupted(sound.agent(PAY, PAY, interrupt_on=gate).execute_sync("Go."))
    answers = outcome.decide(reject("too much"))
    again = sound.agent(PAY, PAY, interrupt_on=gate).resume_sync(reloaded(outcome.state), answers)
    (request,) = interrupted(again).requests
    assert [each.outcome for each in request.earlier] == ["denied"]
    assert "too much" in request.earlier[0].content


def test_a_request_shows_an_equal_call_of_the_same_reply(sound: Bank) -> None:
    agent = sound.agent([PAY, PAY], interrupt_on={"pay": True})
    outcome = interrupted(agent.execute_sync("Go."))
    for request in outcome.requests:
        assert [each.outcome for each in request.earlier] == ["open"]
        assert request.earlier[0].tool_call_id != request.tool_call_id


def test_a_request_of_a_child_shows_an_equal_call_of_its_parent(sound: Bank) -> None:
    clerk = sound.agent(PAY, name="clerk", interrupt_on={"pay": True})
    boss = sound.agent(PAY, task(), middleware=[SubAgent([clerk], general_purpose=False)])
    assert seen(boss.execute_sync("Go.")) == [("success", "desk")]


def test_a_request_of_a_parent_shows_an_equal_call_of_a_child_that_is_over(sound: Bank) -> None:
    clerk = sound.agent(PAY, OTHER, name="clerk")
    middleware = [SubAgent([clerk], general_purpose=False)]
    tools = [sound.tool(), sound.tool("charge", ask=True)]
    boss = sound.agent(task(), call("charge", {"amount": 1}), tools=tools, middleware=middleware)
    assert seen(boss.execute_sync("Go.")) == [], "it is a call of another tool"
    tools = [sound.tool(ask=True)]
    middleware = [SubAgent([clerk], general_purpose=False)]
    boss = sound.agent(task(), PAY, tools=tools, middleware=middleware)
    assert seen(boss.execute_sync("Go.")) == [("success", "clerk")]


def test_a_request_in_a_workflow_shows_an_equal_call_of_an_agent_before_once(
    sound: Bank,
) -> None:
    steps = [
        sound.agent(PAY, name="first"),
        Agent("second", pays_once(), tools=[sound.tool(ask=True)]),
    ]
    assert seen(Agent("flow", None, mode=Sequential(steps)).execute_sync("Go.")) == [
        ("success", "first")
    ]


async def test_a_request_in_a_branch_shows_an_equal_call_that_is_open_in_another(
    sound: Bank,
) -> None:
    branches = [
        Agent(name, pays_once(), tools=[sound.tool(ask=True)]) for name in ("first", "second")
    ]
    outcome = interrupted(await soon(Agent("flow", None, mode=Parallel(branches)).execute("Go.")))
    shown = [[(each.outcome, each.agent) for each in r.earlier] for r in outcome.requests]
    assert [("open", "first")] in shown


def test_of_an_edited_call_it_counts_what_ran(sound: Bank) -> None:
    """The conversation has it as the model wrote it."""
    turns = (PAY, [OTHER, PAY])
    gate = {"pay": True}
    outcome = interrupted(sound.agent(*turns, interrupt_on=gate).execute_sync("Go."))
    answers = outcome.decide(edit({"amount": 2}))
    again = sound.agent(*turns, interrupt_on=gate).resume_sync(reloaded(outcome.state), answers)
    equals_the_edit, equals_the_model = interrupted(again).requests
    assert sound.paid == [2]
    assert [each.outcome for each in equals_the_edit.earlier] == ["success"]
    assert equals_the_model.earlier == ()


def test_a_request_shows_an_equal_call_of_an_earlier_name(sound: Bank) -> None:
    end = completed(sound.agent(PAY).execute_sync("Go."))
    turns = (PAY, "over", call("charge", {"amount": 1}))
    later = sound.agent(*turns, tools=[sound.tool("charge", aliases=["pay"], ask=True)])
    assert seen(later.execute_sync("Again.", state=reloaded(end.state))) == [("success", "")]


def test_a_request_that_takes_the_place_of_another_shows_earlier_calls_too(sound: Bank) -> None:
    turns = (PAY, "over", PAY)
    end = completed(sound.agent(*turns).execute_sync("Go."))
    gate = {"pay": True}
    agent = sound.agent(*turns, interrupt_on=gate)
    outcome = interrupted(agent.execute_sync("Again.", state=reloaded(end.state)))
    today = sound.agent(*turns, tools=[sound.tool(version="2")], interrupt_on=gate)
    changed = today.resume_sync(reloaded(outcome.state), outcome.decide(approve()))
    assert interrupted(changed).requests[0].asked_again
    assert seen(changed) == [("success", "")]


def test_a_request_that_shows_a_doubt_that_came_after_an_approval_shows_earlier_calls_too(
    bank: Bank,
) -> None:
    turn = [call("pay", {"amount": 1}), call("pay", {"amount": 2}), call("pay", {"amount": 2})]
    tools = [bank.tool(sequential=True, on_unknown="tell", ask=True)]
    outcome = interrupted(bank.agent(turn, tools=tools).execute_sync("Go."))
    answers = outcome.decide(approve(), approve(), reject())
    again = bank.agent(turn, tools=tools).resume_sync(reloaded(outcome.state), answers)
    (request,) = interrupted(again).requests
    assert [doubt.arguments["amount"] for doubt in request.doubts] == [1]
    assert [each.outcome for each in request.earlier] == ["denied"]
    assert bank.paid == [1]


def test_at_most_five_equal_calls_are_shown_newest_first(sound: Bank) -> None:
    turns = (*[PAY] * 6, "over", PAY)
    end = completed(sound.agent(*turns).execute_sync("Go."))
    later = sound.agent(*turns, interrupt_on={"pay": True})
    outcome = interrupted(later.execute_sync("Again.", state=reloaded(end.state)))
    times = [each.at for each in outcome.requests[0].earlier]
    assert len(times) == 5
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]  # each has a time


@pytest.mark.parametrize(("between", "shown"), [(998, 1), (999, 0)])
def test_a_thousand_calls_back_are_looked_at(sound: Bank, between: int, shown: int) -> None:
    """With the call itself."""

    def made(name: str, id: str) -> list[ModelMessage]:
        part = ToolCallPart(name, {"amount": 1}, tool_call_id=id)
        result = ToolReturnPart(tool_name=name, content="done", tool_call_id=id)
        return [ModelResponse(parts=[part]), ModelRequest(parts=[result])]

    history = [*made("pay", "first")]
    for number in range(between):
        history += made("look", f"c{number}")
    agent = sound.agent(*["over"] * (between + 1), PAY, tools=[sound.tool(ask=True)])
    outcome = interrupted(agent.execute_sync("Go.", state=AgentState(messages=history)))
    assert len(outcome.requests[0].earlier) == shown


def test_an_outcome_says_that_it_waits_because_of_a_doubt(bank: Bank) -> None:
    outcome = interrupted(bank.agent(PAY, PAY, "done").execute_sync("go"))
    assert "approval of 'pay' (an equal call, or one of the tool, is in doubt)" in outcome.explain()


def test_the_secrets_of_a_call_in_doubt_are_not_shown_either(bank: Bank) -> None:
    @tool
    def log_in(user: str, password: SecretStr) -> str:
        """Log in."""
        raise TimeoutError

    attempt = call("log_in", {"user": "ann", "password": "hunter2"})
    outcome = interrupted(bank.agent(attempt, attempt, tools=[log_in]).execute_sync("go"))
    (request,) = outcome.requests
    assert request.doubts[0].arguments == request.arguments
    assert "hunter2" not in str(request)


def test_a_sequential_call_is_held_while_an_equal_one_of_its_reply_waits_to_be_tried_again(
    bank: Bank,
) -> None:
    hour = AsyncRetrying(wait=wait_fixed(3600))
    pay = bank.tool(idempotent=True, sequential=True, retry=hour)
    outcome = bank.agent([PAY, PAY], "done", tools=[pay]).execute_sync("go")
    request = held(outcome)
    assert "left open" in request.doubts[0].reason
    assert bank.paid == [1]


def test_a_call_whose_later_attempt_brought_a_result_holds_no_equal_one(bank: Bank) -> None:
    soon_again = AsyncRetrying(wait=wait_fixed(0.001))
    pay = bank.tool(idempotent=True, sequential=True, retry=soon_again)
    outcome = completed(bank.agent([PAY, PAY], "done", tools=[pay]).execute_sync("go"))
    assert [text for _, text in contents(outcome.state)] == ["paid 1", "paid 1"]
    assert bank.paid == [1, 1, 1]

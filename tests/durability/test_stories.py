"""K1: the features of the library, each in a story whose host is killed at every point.

The stories of users are played by the same means (`understudy.testing`). Power cuts, points inside
of a commit and broken builds are played by `tests.support.durability`.
"""

from __future__ import annotations

from typing import Any

import pytest

from understudy import (
    Agent,
    Completed,
    Interrupted,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.middleware import AskUser, SubAgent
from understudy.modes import Loop, Parallel, Sequential
from understudy.testing import FakeRemote, Story, crash_points
from understudy.tools import exit_loop
from understudy.trust import Budget, Rules, allow, ask, day, sum_of

pytestmark = pytest.mark.slow


def paying(bank: FakeRemote, **options: Any) -> Any:
    @tool(**{"idempotent": True, **options})
    async def pay(ctx: ToolContext, order: str, amount: int = 1) -> str:
        return bank.send(f"{order}: {amount}", key=ctx.call_key)

    return pay


def orders(*numbers: str) -> list[Any]:
    return [call("pay", {"order": each}) for each in numbers]


@crash_points(store="memory")
def test_calls_side_by_side_are_each_made_once(story: Story) -> None:
    bank = story.remote(dedupe=True)
    script = ScriptedModel([orders("1", "2", "3"), orders("4"), "done"])
    story.spawn(Agent("clerk", script, tools=[paying(bank)]))
    story.say("pay")
    story.finish()
    story.effects.once("1: 1", "2: 1", "3: 1", "4: 1")
    story.same_outcome()


@crash_points(store="memory")
def test_an_edited_call_is_made_as_the_person_wrote_it(story: Story) -> None:
    bank = story.remote(dedupe=True)
    script = ScriptedModel([orders("1"), "done"])
    story.spawn(Agent("clerk", script, tools=[paying(bank)], interrupt_on={"pay": True}))
    story.say("pay")
    story.answer(edit({"order": "2", "amount": 7}))
    story.finish()
    story.effects.once("2: 7")
    assert not story.effects.of("1: 1")
    story.same_outcome()


@crash_points(store="memory", control=False)
def test_a_call_that_a_person_rejects_is_never_made(story: Story) -> None:
    bank = story.remote(dedupe=True)
    script = ScriptedModel([orders("1"), orders("2"), "done"])
    story.spawn(Agent("clerk", script, tools=[paying(bank)], interrupt_on={"pay": True}))
    story.say("pay")
    story.answer(reject("no"))
    story.answer(approve())
    story.finish()
    assert [each.what for each in story.effects] == ["2: 1"]
    story.same_outcome()


@crash_points(store="memory")
def test_an_agent_three_levels_below_asks_and_pays_once(story: Story) -> None:
    bank = story.remote(dedupe=True)

    def above(name: str, inner: Agent) -> Agent:
        task = call("task", {"task_name": inner.name, "instructions": "pay"})
        team = SubAgent([inner], general_purpose=False)
        return Agent(name, ScriptedModel([task, "done"]), middleware=[team])

    script = ScriptedModel([orders("1", "2"), "paid"])
    clerk = Agent("clerk", script, tools=[paying(bank)], interrupt_on={"pay": True})
    story.spawn(above("boss", above("office", clerk)))
    story.say("see that it is paid")
    story.answer(approve())
    story.finish()
    story.effects.once("1: 1", "2: 1")
    story.same_outcome()


@crash_points(store="memory")
def test_a_workflow_continues_in_the_round_that_was_cut_off(story: Story) -> None:
    bank = story.remote(dedupe=True)
    writer = Agent("writer", ScriptedModel([orders("1"), "written"]), tools=[paying(bank)])
    critic = Agent("critic", ScriptedModel(["not yet", "good"]))
    turns = [orders("2"), "better", [call("exit_loop")]]
    refiner = Agent("refiner", ScriptedModel(turns), tools=[paying(bank), exit_loop])
    improve = Agent("improve", mode=Loop([critic, refiner], max_iterations=3))
    story.spawn(Agent("document", mode=Sequential([writer, improve])))
    story.say("go")
    story.finish()
    story.effects.once("1: 1", "2: 1")
    story.same_outcome()


@crash_points(store="memory")
def test_branches_side_by_side_each_pay_once(story: Story) -> None:
    bank = story.remote(dedupe=True)
    branches = [
        Agent(f"branch{n}", ScriptedModel([orders(str(n)), "done"]), tools=[paying(bank)])
        for n in range(3)
    ]
    story.spawn(Agent("all", mode=Parallel(branches)))
    story.say("go")
    story.finish()
    story.effects.once("0: 1", "1: 1", "2: 1")
    story.same_outcome()


@crash_points(store="memory")
def test_a_question_is_asked_until_it_is_answered_and_the_answer_counts_once(story: Story) -> None:
    bank = story.remote(dedupe=True)
    asks = call("ask_user", {"questions": [{"question": "Which order?"}]})
    script = ScriptedModel([asks, orders("9"), "done"])
    story.spawn(Agent("clerk", script, tools=[paying(bank)], middleware=[AskUser()]))
    asked = story.say("pay")
    assert isinstance(asked, Interrupted)
    story.answer(respond({"Which order?": "9"}))
    story.finish()
    story.effects.once("9: 1")
    story.same_outcome()


@crash_points(store="memory")
def test_what_is_done_once_in_a_tool_is_not_done_again_when_the_tool_begins_anew(
    story: Story,
) -> None:
    bank = story.remote(dedupe=True)

    @tool(idempotent=True)
    async def order(ctx: ToolContext) -> str:
        first = await ctx.once("first", lambda: bank.send("first", key=f"{ctx.call_key}/1"))
        await ctx.sleep("a day", 86_400)
        second = await ctx.once("second", lambda: bank.send("second", key=f"{ctx.call_key}/2"))
        return f"{first}, {second}"

    story.spawn(Agent("shop", ScriptedModel([call("order"), "done"]), tools=[order]))
    story.say("order")
    story.wait("2 days")
    story.finish()
    story.effects.once("first", "second")
    story.same_outcome()


PURSE = Budget("purse", sum_of("pay", "amount", 10), window=day(), at_limit="ask")


@crash_points(store=["memory", "sqlite"], budgets=[PURSE])
def test_a_budget_asks_for_the_call_that_passes_it_and_no_other(story: Story) -> None:
    bank = story.remote(dedupe=True)
    script = [call("pay", {"order": str(n), "amount": 4}) for n in range(3)]
    story.spawn(Agent("clerk", ScriptedModel([*script, "done"]), tools=[paying(bank)]))
    asked = story.say("pay")
    assert isinstance(asked, Interrupted), "4 and 4 of 10: the third has no room"
    assert len(story.effects) == 2
    story.answer(approve())
    story.finish()
    story.effects.once("0: 4", "1: 4", "2: 4")
    story.same_outcome()


RULES = Rules(
    allow("pay", when=lambda arguments, view: arguments["amount"] <= 5, name="small"),
    ask("pay", name="large"),
    default="deny",
    version=1,
)


@crash_points(store="memory", rules=RULES)
def test_rules_let_small_calls_run_and_ask_for_large_ones(story: Story) -> None:
    bank = story.remote(dedupe=True)
    script = [call("pay", {"order": str(n), "amount": n}) for n in (5, 6)]
    story.spawn(Agent("clerk", ScriptedModel([script, "done"]), tools=[paying(bank)]))
    story.say("pay")
    assert not story.effects.of("6: 6")
    story.answer(approve())
    story.finish()
    story.effects.once("5: 5", "6: 6")
    story.same_outcome()


@crash_points(store=["memory", "sqlite"])
def test_calls_with_an_equal_key_are_made_once_over_all_agents(story: Story) -> None:
    bank = story.remote()
    options = {"idempotent": False, "key": lambda a: a["order"], "on_repeat": "refuse"}

    def clerk(name: str) -> Agent:
        return Agent(name, ScriptedModel([orders("1"), "done"]), tools=[paying(bank, **options)])

    story.spawn(clerk("first"))
    story.spawn(clerk("second"))
    story.say("pay", to="first")
    story.say("pay", to="second")
    story.finish()
    story.effects.once("1: 1")


@crash_points(store="memory", control=False)
def test_a_run_that_is_cancelled_makes_no_call_afterwards(story: Story) -> None:
    bank = story.remote(dedupe=True)
    script = ScriptedModel([orders("1"), orders("2"), "done", "done"])
    story.spawn(Agent("clerk", script, tools=[paying(bank)], interrupt_on={"pay": True}))
    story.say("pay")
    story.answer(approve())
    story.cancel()
    assert isinstance(story.say("and now?"), Completed)
    story.finish()
    assert [each.what for each in story.effects] == ["1: 1"]


@crash_points(store="sqlite", twice=True, control=False)
def test_two_crashes_in_a_row_lose_no_answer_and_repeat_no_call(story: Story) -> None:
    bank = story.remote(dedupe=True)
    script = ScriptedModel([orders("1"), "done"])
    story.spawn(Agent("clerk", script, tools=[paying(bank)], interrupt_on={"pay": True}))
    story.say("pay")
    story.answer(approve())
    story.finish()
    story.effects.once("1: 1")
    story.same_outcome()

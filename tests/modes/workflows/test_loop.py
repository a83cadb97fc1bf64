"""W1, W2, W3: rounds of agents, and what ends them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import Held, authors, by_turn, completed, interrupted, reloaded, results
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentState,
    Failed,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    ToolResult,
    UsageError,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.errors import AgentFailed, EffectUnknown
from understudy.events import AgentEnded
from understudy.middleware import Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Loop, Mode, Parallel, Sequential
from understudy.tools import exit_loop


def talker(name: str, *replies: Any, **options: Any) -> Agent:
    """Says the replies in its rounds, then only its name."""
    said = list(replies)
    return Agent(name, ScriptedModel(lambda _: said.pop(0) if said else name), **options)


def leaver(name: str, *before: Any, **options: Any) -> Agent:
    return Agent(name, ScriptedModel([*before, [call("exit_loop")]]), tools=[exit_loop], **options)


def loop(*agents: Agent, name: str = "rounds", max_iterations: int | None = None) -> Agent:
    return Agent(name, mode=Loop(agents, max_iterations=max_iterations))


def test_agents_take_turns_until_the_rounds_are_done() -> None:
    """W1: the end by the number of rounds is Completed."""
    outcome = completed(loop(talker("a"), talker("b"), max_iterations=3).execute_sync("go"))
    assert authors(outcome.state) == [None, "a", "b", "a", "b", "a", "b"]
    assert outcome.text == "b"


def test_one_round_is_one_round() -> None:
    outcome = completed(loop(talker("a"), max_iterations=1).execute_sync("go"))
    assert authors(outcome.state) == [None, "a"]


def test_a_loop_without_a_limit_goes_on_until_an_agent_ends_it() -> None:
    """W1."""
    ends = leaver("ends", *["again"] * 30)
    outcome = completed(loop(talker("a"), ends).execute_sync("go"))
    assert outcome.usage.requests == 62
    assert outcome.text == "a", "the last text that an agent said"


def test_an_agent_that_escalates_ends_the_loop_and_later_ones_do_not_run() -> None:
    """W1: its event and its result are kept."""
    never = ScriptedModel(["never"])
    events: list[Any] = []
    rounds = loop(talker("a"), leaver("ends"), Agent("c", never), max_iterations=5)
    outcome = completed(rounds.execute_sync("go", on_event=events.append))
    assert never.requests == []
    assert [(r.agent, r.escalated) for r in outcome.results] == [("a", False), ("ends", True)]
    assert [(e.agent_path[-1], e.escalated) for e in events if isinstance(e, AgentEnded)] == [
        ("a", False),
        ("ends", True),
    ]
    assert [part.tool_name for part in results(outcome.state)] == ["exit_loop"]


def test_exit_loop_has_no_arguments_and_brings_an_empty_result_without_another_model_call() -> None:
    """W3."""
    assert exit_loop.parameters.get("properties", {}) == {}
    assert "only when your instructions tell you to" in exit_loop.description
    model = ScriptedModel([["I leave.", call("exit_loop")]])
    agent = Agent("a", model, tools=[exit_loop], output_key="doc")
    rounds = loop(agent)
    outcome = completed(rounds.execute_sync("go", state=AgentState(values={"doc": "good"})))
    assert len(model.requests) == 1
    assert [part.content for part in results(outcome.state)] == [""]
    assert outcome.state.values == {"doc": "good"}, "no chatter overwrites it"


def test_exit_loop_outside_of_a_loop_ends_the_run_of_its_agent() -> None:
    outcome = completed(leaver("a").execute_sync("go"))
    assert (outcome.text, outcome.usage.requests) == ("", 1)


def test_any_tool_may_escalate_and_let_its_agent_finish() -> None:
    """W2: without skip_summarization the model still has its say."""

    @tool
    async def enough() -> ToolResult[str]:
        return ToolResult("ok", escalate=True)

    ends = Agent("ends", ScriptedModel([call("enough"), "my last words"]), tools=[enough])
    outcome = completed(loop(ends, talker("b"), max_iterations=3).execute_sync("go"))
    assert outcome.text == "my last words"
    assert authors(outcome.state) == [None, "ends", "ends", "ends"]


def test_a_tool_that_skips_the_summary_only_ends_its_agents_part() -> None:
    @tool
    async def done() -> ToolResult[str]:
        return ToolResult("ok", skip_summarization=True)

    agent = Agent("a", by_turn(call("done"), call("done")), tools=[done])
    outcome = completed(loop(agent, talker("b"), max_iterations=2).execute_sync("go"))
    assert authors(outcome.state) == [None, "a", "a", "b", "a", "a", "b"]


def test_escalating_ends_the_nearest_loop_only() -> None:
    """W2."""
    inner = loop(leaver_each_time("x"), talker("never"), name="inner", max_iterations=5)
    outcome = completed(loop(inner, talker("b"), max_iterations=2).execute_sync("go"))
    assert authors(outcome.state) == [None, "x", "x", "b", "x", "x", "b"]


def leaver_each_time(name: str) -> Agent:
    return Agent(name, ScriptedModel(lambda _: [call("exit_loop")]), tools=[exit_loop])


def test_escalating_in_a_sequence_leaves_it_for_the_loop_around() -> None:
    """W1, W2: later agents of that round do not run, whatever they are nested in."""
    part = Agent("part", mode=Sequential([leaver_each_time("x"), talker("never")]))
    outcome = completed(loop(part, talker("b"), max_iterations=2).execute_sync("go"))
    assert authors(outcome.state) == [None, "x", "x"]


def test_escalating_where_no_loop_is_around_changes_nothing() -> None:
    """W2: it ends a loop, and there is none."""
    flow = Agent("flow", mode=Sequential([leaver("x"), talker("b")]))
    assert completed(flow.execute_sync("go")).text == "b"


def test_escalating_beside_others_lets_them_finish_first() -> None:
    """W2, W6."""
    side = Agent("side", mode=Parallel([leaver_each_time("x"), talker("y")]))
    outcome = completed(loop(side, talker("never")).execute_sync("go"))
    assert authors(outcome.state) == [None, "x", "x", "y"]


def test_a_loop_inside_a_task_of_an_agent_is_not_ended_from_another_tree() -> None:
    """S3, W2: nothing flows back from a sub-agent but its result."""
    inner = leaver_each_time("helper")
    boss = Agent(
        "boss",
        by_turn(call("task", {"task_name": "helper", "instructions": "x"}), "one", "two"),
        middleware=[SubAgent([inner], general_purpose=False)],
    )
    outcome = completed(loop(boss, talker("b"), max_iterations=2).execute_sync("go"))
    assert authors(outcome.state)[-1] == "b"
    assert not any(result.escalated for result in outcome.results)


def test_a_failure_ends_a_loop_and_wins_over_escalating() -> None:
    @tool
    async def enough() -> ToolResult[str]:
        return ToolResult("ok", escalate=True)

    model = ScriptedModel([call("enough"), ValueError("down")])
    outcome = loop(Agent("a", model, tools=[enough])).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AgentFailed)


class Bank:
    """An agent that pays in each round, and whose bank is lost in the second one."""

    def __init__(self, error: Exception | None = None, **options: Any) -> None:
        self.paid = 0

        @tool(**options)
        async def pay() -> str:
            self.paid += 1
            if self.paid == 2:
                raise error or ConnectionResetError("reset")
            return "paid"

        def reply(request: ScriptedRequest) -> Any:
            return call("pay") if isinstance(request.prompt, str) and self._asks() else "done"

        self._turns = 0
        self.agent = Agent("payer", ScriptedModel(reply), tools=[pay])

    def _asks(self) -> bool:
        self._turns += 1
        return self._turns % 2 == 1


@pytest.mark.parametrize("nested", [False, True])
def test_a_doubt_in_a_round_ends_the_loop_before_the_next_one(nested: bool) -> None:
    """W1, J4: the next round would do it again."""
    bank = Bank()
    rounds = loop(bank.agent, max_iterations=9)
    if nested:
        rounds = Agent("all", mode=Sequential([talker("first"), rounds]))
    outcome = rounds.execute_sync("go")
    assert isinstance(outcome, Failed)
    error = outcome.error
    if nested:
        assert isinstance(error, AgentFailed)
        assert "The outcome of a call of 'pay' is unknown" in str(error)
    else:
        assert isinstance(error, EffectUnknown)
        assert error.tool == "pay"
        assert list(outcome.state.doubts) == [error.call_key]
    assert bank.paid == 2
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["pay"]


def test_a_doubt_in_the_last_round_does_not_make_a_loop_fail() -> None:
    """W1: nothing comes after it."""
    bank = Bank()
    outcome = completed(loop(bank.agent, max_iterations=2).execute_sync("go"))
    assert bank.paid == 2
    assert len(outcome.state.doubts) == 1


def test_a_failure_that_is_no_doubt_leaves_the_loop_going() -> None:
    """W1."""
    bank = Bank(ValueError("no money"))
    completed(loop(bank.agent, max_iterations=4).execute_sync("go"))
    assert bank.paid == 4


def test_a_doubt_of_an_earlier_run_does_not_end_a_loop() -> None:
    """W1, J4: it stays in doubt, and an equal call needs a person as ever."""
    bank = Bank()
    first = completed(loop(bank.agent, max_iterations=2).execute_sync("go"))
    chat = loop(talker("a"), max_iterations=3)
    outcome = completed(chat.execute_sync("again", state=first.state))
    assert authors(outcome.state)[-3:] == ["a", "a", "a"]
    assert len(outcome.state.doubts) == 1


def test_a_doubt_that_a_person_settles_leaves_the_loop_going() -> None:
    """W1, J4."""
    bank = Bank(on_unknown="ask")
    rounds = loop(bank.agent, max_iterations=3)
    outcome = interrupted(rounds.execute_sync("go"))
    assert [request.kind for request in outcome.requests] == ["doubt"]
    end = completed(rounds.resume_sync(outcome.state, outcome.decide(respond("receipt"))))
    assert bank.paid == 3
    assert end.state.doubts == {}


def test_an_approved_exit_ends_the_loop_in_its_round() -> None:
    """W7: it continues at the same agent of the same round, in another process."""

    def rounds() -> Agent:
        ends = Agent(
            "ends",
            by_turn("go on", [call("exit_loop")]),
            tools=[exit_loop],
            interrupt_on={"exit_loop": True},
        )
        return loop(talker("a"), ends, max_iterations=4)

    outcome = interrupted(rounds().execute_sync("go"))
    assert outcome.requests[0].tool_name == "exit_loop"
    done = completed(rounds().resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    assert authors(done.state) == [None, "a", "ends", "a", "ends", "ends"]


def test_a_rejected_exit_leaves_the_loop_going() -> None:
    ends = Agent(
        "ends",
        by_turn([call("exit_loop")], "I stay"),
        tools=[exit_loop],
        interrupt_on={"exit_loop": True},
    )
    rounds = loop(ends, talker("b"), max_iterations=1)
    outcome = interrupted(rounds.execute_sync("go"))
    done = completed(rounds.resume_sync(outcome.state, outcome.decide(reject())))
    assert done.text == "b"


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5, "3"])
def test_a_number_of_rounds_that_is_none_is_refused(wrong: Any) -> None:
    """W1."""
    with pytest.raises(UsageError, match=r"max_iterations. must be .*at least 1.*got "):
        Loop([talker("a")], max_iterations=wrong)


# ------------------------------------------------------------------------- checkers without a model


def checker(*, enough: int) -> Agent:
    """Plain steps that end the loop after `enough` replies of others."""

    async def check(run: Run) -> Outcome:
        replies = [m for m in run.state.messages if "reply" in str(m)]
        if len(replies) >= enough:
            run.escalate()
            run.escalate()
        return run.completed("")

    return Agent("checker", mode=Mode([check]))


@pytest.mark.parametrize("nested", [False, True], ids=["in the loop", "in a sequence of it"])
def test_plain_steps_without_a_model_end_a_loop(nested: bool) -> None:
    """W2."""
    says = talker("says", *["reply"] * 9)
    check = checker(enough=3)
    agents = [Agent("both", mode=Sequential([says, check]))] if nested else [says, check]
    outcome = completed(loop(*agents, talker("after"), max_iterations=9).execute_sync("go"))
    assert [name for name in authors(outcome.state) if name == "says"] == ["says"] * 3
    assert [name for name in authors(outcome.state) if name == "after"] == ["after"] * 2
    assert outcome.results[-1].escalated
    assert outcome.usage.requests == 5


def test_an_escalation_ends_the_nearest_loop_alone() -> None:
    """W2."""
    inner = loop(talker("says", *["reply"] * 9), checker(enough=1), name="inner")
    outcome = completed(loop(inner, max_iterations=2).execute_sync("go"))
    assert [name for name in authors(outcome.state) if name == "says"] == ["says"] * 2


def test_a_hook_of_an_agent_ends_the_loop_around_it() -> None:
    """W2: by a flag, a value, or whatever the hook sees."""

    class Enough(Middleware):
        def after_step(self, run: Run) -> None:  # type: ignore[override]  # plain is allowed
            if run.deps["enough"]:
                run.escalate()

    outcome = completed(
        loop(talker("a", middleware=[Enough()]), talker("b")).execute_sync(
            "go", deps={"enough": True}
        )
    )
    assert authors(outcome.state) == [None, "a"]


@pytest.mark.parametrize("mode", [Sequential, Parallel, Loop])
def test_a_workflow_in_a_loop_that_escalates_before_its_agents_run_none(mode: Any) -> None:
    """W2: in a loop inside a loop it ends the inner one."""

    class Enough(Middleware):
        async def on_run_start(self, run: Run) -> None:
            run.escalate()

    inner = Agent("inner", mode=mode([talker("x"), talker("y")]), middleware=[Enough()])
    outcome = completed(loop(talker("a"), inner, talker("b"), max_iterations=1).execute_sync("go"))
    assert authors(outcome.state) == [None, "a", *(["b"] if mode is Loop else [])]


@pytest.mark.parametrize("mode", [Sequential, Parallel])
def test_a_workflow_that_escalates_where_no_loop_is_around_runs_its_agents(mode: Any) -> None:
    """W2."""

    class Enough(Middleware):
        async def on_run_start(self, run: Run) -> None:
            run.escalate()

    alone = Agent("alone", mode=mode([talker("x"), talker("y")]), middleware=[Enough()])
    assert authors(completed(alone.execute_sync("go")).state) == [None, "x", "y"]


async def test_a_message_to_a_loop_ends_it_after_the_agent_that_runs() -> None:
    """W2."""

    class Ends(Middleware):
        async def on_message(self, run: Run, message: Any) -> None:
            run.escalate()

    held = Held("said")
    first = Agent("first", ScriptedModel([held]))
    rounds = Agent("rounds", mode=Loop([first, talker("second")]), middleware=[Ends()])
    async with Runtime([rounds]) as runtime:
        ref = runtime.spawn("rounds")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.notify("Ends", "now"))
        held.release.set()
        outcome = completed(await soon(run))
    assert authors(outcome.state) == [None, "first"]
    assert outcome.text == "said"


def test_what_a_mode_without_a_model_would_not_use_is_refused() -> None:
    """R8."""

    async def step(run: Run) -> Outcome:
        return run.completed("x")

    assert Agent("plain", mode=Mode([step])).execute_sync("go").state.run is not None
    with pytest.raises(UsageError, match=r"has no model, and nothing in .* would use instructions"):
        Agent("plain", None, "Be kind.", mode=Mode([step]))

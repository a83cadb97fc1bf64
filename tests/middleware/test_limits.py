"""`Limits`: what a run may use, counted over all of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from tests.support.agents import (
    FakeClock,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
)
from understudy import (
    Agent,
    Completed,
    Interrupted,
    Outcome,
    Run,
    ScriptedModel,
    Stopped,
    StopReason,
    UsageError,
    approve,
    call,
    reject,
    tool,
)
from understudy.middleware import Limits, Middleware, SubAgent
from understudy.modes import AgentExecution
from understudy.tools import ToolFailed


@tool
async def work(x: int = 1) -> str:
    """Work."""
    return f"worked {x}"


@tool
async def fail() -> str:
    """Fail."""
    raise ToolFailed("no")


WORK = call("work")
FAIL = call("fail")


def reply(*parts: Any, tokens: int = 2, finish: Any = None) -> ModelResponse:
    """A reply that uses so many tokens, half of them for what it was asked."""
    return ModelResponse(
        parts=[TextPart(part) if isinstance(part, str) else part for part in parts],
        usage=RequestUsage(input_tokens=tokens // 2, output_tokens=tokens - tokens // 2),
        finish_reason=finish,
    )


def works(tokens: int = 2, finish: Any = None) -> ModelResponse:
    return reply(ToolCallPart("work", {}), tokens=tokens, finish=finish)


def run_of(turns: Any, **limits: Any) -> tuple[Outcome, ScriptedModel]:
    model = ScriptedModel(turns)
    agent = Agent("a", model, tools=[work, fail], middleware=[Limits(**limits)])
    outcome = agent.execute_sync("go")
    assert_valid_history(outcome.state)
    return outcome, model


def reasons(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Stopped), outcome
    return [signal.reason.value for signal in outcome.signals]


def test_so_many_steps_are_made_and_no_more() -> None:
    """P5: >=, before a step."""
    outcome, model = run_of([WORK] * 5, max_steps=2)
    assert reasons(outcome) == ["steps_limit"]
    assert len(model.requests) == 2
    assert len(results(outcome.state)) == 2, "the last step is whole"
    assert outcome.explain() == (
        "Stopped after 2 model calls: steps_limit: 2 of 2 steps were made (from "
        "'limits.max_steps')."
    )


def test_a_run_that_ends_within_its_last_step_is_completed() -> None:
    """P5."""
    outcome, _ = run_of([WORK, "done"], max_steps=2)
    assert completed(outcome).text == "done"


@pytest.mark.parametrize(("limit", "steps"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_tokens_are_cumulative_and_reached_with_the_last_one(limit: int, steps: int) -> None:
    """P5: input and output tokens; >=, before a step."""
    outcome, model = run_of([works(10)] * 5, max_tokens=limit)
    assert reasons(outcome) == ["token_limit"]
    assert len(model.requests) == steps


def test_a_final_answer_that_overshoots_a_token_budget_is_completed() -> None:
    """P5."""
    outcome, _ = run_of([works(4), reply("done", tokens=100)], max_tokens=5)
    assert completed(outcome).text == "done"
    assert outcome.usage.total_tokens == 104


def test_the_tokens_of_children_count() -> None:
    """P5."""
    child = Agent("child", ScriptedModel([works(40), reply("child done", tokens=40)]), tools=[work])
    task = call("task", {"task_name": "child", "instructions": "go"})
    model = ScriptedModel([[task], "never"])
    stack = [SubAgent(agents=[child], general_purpose=False), Limits(max_tokens=82)]
    outcome = Agent("a", model, middleware=stack).execute_sync("go")
    assert reasons(outcome) == ["token_limit"], "2 of its own and 80 of its child"
    assert results(outcome.state)[0].content == "child done"


def test_limits_count_over_the_resumes_of_a_run() -> None:
    """P5, R2: in another process, too."""

    def build() -> Agent:
        model = by_turn(WORK, WORK, WORK)
        stack = [Limits(max_steps=2, max_tokens=4)]
        return Agent("a", model, tools=[work], middleware=stack, interrupt_on={"work": True})

    outcome = build().execute_sync("go")
    for _ in range(2):
        stands = interrupted(outcome)
        outcome = build().resume_sync(reloaded(stands.state), stands.decide(approve()))
    assert reasons(outcome) == ["steps_limit", "token_limit"]
    assert outcome.usage.requests == 2


def test_limits_begin_anew_with_the_next_run() -> None:
    """P5: counted over the run."""
    agent = Agent("a", by_turn(WORK, WORK, WORK), tools=[work], middleware=[Limits(max_steps=2)])
    first = agent.execute_sync("go")
    assert reasons(first) == ["steps_limit"]
    assert completed(agent.execute_sync("go on", state=first.state)).text == "done"


def timed(clock: FakeClock, **limits: Any) -> Agent:
    """An agent whose tool takes four seconds and whose calls a person approves."""

    @tool
    async def slow() -> str:
        """Take four seconds."""
        clock.advance(4)
        return "done"

    stack = [Limits(**limits)]
    model = by_turn(*[call("slow")] * 9)
    return Agent("a", model, tools=[slow], middleware=stack, interrupt_on={"slow": True})


def test_seconds_are_those_of_running_not_of_waiting_for_people() -> None:
    """P5: they survive each resume, in another process too."""
    clock = FakeClock()
    outcome = timed(clock, max_seconds=9).execute_sync("go", clock=clock)
    rounds = 0
    while isinstance(outcome, Interrupted):
        rounds += 1
        clock.advance(3600)
        state = reloaded(outcome.state)
        clock = FakeClock() if rounds % 2 else clock  # another machine's clock begins anew
        agent = timed(clock, max_seconds=9)
        outcome = agent.resume_sync(state, outcome.decide(approve()), clock=clock)
    assert reasons(outcome) == ["time_limit"]
    assert rounds == 3, "three times four seconds are over nine"
    assert outcome.state.run is not None
    assert outcome.state.run.seconds == 12


def test_a_run_without_a_time_limit_records_no_time() -> None:
    """P5: a plain step costs nothing more."""
    clock = FakeClock()
    outcome = timed(clock, max_steps=9).execute_sync("go", clock=clock)
    assert outcome.state.run is not None
    assert outcome.state.run.seconds == 0


def test_a_reply_that_finished_so_ends_the_run_as_completed_after_its_tools() -> None:
    """P5."""
    turns = [works(finish="tool_call"), reply("cut", ToolCallPart("work", {}), finish="stop")]
    outcome, model = run_of([*turns, "never"], finish_reasons=["stop", "content_filter"])
    assert completed(outcome).text == "cut"
    assert len(model.requests) == 2
    assert [part.content for part in results(outcome.state)] == ["worked 1", "worked 1"]
    assert "finish_reason: the model finished by 'stop'" in outcome.explain()


def test_so_many_tool_errors_in_a_row_stop_the_run() -> None:
    """P5."""
    outcome, model = run_of([FAIL] * 5, max_consecutive_tool_errors=3)
    assert reasons(outcome) == ["retry_limit"]
    assert len(model.requests) == 3
    outcome, model = run_of([[FAIL, FAIL], "never"], max_consecutive_tool_errors=2)
    assert reasons(outcome) == ["retry_limit"], "of one reply, too"


def test_a_success_between_tool_errors_begins_the_row_anew() -> None:
    """P5: in call order."""
    turns = [FAIL, [FAIL, WORK], FAIL, [WORK, FAIL], "done"]
    assert completed(run_of(turns, max_consecutive_tool_errors=3)[0]).text == "done"
    outcome, _ = run_of([[WORK, FAIL], FAIL, "never"], max_consecutive_tool_errors=2)
    assert reasons(outcome) == ["retry_limit"]


def test_a_call_that_a_person_denied_is_no_tool_error() -> None:
    """P5, T8."""
    agent = Agent(
        "a",
        by_turn(FAIL, WORK, FAIL),
        tools=[work, fail],
        middleware=[Limits(max_consecutive_tool_errors=2)],
        interrupt_on={"work": True},
    )
    outcome = interrupted(agent.execute_sync("go"))
    stopped = agent.resume_sync(outcome.state, outcome.decide(reject()))
    assert reasons(stopped) == ["retry_limit"], "it neither counts nor begins the row anew"
    assert stopped.usage.requests == 3


def test_all_limits_are_looked_at_so_that_their_signals_coexist() -> None:
    """P5: the strongest is the highest."""
    outcome, _ = run_of([FAIL] * 3, max_steps=1, max_tokens=1, max_consecutive_tool_errors=1)
    assert reasons(outcome) == ["steps_limit", "token_limit", "retry_limit"]
    assert isinstance(outcome, Stopped)
    assert outcome.signals.highest is not None
    assert outcome.signals.highest.reason is StopReason.STEPS_LIMIT


def test_limits_that_are_not_given_are_off() -> None:
    """P5."""
    outcome, _ = run_of([*[FAIL] * 20, reply("done", tokens=10**9, finish="length")])
    assert isinstance(outcome, Completed)


@pytest.mark.parametrize("name", ["max_steps", "max_tokens", "max_consecutive_tool_errors"])
@pytest.mark.parametrize("given", [0, -1, True, 1.5, "3"])
def test_a_number_that_is_no_limit_is_refused(name: str, given: object) -> None:
    """P5: 0 or negative: error."""
    with pytest.raises(UsageError, match=rf"{name}. must be .*at least 1, or None.*got"):
        Limits(**{name: given})  # type: ignore[arg-type]  # what it must refuse


@pytest.mark.parametrize("given", [0, -1, True, "3", float("nan"), float("inf"), 10**400])
def test_seconds_that_are_no_limit_are_refused(given: Any) -> None:
    """P5."""
    with pytest.raises(UsageError, match=r"max_seconds=.*above 0"):
        Limits(max_seconds=given)


@pytest.mark.parametrize("given", [[], "stop", ["stop", "done"], 3])
def test_finish_reasons_that_are_none_are_refused_with_those_that_there_are(given: Any) -> None:
    """P5."""
    with pytest.raises(UsageError, match="stop, length, content_filter, tool_call, error"):
        Limits(finish_reasons=given)


def test_an_unknown_way_to_end_is_refused() -> None:
    wrong: Any = "answer"
    with pytest.raises(UsageError, match=r"on_limit. must be 'stop' or 'generate'"):
        Limits(max_steps=1, on_limit=wrong)


def test_a_mode_that_would_not_look_at_limits_is_refused() -> None:
    """R8."""
    with pytest.raises(UsageError, match="silently off"):
        Agent(
            "a",
            ScriptedModel([]),
            middleware=[Limits(max_steps=1)],
            mode=AgentExecution().without("check_stop"),
        )


class Extends(Middleware):
    """Asks to continue whatever stands."""

    async def before_step(self, run: Run) -> None:
        run.request_continuation()


def test_a_limit_can_be_overridden_and_emits_again() -> None:
    """P4."""
    model = ScriptedModel([WORK] * 9)
    agent = Agent("a", model, tools=[work], middleware=[Limits(max_steps=1), Extends()])
    outcome = agent.execute_sync("go")
    assert reasons(outcome) == ["steps_limit"]
    assert len(model.requests) == 1 + 3, "three times in a row"


# ------------------------------------------------------------- a budget that still answers


def test_a_run_that_reached_its_limit_may_answer_once_more() -> None:
    """P5, R1: without a tool, and completed."""
    outcome, model = run_of([works(10), "what I have"], max_tokens=10, on_limit="generate")
    assert completed(outcome).text == "what I have"
    assert completed(outcome).early_stopped
    assert model.requests[-1].tools == ()
    assert outcome.explain() == (
        "Completed early after 2 model calls: token_limit: 10 of 10 tokens were used (from "
        "'limits.max_tokens'), so the model answered."
    )


def test_a_limit_that_stops_is_stronger_than_one_that_lets_answer() -> None:
    """P5."""
    model = ScriptedModel([WORK, "never"])
    stack = [Limits(max_steps=1, on_limit="generate"), Limits(max_tokens=1)]
    outcome = Agent("a", model, tools=[work], middleware=stack).execute_sync("go")
    assert reasons(outcome) == ["steps_limit", "token_limit"]


def test_a_run_that_must_end_by_a_tool_is_stopped_by_a_limit_that_lets_answer() -> None:
    """U1: text would not be what was asked for."""
    model = ScriptedModel([FAIL, "never"])
    stack = [Limits(max_steps=1, on_limit="generate")]
    agent = Agent("a", model, tools=[work, fail], middleware=stack)
    assert reasons(agent.execute_sync("go", until_tool=work)) == ["steps_limit"]

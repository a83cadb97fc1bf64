"""`early_stopping="generate"`: at its limit the model answers once more, without tools (R1)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart

from tests.support.agents import (
    assert_valid_history,
    calls_made,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.loops import soon
from understudy import (
    Agent,
    Completed,
    Failed,
    ModelFailed,
    Outcome,
    Run,
    RunLimitExceeded,
    Runtime,
    ScriptedModel,
    Stopped,
    StopSignal,
    StreamBroken,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.middleware import Limits, Middleware, ModelInput, SubAgent
from understudy.modes import Sequential


@tool
async def work() -> str:
    """Work."""
    return "worked"


WORK = call("work")
FALLBACK = "I reached the limit of what I may do here before I had an answer."


def answering(turns: Any, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(turns)
    given = {"max_runs": 2, "early_stopping": "generate", **options}
    return Agent("a", model, tools=[work], **given), model


def early(outcome: Outcome) -> Completed:
    assert completed(outcome).early_stopped
    assert_valid_history(outcome.state)
    return completed(outcome)


def last_prompt(model: ScriptedModel) -> Any:
    last = model.requests[-1].messages[-1].parts[-1]
    assert isinstance(last, UserPromptPart)
    return last.content


def test_the_prompt_for_the_last_answer_is_the_agents_or_the_runs_own() -> None:
    """R1."""
    agent, model = answering([WORK, WORK, "a"], early_stopping_prompt="Sum it up.")
    early(agent.execute_sync("go"))
    assert last_prompt(model) == "Sum it up."
    agent, model = answering([WORK, WORK, "a"], early_stopping_prompt="Sum it up.")
    early(agent.execute_sync("go", early_stopping_prompt="In one word."))
    assert last_prompt(model) == "In one word."
    agent, model = answering(
        [WORK, WORK, "a"], middleware=[Limits(max_steps=1, on_limit="generate")]
    )
    early(agent.execute_sync("go", early_stopping_prompt="In one word."))
    assert last_prompt(model) == "In one word."


def test_the_prompt_of_a_run_is_kept_where_it_is_resumed() -> None:
    """R1, R2."""
    agent, _ = answering([WORK, WORK, "a"], interrupt_on={"work": True}, max_runs=1)
    waiting = interrupted(agent.execute_sync("go", early_stopping_prompt="In one word."))
    other, model = answering(["a"], interrupt_on={"work": True}, max_runs=1)
    early(other.resume_sync(reloaded(waiting.state), waiting.decide(approve())))
    assert last_prompt(model) == "In one word."


async def test_an_actor_takes_the_prompt_for_the_last_answer_of_one_run() -> None:
    """R1."""
    agent, model = answering([WORK, WORK, "a"])
    async with Runtime([agent]) as runtime:
        early(await soon(runtime.spawn("a").run("go", early_stopping_prompt="In one word.")))
    assert last_prompt(model) == "In one word."


def test_the_prompt_of_a_child_is_its_own() -> None:
    """R1, S2."""
    model = ScriptedModel([WORK, "a"])
    child = {
        "name": "child",
        "model": model,
        "tools": [work],
        "max_runs": 1,
        "early_stopping": "generate",
        "early_stopping_prompt": "In one word.",
    }
    parent = Agent(
        "parent",
        ScriptedModel([call("task", {"task_name": "child", "instructions": "x"}), "done"]),
        middleware=[SubAgent([child], general_purpose=False)],
    )
    completed(parent.execute_sync("go"))
    assert last_prompt(model) == "In one word."


@pytest.mark.parametrize("wrong", ["", " ", 7])
def test_a_prompt_that_says_nothing_is_refused(wrong: Any) -> None:
    """R8."""
    with pytest.raises(UsageError, match=r"early_stopping_prompt.*non-empty text"):
        answering(["a"], early_stopping_prompt=wrong)
    with pytest.raises(UsageError, match=r"early_stopping_prompt.*non-empty text"):
        answering(["a"])[0].execute_sync("go", early_stopping_prompt=wrong)
    with pytest.raises(UsageError, match="give early_stopping_prompt to its agents"):
        Agent("w", mode=Sequential([answering([])[0]]), early_stopping_prompt="x")
    with pytest.raises(UsageError, match="early_stopping_prompt: give it to its agents"):
        Agent("w", mode=Sequential([answering([])[0]])).execute_sync("?", early_stopping_prompt="x")


def test_when_one_more_call_is_due_the_model_is_told_to_answer_without_tools() -> None:
    """R1: the instruction is the last user message; its text is a normal `Completed`."""
    agent, model = answering([WORK, WORK, "what I have"])
    outcome = early(agent.execute_sync("go"))
    assert outcome.text == "what I have"
    assert len(model.requests) == 3
    assert [request.tools for request in model.requests] == [("work",), ("work",), ()]
    sent = [[t.name for t in request.parameters.function_tools] for request in model.requests]
    assert sent == [["work"]] * 3
    last = model.requests[-1].messages[-1]
    assert isinstance(last, ModelRequest)
    assert isinstance(last.parts[-1], UserPromptPart)
    assert "give your final answer now" in model.requests[-1].prompt
    assert outcome.explain() == (
        "Completed early after 3 model calls: its max_runs=2 were used up, so the model answered."
    )


def test_a_run_that_finishes_within_its_last_call_is_not_stopped_early() -> None:
    """R1."""
    agent, model = answering([WORK, "done"])
    outcome = completed(agent.execute_sync("go"))
    assert (outcome.text, outcome.early_stopped, len(model.requests)) == ("done", False, 2)


def test_force_fails_the_run_and_keeps_its_state() -> None:
    """R1."""
    agent, model = answering([WORK, WORK, "never"], early_stopping="force")
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RunLimitExceeded)
    assert len(results(outcome.state)) == 2
    assert len(model.requests) == 2


def test_tool_calls_in_the_answer_are_dropped() -> None:
    """R1."""
    agent, _ = answering([WORK, WORK, ["I would go on.", WORK]])
    outcome = early(agent.execute_sync("go"))
    assert outcome.text == "I would go on."
    assert len(calls_made(outcome.state)) == 2


@pytest.mark.parametrize("answer", ["", "  \n", [WORK], []])
def test_an_empty_answer_becomes_a_fixed_sentence(answer: Any) -> None:
    """R1: in the conversation, too, which must stay valid for every provider."""
    agent, _ = answering([WORK, WORK, answer])
    outcome = early(agent.execute_sync("go"))
    assert outcome.text == FALLBACK
    last = outcome.state.messages[-1]
    assert isinstance(last, ModelResponse)
    assert not any(isinstance(part, ToolCallPart) for part in last.parts)


def test_no_hook_can_let_the_answer_be_a_call() -> None:
    """R1, R4: the hooks run around it as around every model call."""
    seen: list[str] = []

    class Offers(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
            seen.append("before")
            return request.replace(settings={"tool_choice": "required", "temperature": 0})

        async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse:
            seen.append("after")
            return reply

    agent, model = answering([WORK, WORK, "answer"], middleware=[Offers()])
    early(agent.execute_sync("go"))
    assert model.requests[-1].settings == {"tool_choice": "none", "temperature": 0}
    assert seen == ["before", "after"] * 3


def test_a_model_that_fails_to_answer_fails_the_run() -> None:
    """R5."""
    agent, _ = answering([WORK, WORK, OSError("no network")])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)


def test_an_answer_that_breaks_off_is_kept_as_it_came() -> None:
    """R6: never replaced by an invented apology."""
    agent, _ = answering([WORK, WORK, [WORK, OSError("gone")]])
    outcome = agent.execute_sync("go", on_event=lambda event: None)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StreamBroken)
    assert FALLBACK not in str(outcome.state.to_dict())
    assert_valid_history(outcome.state)


def test_the_conversation_goes_on_after_an_early_stop() -> None:
    """R1: the next run has all of its calls, and its tools."""
    agent, model = answering([WORK, WORK, "so far", WORK, "done"])
    first = early(agent.execute_sync("go"))
    second = completed(agent.execute_sync("and now?", state=reloaded(first.state)))
    assert (second.text, second.early_stopped) == ("done", False)
    assert model.requests[-1].tools == ("work",)


def test_a_signal_is_stronger_than_the_answer() -> None:
    """P3."""

    class Stops(Middleware):
        async def after_model(self, run: Run, reply: ModelResponse) -> None:
            if run.current.early_stop is not None:
                run.signal(StopSignal.error("no answer is wanted"))

    agent, _ = answering([WORK, WORK, "answer"], middleware=[Stops()])
    assert isinstance(agent.execute_sync("go"), Stopped)


def test_nobody_can_override_the_end_of_an_answer() -> None:
    """R1: one more model call, and no more."""

    class Extends(Middleware):
        async def after_step(self, run: Run) -> None:
            run.request_continuation()

    agent, model = answering([WORK, WORK, "answer"], middleware=[Extends()])
    assert early(agent.execute_sync("go")).text == "answer"
    assert len(model.requests) == 3


def test_a_run_that_must_end_by_a_tool_fails_at_its_limit() -> None:
    """R1, U1: no text could be what it was for, so none is asked for."""
    other = tool(name="other")(work.function)
    model = ScriptedModel([WORK, WORK, "never"])
    agent = Agent("a", model, tools=[work, other], max_runs=2, early_stopping="generate")
    outcome = agent.execute_sync("go", until_tool="other")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RunLimitExceeded)
    assert len(model.requests) == 2


@pytest.mark.parametrize("as_config", [False, True])
def test_a_nested_agent_that_stopped_early_gives_its_text_to_its_parent(as_config: bool) -> None:
    """R1, S2."""
    options: dict[str, Any] = {
        "name": "child",
        "model": ScriptedModel([WORK, WORK, "what I have"]),
        "tools": [work],
        "max_runs": 2,
        "early_stopping": "generate",
    }
    child = options if as_config else Agent(**options)
    task = call("task", {"task_name": "child", "instructions": "go"})
    model = ScriptedModel([task, "done"])
    stack = [SubAgent(agents=[child], general_purpose=False)]
    outcome = completed(Agent("a", model, middleware=stack).execute_sync("go"))
    assert (outcome.text, outcome.early_stopped) == ("done", False)
    part = results(outcome.state)[0]
    assert (part.content, part.outcome) == ("what I have", "success")


def test_a_stored_outcome_still_says_that_it_was_stopped_early() -> None:
    """R1, J1."""
    ended: list[bool] = []

    class Looks(Middleware):
        async def on_run_end(self, run: Run, outcome: Outcome) -> None:
            ended.append(isinstance(outcome, Completed) and outcome.early_stopped)

    agent, _ = answering([WORK, WORK, "what I have"], middleware=[Looks()])
    outcome = early(agent.execute_sync("go"))
    assert ended == [True]
    run = reloaded(outcome.state).run
    assert run is not None
    assert run.end is not None
    assert run.end.early_stopped

"""Modes: named steps that a user replaces, inserts and drops (DESIGN 4)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support.agents import results
from tests.support.cut_off import Crash, Disk
from understudy import (
    Agent,
    Completed,
    Failed,
    Outcome,
    Run,
    ScriptedModel,
    UntilToolNotCalled,
    UsageError,
    call,
)
from understudy.errors import StepFailed
from understudy.modes import AgentExecution, Mode, call_llm, continue_or_finish

STEPS = (
    "check_stop",
    "call_llm",
    "check_pause",
    "check_interrupts",
    "execute_tools",
    "propagate_state",
    "check_tool_interrupts",
    "check_until_tool",
    "continue_or_finish",
)


def note(text: str) -> str:
    return f"noted {text}"


def noting() -> ScriptedModel:
    return ScriptedModel([call("note", {"text": "x"}), "done"])


async def look(run: Run) -> Outcome | None:
    return None


async def end_here(run: Run) -> Outcome | None:
    return run.completed("ended by a step")


# ------------------------------------------------------------------------- making modes


def test_the_pipeline_of_an_agent_is_the_documented_one_and_repr_prints_it() -> None:
    mode = AgentExecution()
    assert mode.step_names == STEPS
    assert repr(mode) == f"AgentExecution({' → '.join(STEPS)})"
    assert repr(mode) in repr(Agent("a", ScriptedModel([])))


def test_replacing_puts_a_step_in_the_place_of_another() -> None:
    mode = AgentExecution().replacing("call_llm", look)
    assert mode.step_names == (STEPS[0], "look", *STEPS[2:])


def test_inserting_puts_a_step_right_after_or_right_before_another() -> None:
    mode = AgentExecution()
    after = mode.inserting(after="execute_tools", step=look).step_names
    assert after == (*STEPS[:5], "look", *STEPS[5:])
    before = mode.inserting(before="check_stop", step=look).step_names
    assert before == ("look", *STEPS)
    last = mode.inserting(after="continue_or_finish", step=look).step_names
    assert last == (*STEPS, "look")


def test_without_drops_a_step() -> None:
    assert AgentExecution().without("check_pause").step_names == (*STEPS[:2], *STEPS[3:])


def test_changing_a_mode_makes_a_new_one_of_the_same_name_that_prints_as_changed() -> None:
    mode = AgentExecution()
    changed = mode.without("check_pause").replacing("call_llm", look)
    assert mode.step_names == STEPS
    assert repr(mode).startswith("AgentExecution(check_stop → call_llm → ")
    assert changed.name == mode.name, "it is part of fingerprints that are stored"
    assert repr(changed).startswith("changed AgentExecution(check_stop → look → check_interrupts")


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda run: None, "'<lambda>' is a plain one"),
        (str.upper, "'upper' is a plain one"),
        ("look", "got 'look'"),
    ],
)
def test_a_step_that_is_not_async_is_named(step: Any, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"must be an async function, {told}")):
        AgentExecution().inserting(after="call_llm", step=step)


@pytest.mark.parametrize(
    "change",
    [
        lambda mode: mode.replacing("call_lm", look),
        lambda mode: mode.inserting(after="call_lm", step=look),
        lambda mode: mode.inserting(before="call_lm", step=look),
        lambda mode: mode.without("call_lm"),
    ],
)
def test_an_unknown_step_name_is_an_error_that_names_the_known_ones(change: Any) -> None:
    """R8."""
    with pytest.raises(UsageError, match=rf"'call_lm'.*{re.escape(', '.join(STEPS))}"):
        change(AgentExecution())


@pytest.mark.parametrize("where", [{}, {"after": "call_llm", "before": "call_llm"}])
def test_inserting_takes_exactly_one_place(where: dict[str, str]) -> None:
    """R8."""
    with pytest.raises(UsageError, match=r"exactly one of after= and before="):
        AgentExecution().inserting(step=look, **where)


def test_inserting_a_step_of_a_name_that_is_there_is_an_error() -> None:
    """R8."""
    with pytest.raises(UsageError, match=r"two steps named 'call_llm'"):
        AgentExecution().inserting(after="check_pause", step=call_llm)


# ------------------------------------------------------------------------- running modes


def test_an_inserted_step_runs_in_its_place_in_each_round() -> None:
    seen: list[tuple[int, bool]] = []

    async def watch(run: Run) -> Outcome | None:
        turn = run.current.turn
        seen.append((len(run.state.messages), turn is not None and turn.propagated))
        return None

    mode = AgentExecution().inserting(after="propagate_state", step=watch)
    outcome = Agent("a", noting(), tools=[note], mode=mode).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert seen == [(3, True), (4, False)]


def test_a_replaced_step_runs_instead() -> None:
    calls: list[int] = []

    async def finish(run: Run) -> Outcome | None:
        calls.append(1)
        return await continue_or_finish(run)

    mode = AgentExecution().replacing("continue_or_finish", finish)
    assert isinstance(Agent("a", noting(), tools=[note], mode=mode).execute_sync("go"), Completed)
    assert len(calls) == 2


def test_a_dropped_step_does_not_run() -> None:
    asked: list[int] = []

    def pause() -> bool:
        asked.append(1)
        return True

    mode = AgentExecution().without("check_pause")
    outcome = Agent("a", noting(), tools=[note], mode=mode, pause_when=pause).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert asked == []


def test_without_its_check_an_until_tool_does_not_end_the_run() -> None:
    mode = AgentExecution().without("check_until_tool")
    outcome = Agent("a", noting(), tools=[note], mode=mode).execute_sync("go", until_tool="note")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UntilToolNotCalled)


def test_a_step_that_returns_an_outcome_ends_the_run_with_it() -> None:
    """Later steps do not run; the calls that were asked for get a result, so history is valid."""
    model = noting()
    mode = AgentExecution().inserting(before="execute_tools", step=end_here)
    agent = Agent("a", model, tools=[note], mode=mode)
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "ended by a step"
    assert outcome.state.run is not None
    assert outcome.state.run.over
    assert [part.outcome for part in results(outcome.state)] == ["interrupted"]
    assert len(model.requests) == 1


def test_a_step_may_fail_the_run() -> None:
    async def refuse(run: Run) -> Outcome | None:
        return run.failed(UntilToolNotCalled(tools=["mine"], success_required=False))

    mode = AgentExecution().inserting(before="call_llm", step=refuse)
    model = noting()
    outcome = Agent("a", model, mode=mode).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UntilToolNotCalled)
    assert model.requests == []


def test_a_mode_of_ones_own_needs_no_model_call() -> None:
    model = ScriptedModel([])
    outcome = Agent("a", model, mode=Mode([end_here])).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "ended by a step"
    assert model.requests == []


@pytest.mark.parametrize("before", ["call_llm", "execute_tools", "continue_or_finish"])
def test_a_step_that_raises_fails_the_run_naming_the_step(before: str) -> None:
    """DESIGN 3: a run never raises; what was finished is kept."""

    async def stumble(run: Run) -> Outcome | None:
        raise LookupError("no such thing")

    model = noting()
    agent = Agent(
        "a", model, tools=[note], mode=AgentExecution().inserting(before=before, step=stumble)
    )
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StepFailed)
    assert outcome.error.step == "stumble"
    assert "no such thing" in str(outcome.error)
    assert isinstance(outcome.error.__cause__, LookupError)
    expected = {"call_llm": [], "execute_tools": ["interrupted"], "continue_or_finish": ["success"]}
    assert [part.outcome for part in results(outcome.state)] == expected[before]

    after = Agent("a", ScriptedModel(["done"]), tools=[note]).execute_sync(
        "go on", state=outcome.state
    )
    assert isinstance(after, Completed)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda run: run.completed(5), "run.completed(text) must be text, got 5"),
        (lambda run: run.paused(None), "run.paused(reason) must be text, got None"),
        (lambda run: run.failed(OSError("x")), "run.failed(error) takes an UnderstudyError, got"),
    ],
)
def test_an_outcome_that_cannot_be_fails_the_run_with_what_is_wrong(end: Any, message: str) -> None:
    async def wrong(run: Run) -> Outcome | None:
        outcome: Outcome = end(run)
        return outcome

    mode = AgentExecution().inserting(before="call_llm", step=wrong)
    outcome = Agent("a", noting(), tools=[note], mode=mode).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, UsageError)
    assert message in str(outcome.error)


@pytest.mark.parametrize("name", [name for name in STEPS if name != "call_llm"])
def test_a_step_that_finds_no_open_turn_does_nothing(name: str) -> None:
    """A step looks before it acts: here the pipeline has none that asks the model."""
    step = next(s for s in AgentExecution().steps if s.__name__ == name)
    agent = Agent("a", ScriptedModel([]), tools=[note], mode=Mode([step, end_here]))
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "ended by a step"
    assert len(outcome.state.messages) == 1


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_called_twice_changes_nothing(name: str) -> None:
    """The second time it finds nothing that is missing."""
    step = next(s for s in AgentExecution().steps if s.__name__ == name)

    async def once_more(run: Run) -> Outcome | None:
        return await step(run)

    mode = AgentExecution().inserting(after=name, step=once_more)
    model, plain = noting(), noting()
    outcome = Agent("a", model, tools=[note], mode=mode).execute_sync("go")
    expected = Agent("a", plain, tools=[note]).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert [part.content for part in results(outcome.state)] == ["noted x"]
    assert len(outcome.state.messages) == len(expected.state.messages)
    assert len(model.requests) == len(plain.requests)


def test_the_end_that_a_step_decides_is_the_one_that_is_kept() -> None:
    """The process ended after the turn was closed with another text."""

    async def end_otherwise(run: Run) -> Outcome | None:
        return run.completed("ended by a step") if run.current.closing is not None else None

    def agent() -> Agent:
        mode = AgentExecution().inserting(before="check_stop", step=end_otherwise)
        return Agent("a", ScriptedModel(["the model's"]), mode=mode)

    whole = Disk()
    agent().execute_sync("go", journal=whole)
    kinds = [json.loads(line)["kind"] for line in whole.lines]
    cut = Disk(kinds.index("turn_closed") + 1)
    with pytest.raises(Crash):
        agent().execute_sync("go", journal=cut)
    outcome = agent().resume_sync(cut.load())
    assert isinstance(outcome, Completed)
    assert outcome.text == "ended by a step"
    assert outcome.state.run is not None
    assert outcome.state.run.end is not None
    assert outcome.state.run.end.text == "ended by a step"

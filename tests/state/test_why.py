"""What an agent does, in a sentence."""

from __future__ import annotations

import pytest

from tests.support.agents import by_turn
from understudy import Agent, call, tool
from understudy.middleware import Limits
from understudy.modes import Sequential
from understudy.state.why import why


@tool
def work() -> str:
    """Work."""
    return "worked"


def one(name: str = "one") -> Agent:
    return Agent(name, by_turn("done"))


@pytest.mark.parametrize(
    ("agent", "calls"),
    [
        (one(), "1 model call."),
        (Agent("two", by_turn(call("work", {}), "done"), tools=[work]), "2 model calls."),
        (Agent("both", mode=Sequential([one("a"), one("b")])), "2 model calls."),
    ],
    ids=["one", "two", "workflow"],
)
def test_a_run_says_how_many_model_calls_it_made(agent: Agent, calls: str) -> None:
    outcome = agent.execute_sync("go")
    assert why(outcome.state) == f"Its last run is completed, after {calls}"
    assert outcome.explain().startswith(f"Completed after {calls[:-1]}: ")


def test_a_run_that_was_stopped_says_what_stopped_it() -> None:
    limit = Limits(max_steps=1)
    agent = Agent("brief", by_turn(call("work", {})), tools=[work], middleware=[limit])
    outcome = agent.execute_sync("go")
    told = "steps_limit: 1 of 1 steps were made (from 'limits.max_steps')."
    assert why(outcome.state) == f"Its last run was stopped: {told}"
    assert outcome.explain() == f"Stopped after 1 model call: {told}"

"""A `with` of Pydantic AI is followed, or refused by its name before a model is asked (M9)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import capture_run_messages

from tests.support.agents import by_turn, completed
from understudy import Agent, Failed, Outcome, ScriptedModel, UsageError
from understudy.models import ScriptedRequest


class Asked:
    """A model that counts what it is asked."""

    def __init__(self) -> None:
        self.count = 0
        self.model = ScriptedModel(self._reply)

    def _reply(self, request: ScriptedRequest) -> str:
        self.count += 1
        return "done"


def refused(outcome: Outcome) -> str:
    assert isinstance(outcome, Failed), outcome
    return str(outcome.error)


OVERRIDES: list[tuple[dict[str, Any], str]] = [
    ({"instructions": "Be brief."}, r"override\(instructions=\.\.\.\).*make an agent that has it"),
    ({"model_settings": {"temperature": 0}}, r"override\(model_settings="),
    ({"metadata": {"tenant": "a"}}, r"override\(metadata="),
    ({"retries": 3}, r"override\(retries="),
    ({"retries": {"output": 3}}, r"override\(retries="),
    ({"deps": 1}, r"override\(deps=\.\.\.\).*give deps= to the run"),
    ({"tools": []}, r"override\(tools=\.\.\.\).*from_pydantic_ai\(agent, tools="),
    ({"toolsets": []}, r"override\(toolsets="),
    ({"native_tools": []}, r"override\(native_tools="),
    ({"spec": {"instructions": "Be brief."}}, r"override\(instructions="),
]


@pytest.mark.parametrize(("replaced", "error"), OVERRIDES)
def test_an_agent_that_is_overridden_is_not_carried_over(
    replaced: dict[str, Any], error: str
) -> None:
    """M9."""
    agent = PydanticAgent(by_turn(), name="support")
    with agent.override(**replaced), pytest.raises(UsageError, match=f"Agent 'support'.*{error}"):
        Agent.from_pydantic_ai(agent)
    completed(Agent.from_pydantic_ai(agent).execute_sync("go"))


@pytest.mark.parametrize(("replaced", "error"), OVERRIDES)
def test_a_run_does_not_begin_where_its_agent_is_overridden(
    replaced: dict[str, Any], error: str
) -> None:
    """M9."""
    asked = Asked()
    agent = PydanticAgent(asked.model, name="support")
    adopted = Agent.from_pydantic_ai(agent)
    with agent.override(**replaced):
        said = refused(adopted.execute_sync("go"))
    assert re.search(f"'support'.*{error}", said)
    assert asked.count == 0


def test_a_model_that_overrides_another_one_is_carried_over() -> None:
    """M9."""
    real, other = Asked(), Asked()
    agent = PydanticAgent(real.model, name="support")
    with agent.override(model=other.model):
        adopted = Agent.from_pydantic_ai(agent)
        completed(adopted.execute_sync("go"))
    completed(adopted.execute_sync("go"))
    assert (real.count, other.count) == (0, 2)


def test_a_model_is_not_overridden_once_the_agent_is_carried_over() -> None:
    """M9: else a test that replaces the model would ask the real one."""
    real, other = Asked(), Asked()
    agent = PydanticAgent(real.model, name="support")
    adopted = Agent.from_pydantic_ai(agent)
    with agent.override(model=other.model):
        error = refused(adopted.execute_sync("go"))
    assert "override(model=...)" in error
    assert "from_pydantic_ai(agent, model=...)" in error
    assert (real.count, other.count) == (0, 0)


def test_another_agent_may_be_overridden() -> None:
    """M9."""
    agent, other = PydanticAgent(by_turn(), name="a"), PydanticAgent(by_turn(), name="b")
    with other.override(instructions="Be brief."):
        completed(Agent.from_pydantic_ai(agent).execute_sync("go"))


def test_a_run_does_not_begin_where_calls_are_to_run_one_by_one() -> None:
    """M9."""
    asked = Asked()
    agent = PydanticAgent(asked.model, name="support")
    adopted = Agent.from_pydantic_ai(agent)
    with agent.parallel_tool_call_execution_mode("sequential"):
        error = refused(adopted.execute_sync("go"))
    assert "parallel_tool_call_execution_mode('sequential')" in error
    assert "sequential=True" in error
    assert asked.count == 0


def test_a_run_does_not_begin_where_messages_are_captured_for_another_one() -> None:
    """M9."""
    asked = Asked()
    adopted = Agent.from_pydantic_ai(PydanticAgent(asked.model, name="support"))
    with capture_run_messages() as messages:
        error = refused(adopted.execute_sync("go"))
    assert "capture_run_messages()" in error
    assert "outcome.state.messages" in error
    assert (messages, asked.count) == ([], 0)


async def test_a_run_inside_of_a_run_whose_messages_are_captured_begins() -> None:
    """M9: the messages are those of the run around it."""
    adopted = Agent.from_pydantic_ai(PydanticAgent(ScriptedModel(["12"]), name="desk"))
    outer = PydanticAgent(by_turn("fine"), name="outer")

    @outer.output_validator
    async def ask(text: str) -> str:
        return completed(await adopted.execute("go")).text

    with capture_run_messages() as messages:
        result = await outer.run("go")
    assert (result.output, len(messages)) == ("12", 2)

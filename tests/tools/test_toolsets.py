"""Toolsets of Pydantic AI in `Agent(tools=[...])`."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import CombinedToolset, ExternalToolset, FunctionToolset

from tests.support.agents import by_turn, completed, results
from understudy import Agent, UsageError, call


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def drop(table: str) -> str:
    """Drop a table."""
    return f"dropped {table}"


def desk(*tools: Any) -> Agent:
    return Agent("desk", by_turn(call("math_add", {"a": 1, "b": 2})), tools=list(tools))


def test_functions_of_a_toolset_are_tools_with_its_prefix_and_filter() -> None:
    toolset: Any = FunctionToolset([add, drop])
    filtered = toolset.filtered(lambda _, tool: tool.name != "drop").prefixed("math")
    agent = desk(CombinedToolset([filtered]))
    assert list(agent.definition.tools) == ["math_add"]
    outcome = completed(agent.execute_sync("go"))
    assert [part.content for part in results(outcome.state)] == [3]


def test_one_that_needs_approval_asks() -> None:
    toolset: Any = FunctionToolset()
    toolset.add_function(drop, requires_approval=True)
    (tool,) = desk(toolset).definition.tools.values()
    assert tool.gate is not None


def with_context(ctx: RunContext[None], a: int) -> int:
    """Need an agent."""
    return a


@pytest.mark.parametrize(
    ("toolset", "error"),
    [
        (FunctionToolset([with_context]), "takes the RunContext"),
        (ExternalToolset([]), "needs an agent of Pydantic AI"),
        (FunctionToolset([add]).filtered(lambda ctx, _: ctx.run_step > 0), "run_step"),
    ],
)
def test_one_that_needs_an_agent_of_pydantic_ai_is_refused(toolset: Any, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        desk(toolset)

"""Toolsets of Pydantic AI in `Agent(tools=[...])` (M8)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import (
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    PrefixedToolset,
)

from tests.support.agents import by_turn, completed, interrupted, results
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
    """M8."""
    toolset: Any = FunctionToolset([add, drop])
    filtered = toolset.filtered(lambda _, tool: tool.name != "drop").prefixed("math")
    agent = desk(CombinedToolset([filtered]))
    assert list(agent.definition.tools) == ["math_add"]
    outcome = completed(agent.execute_sync("go"))
    assert [part.content for part in results(outcome.state)] == [3]


def test_one_that_needs_approval_asks() -> None:
    """M8."""
    toolset: Any = FunctionToolset()
    toolset.add_function(drop, requires_approval=True)
    (tool,) = desk(toolset).definition.tools.values()
    assert tool.gate is not None


def test_tools_of_a_renamed_toolset_have_the_new_names() -> None:
    toolset: Any = FunctionToolset([add, drop])
    agent = desk(toolset.renamed({"plus": "add"}).prefixed("math"))
    assert list(agent.definition.tools) == ["math_plus", "math_drop"]
    taken = toolset.renamed({"drop": "add"})
    with pytest.raises(UsageError, match="two tools named 'drop'"):
        desk(taken)


def test_a_toolset_with_approval_asks_about_the_calls_that_it_names() -> None:
    toolset: Any = FunctionToolset([add])
    always = desk(toolset.prefixed("math").approval_required())
    (request,) = interrupted(always.execute_sync("go")).requests
    assert request.tool_name == "math_add"

    def asks(_: Any, tool: Any, arguments: dict[str, int]) -> bool:
        return tool.name == "math_add" and arguments["a"] > 1

    some = desk(toolset.prefixed("math").approval_required(asks))
    completed(some.execute_sync("go"))
    large = Agent(
        "desk", by_turn(call("math_add", {"a": 2, "b": 2})), tools=[*some.definition.tools.values()]
    )
    assert len(interrupted(large.execute_sync("go")).requests) == 1


def test_approval_that_needs_the_context_is_always_asked_for() -> None:
    toolset: Any = FunctionToolset([add])
    asks = toolset.prefixed("math").approval_required(lambda ctx, *_: ctx.deps.is_strict)
    assert len(interrupted(desk(asks).execute_sync("go")).requests) == 1


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "maximum": 5}},
    "required": ["a", "b"],
}


async def add_later(**given: int) -> int:
    return given["a"] + given["b"]


@pytest.mark.parametrize("function", [add, add_later])
def test_a_tool_of_pydantic_ai_that_has_a_schema_is_a_tool_of_that_schema(function: Any) -> None:
    made = PydanticTool.from_schema(function, "math_add", "Add.", SCHEMA)
    calls = [call("math_add", {"a": 1, "b": 9}), call("math_add", {"a": 1, "b": 2})]
    agent = Agent("desk", by_turn(*calls), tools=[made])
    assert agent.definition.tools["math_add"].parameters == SCHEMA
    refused, added = results(completed(agent.execute_sync("go")).state)
    assert "b: 9 is greater than the maximum of 5" in str(refused.content)
    assert added.content == 3


def test_a_tool_of_pydantic_ai_is_a_tool() -> None:
    made = PydanticTool(add, name="math_add", requires_approval=True)
    assert len(interrupted(desk(made).execute_sync("go")).requests) == 1


def test_the_limit_of_a_toolset_is_that_of_its_tools() -> None:
    toolset: Any = FunctionToolset([add, PydanticTool(drop, timeout=1)], timeout=3)
    tools = desk(toolset).definition.tools
    assert {name: tool.timeout for name, tool in tools.items()} == {"add": 3, "drop": 1}


class Audited(FunctionToolset[None]):
    async def call_tool(self, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
        return await super().call_tool(name, tool_args, ctx, tool)


class Audits(PrefixedToolset[None]):
    async def call_tool(self, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
        return await super().call_tool(name, tool_args, ctx, tool)


@pytest.mark.parametrize(
    ("toolset", "error"),
    [
        (FunctionToolset([add], instructions="Never drop."), "instructions"),
        (Audited([add]), r"call_tool\(\) of its own"),
        (Audits(FunctionToolset([add]), "math"), r"call_tool\(\) of its own"),
        (Audited([add]).prefixed("math"), r"call_tool\(\) of its own"),
    ],
)
def test_what_a_toolset_does_beyond_its_functions_is_not_left_out_unsaid(
    toolset: Any, error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        desk(toolset)


def with_context(ctx: RunContext[None], a: int) -> int:
    """Need an agent."""
    return a


@pytest.mark.parametrize(
    ("toolset", "error"),
    [
        (FunctionToolset([with_context]), "takes the RunContext"),
        (PydanticTool(with_context), "takes the RunContext"),
        (PydanticTool(add, args_validator=lambda ctx, a, b: None), "takes the RunContext"),
        (PydanticTool.from_schema(add, "add", "Add.", {"type": "list"}), "no JSON schema"),
        (ExternalToolset([]), "needs an agent of Pydantic AI"),
        (FunctionToolset([add]).filtered(lambda ctx, _: ctx.run_step > 0), "needs 'run_step' of"),
    ],
)
def test_one_that_needs_an_agent_of_pydantic_ai_is_refused(toolset: Any, error: str) -> None:
    """M8."""
    with pytest.raises(UsageError, match=error):
        desk(toolset)


def raises(_: Any, tool: Any) -> bool:
    raise KeyError(tool.name)


async def later(_: Any, tool: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (raises, r"function 'raises' of a FilteredToolset.* tool 'add', raised KeyError: 'add'"),
        (later, r"function 'later' of a FilteredToolset.* must be a plain function"),
        (lambda _, tool: tool.name, r"must be a plain function that returns True or False: 'add'"),
    ],
)
def test_a_filter_that_says_neither_yes_nor_no_is_named(function: Any, error: str) -> None:
    toolset: Any = FunctionToolset([add])
    with pytest.raises(UsageError, match=error):
        desk(toolset.filtered(function))

"""Tools of the OpenAI Agents SDK as tools (M12)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent as TheirAgent
from agents import (
    FunctionTool,
    RunContextWrapper,
    ToolOutputImage,
    WebSearchTool,
    function_tool,
    tool_input_guardrail,
    tool_namespace,
    tool_output_guardrail,
)
from agents.tool_context import ToolContext as TheirContext
from pydantic_ai.messages import BinaryContent

from tests.support.agents import completed, contents, desk, interrupted
from understudy import Agent, UsageError, approve, call, tool

pytestmark = [pytest.mark.others, pytest.mark.filterwarnings("ignore")]


@function_tool
def refund(order_id: str, amount: float = 20) -> str:
    """Pay money back.

    Args:
        order_id: the number on the invoice.
    """
    return f"refunded {amount} for {order_id}"


def told(made: Any, *arguments: dict[str, Any], deps: Any = None) -> list[tuple[str, Any]]:
    """How calls with these arguments end, and the text for the model."""
    calls = [call(made.name, each) for each in arguments]
    return contents(completed(desk(calls, tools=[made]).execute_sync("go", deps=deps)).state)


def test_it_is_called_with_arguments_that_the_sdk_takes() -> None:
    made = tool.from_openai_agents(refund, idempotent=True)
    assert (made.effect, made.definition.strict) == ("idempotent", True)
    described = made.parameters["properties"]["order_id"]["description"]
    assert described == "the number on the invoice."
    ended = told(made, {"order_id": "17"}, {"order_id": "17", "amount": 5}, {"order_id": 17})
    assert ended[:2] == [("success", "refunded 20 for 17"), ("success", "refunded 5.0 for 17")]
    assert ended[2][0] == "failed"
    assert "order_id: 17 is not of type 'string'" in ended[2][1]
    assert Agent("desk", "test", tools=[refund]).definition.tools["refund"].effect is None


def test_a_function_that_takes_a_context_gets_the_deps_of_the_run() -> None:
    @function_tool
    def look(ctx: TheirContext[Any], order_id: str) -> str:
        """Look."""
        return f"{ctx.context} {ctx.tool_call_id} {ctx.tool_arguments} {ctx.usage.requests}"

    made = tool.from_openai_agents(look)
    said = 'ann call_0_0 {"order_id": "17"} 1'
    assert told(made, {"order_id": "17"}, deps="ann") == [("success", said)]


@pytest.mark.parametrize("amount", [5, 500])
def test_approval_that_it_needs_is_a_gate(amount: int) -> None:
    async def is_much(ctx: RunContextWrapper[Any], arguments: dict[str, Any], _: str) -> bool:
        return bool(arguments["amount"] > ctx.context)

    @function_tool(needs_approval=is_much)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent = desk(call("pay", {"amount": amount}), tools=[pay])
    outcome = agent.execute_sync("go", deps=100)
    if amount > 100:
        outcome = agent.resume_sync(interrupted(outcome).state, approve(), deps=100)
    assert contents(completed(outcome).state) == [("success", f"paid {amount}")]
    always = tool.from_openai_agents(dataclasses.replace(refund, needs_approval=True))
    assert always.gate is not None


def words(ctx: RunContextWrapper[Any], error: Exception) -> str:
    return f"Sorry: {error}"


@pytest.mark.parametrize("options", [{}, {"failure_error_function": words}])
def test_an_error_that_leaves_open_what_happened_is_a_doubt_and_no_text(
    options: dict[str, Any],
) -> None:
    async def pay() -> str:
        """Pay."""
        raise TimeoutError("the bank is gone")

    made = tool.from_openai_agents(function_tool(pay, **options))
    assert told(made, {})[0][0] == "interrupted"


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, "ValueError: no order"), ({"failure_error_function": words}, "Sorry: no order")],
)
def test_any_other_error_is_told_in_the_words_of_the_tool(
    options: dict[str, Any], said: str
) -> None:
    def pay() -> str:
        """Pay."""
        raise ValueError("no order")

    assert told(tool.from_openai_agents(function_tool(pay, **options)), {}) == [("failed", said)]


def test_a_tool_without_a_function_of_its_own_and_a_picture_are_carried_over() -> None:
    async def invoke(ctx: TheirContext[Any], arguments: str) -> Any:
        return ToolOutputImage(image_url="data:image/png;base64,aGk=")

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = tool.from_openai_agents(FunctionTool("draw", "Draw.", schema, invoke))
    ((how, content),) = told(made, {"a": 1})
    assert how == "success"
    assert isinstance(content, BinaryContent)


def named(**options: Any) -> FunctionTool:
    async def pay() -> str:
        """Pay."""
        return "paid"

    return function_tool(pay, **options)


def test_a_limit_of_time_is_that_of_the_call() -> None:
    assert tool.from_openai_agents(named(timeout=3)).timeout == 3


def lying() -> FunctionTool:
    schema = {"type": "object", "properties": {"words": {"type": "string"}}}
    return dataclasses.replace(refund, params_json_schema=schema)


def wrong() -> FunctionTool:
    schema = {"type": "object", "properties": {"order_id": {"type": "text"}}}
    return dataclasses.replace(refund, params_json_schema=schema, strict_json_schema=False)


def guards(kind: Callable[..., Any]) -> list[Any]:
    return [kind(lambda data: None)]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (named(is_enabled=False), "has is_enabled=False"),
        (named(is_enabled=lambda ctx, agent: True), "has a function is_enabled"),
        (named(tool_input_guardrails=guards(tool_input_guardrail)), "has tool_input_guardrails"),
        (named(tool_output_guardrails=guards(tool_output_guardrail)), "has tool_output_guardrails"),
        (named(defer_loading=True), "has defer_loading=True"),
        (named(timeout=1, timeout_behavior="raise_exception"), "'raise_exception'"),
        (named(timeout=1, timeout_error_function=words), "a timeout_error_function"),
        (named(custom_data_extractor=lambda data: {}), "a custom_data_extractor"),
        (named(allowed_callers=["programmatic"]), "allowed_callers"),
        (tool_namespace(name="shop", description="d", tools=[refund])[0], "has a namespace"),
        (
            TheirAgent(name="x").as_tool(tool_name="x", tool_description="d"),
            r"an agent inside \(Agent.as_tool\)",
        ),
        (lying(), "names the argument 'words', which its function does not take"),
        (wrong(), "its schema is no JSON schema"),
        (WebSearchTool(), "WebSearchTool is run by OpenAI"),
        (3, "takes a FunctionTool"),
    ],
)
def test_what_cannot_be_carried_over_and_a_schema_that_lies_are_named(
    given: Any, error: str
) -> None:
    """M12."""
    with pytest.raises(UsageError, match=error):
        tool.from_openai_agents(given)

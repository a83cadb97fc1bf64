"""Tools by their definitions for OpenAI or Anthropic, and how tools of libraries are known
(M12)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.support.agents import completed, contents, desk, interrupted
from understudy import Agent, ToolContext, UsageError, approve, call, tool

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["order_id", "amount"],
}
NAMED: dict[str, Any] = {"name": "refund", "description": "Pay money back."}
CHAT = {"type": "function", "function": {**NAMED, "parameters": PARAMETERS}}
RESPONSES = {"type": "function", **NAMED, "parameters": PARAMETERS, "strict": True}
ANTHROPIC = {**NAMED, "input_schema": PARAMETERS}
ARGUMENTS = {"order_id": "17", "amount": 20}


def refund(order_id: str, amount: float, note: str = "") -> str:
    return f"refunded {amount} for {order_id}{note}"


@pytest.mark.parametrize("definition", [CHAT, RESPONSES, ANTHROPIC])
def test_each_form_of_a_definition_makes_the_same_tool(definition: dict[str, Any]) -> None:
    """M12."""
    made = tool.from_definition(definition, refund, idempotent=True, ask=True)
    told = (made.name, made.description, made.parameters, made.effect)
    assert told == ("refund", "Pay money back.", PARAMETERS, "idempotent")
    assert made.definition.strict is (True if definition is RESPONSES else None)
    agent = desk(call("refund", ARGUMENTS), tools=[made])
    first = interrupted(agent.execute_sync("go"))
    outcome = completed(agent.resume_sync(first.state, approve()))
    assert contents(outcome.state) == [("success", "refunded 20 for 17")]


def test_arguments_that_the_schema_or_the_function_does_not_take_are_told_to_the_model() -> None:
    calls = [
        call("refund", {"order_id": 17, "amount": 20}),
        call("refund", {**ARGUMENTS, "colour": "red"}),
        call("refund", {**ARGUMENTS, "note": "!"}),
    ]
    agent = desk(calls, tools=[tool.from_definition(ANTHROPIC, refund)])
    said = [text for _, text in contents(completed(agent.execute_sync("go")).state)]
    assert "order_id: 17 is not of type 'string'" in said[0]
    assert "colour: there is no such argument; there are: order_id, amount" in said[1]
    assert "note: there is no such argument" in said[2]


def test_a_function_may_take_the_context_and_any_arguments() -> None:
    async def pay(ctx: ToolContext, **arguments: Any) -> str:
        return f"{ctx.tool_name} {sorted(arguments)}"

    agent = desk(call("refund", {**ARGUMENTS, "more": 1}), tools=[tool.from_definition(CHAT, pay)])
    outcome = completed(agent.execute_sync("go"))
    assert contents(outcome.state) == [("success", "refund ['amount', 'more', 'order_id']")]


def of(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": "refund", "input_schema": schema}


def one(order_id: str) -> None: ...


def positional(order_id: str, /) -> None: ...


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("definition", "function", "error"),
    [
        (of({"order_id": TEXT, "to": TEXT}, "order_id"), one, "names the argument 'to', which its"),
        (of({}), one, "needs 'order_id', which its schema does not name"),
        (of({"order_id": TEXT}), one, "needs 'order_id', which its schema does not require"),
        (of({"order_id": {"type": "integer"}}, "order_id"), one, "'order_id' is of the type 'int"),
        (of({"order_id": TEXT}, "order_id"), positional, "names the argument 'order_id', which"),
        (of({"order_id": {"type": "text"}}, "order_id"), one, "its schema is no JSON schema"),
        ({"name": "refund", "input_schema": {"type": "array"}}, one, "the schema of an object"),
        ({"name": "refund", "input_schema": 3}, one, "must be a JSON schema as a dict, got 3"),
        ({**ANTHROPIC, "cache_control": {}}, refund, "has the key 'cache_control', which is not"),
        ({**RESPONSES, "defer_loading": True}, refund, "has the key 'defer_loading'"),
        ({**ANTHROPIC, "strict": "yes"}, refund, "`strict` must be True or False"),
        (
            {"type": "web_search_20250305", "name": "search"},
            refund,
            "so the provider runs its tool: give",
        ),
        ({"type": "custom", "name": "refund"}, refund, "the type 'custom' of OpenAI"),
        ({"input_schema": PARAMETERS}, refund, "must have a `name`"),
        ("refund", refund, "takes the dict that describes a tool to OpenAI or Anthropic"),
        (ANTHROPIC, None, "give the function that it calls, got None"),
    ],
)
def test_a_definition_that_lies_or_says_more_than_is_carried_over_is_named(
    definition: Any, function: Callable[..., Any], error: str
) -> None:
    """M12."""
    with pytest.raises(UsageError, match=error):
        tool.from_definition(definition, function)


def test_an_option_that_there_is_not_is_named() -> None:
    wrong: Any = {"readonly": True}
    with pytest.raises(UsageError, match="'refund' has no option 'readonly'; options are"):
        tool.from_definition(ANTHROPIC, refund, **wrong)


def test_what_is_of_no_library_is_no_tool_of_it() -> None:
    for make in (tool.from_langchain, tool.from_openai_agents):
        with pytest.raises(UsageError, match=r"takes a .*, got <function refund"):
            make(refund)


def test_a_package_agents_of_an_application_is_not_the_agents_sdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class FunctionTool:
        """Of the application: an object that is called."""

        __name__ = "look"

        def __call__(self, order_id: str) -> str:
            return f"order {order_id}"

    FunctionTool.__module__, FunctionTool.__qualname__ = "agents.tool", "FunctionTool"
    monkeypatch.setitem(sys.modules, "agents", ModuleType("agents"))
    agent = Agent("desk", "test", tools=[FunctionTool()])
    assert list(agent.definition.tools) == ["look"]

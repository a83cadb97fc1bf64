"""`Tool.from_schema`: a tool that is described by a JSON schema (M1)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tenacity import AsyncRetrying, stop_after_attempt, wait_none

from tests.support.agents import Stage, completed, interrupted, results
from understudy import (
    Agent,
    DecisionError,
    ScriptedModel,
    Tool,
    ToolContext,
    UsageError,
    approve,
    call,
    edit,
)
from understudy.tools import InvalidArguments

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "minLength": 2},
        "count": {"type": "integer", "minimum": 1},
        "to": {"$ref": "#/$defs/address"},
    },
    "required": ["item"],
    "additionalProperties": False,
    "$defs": {"address": {"type": "object", "required": ["street"]}},
}


def ordering(did: list[Any], **options: Any) -> Tool:
    async def order(arguments: dict[str, Any]) -> str:
        did.append(arguments)
        return f"ordered {arguments['item']}"

    return Tool.from_schema("order", "Order something.", ORDER, order, **options)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def test_the_model_is_told_the_schema_and_the_call_gets_the_arguments() -> None:
    did: list[Any] = []
    model = ScriptedModel([call("order", {"item": "kettle", "count": 2}), "done"])
    outcome = completed(Agent("a", model, tools=[ordering(did)]).execute_sync("go"))
    assert did == [{"item": "kettle", "count": 2}]
    assert [part.content for part in results(outcome.state)] == ["ordered kettle"]
    told = ordering(did).definition
    assert model.requests[0].tools == ("order",)
    assert (told.name, told.description) == ("order", "Order something.")
    assert told.parameters_json_schema == ORDER


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"item": "k", "count": 0}, "item: 'k' is too short"),
        ({"item": "k", "count": 0}, "count: 0 is less than the minimum of 1"),
        ({}, "item: it is missing"),
        ({"item": "kettle", "colour": "red"}, "('colour' was unexpected)"),
        ({"item": "kettle", "to": {}}, "to.street: it is missing"),
        ({"item": "kettle", "count": "two"}, "count: 'two' is not of type 'integer'"),
        ('{"item": NaN}', "The arguments are no JSON"),
        ('["kettle"]', "The arguments must be an object"),
        ('{"item": "kettle"', "The arguments are no JSON"),
        ('{"item": "\ud800"}', "The arguments are no JSON"),
    ],
)
def test_arguments_that_do_not_fit_name_the_place_and_nobody_is_asked(
    arguments: Any, told: str
) -> None:
    """M1."""
    did: list[Any] = []
    model = ScriptedModel([call("order", arguments), "done"])
    agent = Agent("a", model, tools=[ordering(did, ask=True)])
    outcome = completed(agent.execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert told in str(part.content)
    assert did == []


def test_a_person_edits_the_arguments_by_the_same_schema(stage: Stage) -> None:
    """M1."""
    did: list[Any] = []
    stage.cast(call("order", {"item": "kettle"}), tools=[ordering(did, ask=True)])
    outcome = interrupted(stage.start())
    (request,) = outcome.requests
    assert request.arguments == {"item": "kettle"}
    with pytest.raises(DecisionError, match="count"):
        stage.resume(outcome, {request.id: edit({"item": "pot", "count": 0})})
    completed(stage.resume(outcome, {request.id: edit({"item": "pot", "count": 3})}))
    assert did == [{"item": "pot", "count": 3}]


def test_an_approval_holds_for_the_schema_that_was_shown(stage: Stage) -> None:
    did: list[Any] = []
    stage.cast(call("order", {"item": "kettle"}), tools=[ordering(did, ask=True)])
    outcome = interrupted(stage.start())
    (request,) = outcome.requests
    changed = {**ORDER, "properties": {**ORDER["properties"], "gift": {"type": "boolean"}}}

    def order(arguments: dict[str, Any]) -> str:
        did.append(arguments)
        return "ordered"

    other = Tool.from_schema("order", "Order something.", changed, order, ask=True)
    assert other.fingerprint != ordering(did).fingerprint
    stage.elsewhere = True
    stage.cast(call("order", {"item": "kettle"}), tools=[other])
    again = interrupted(stage.resume(outcome, {request.id: approve()}))
    assert did == []
    assert again.requests[0].id != request.id


def test_a_call_with_a_context_knows_its_key_and_gets_its_answer() -> None:
    def order(ctx: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"key": ctx.call_key, "deps": ctx.deps, **arguments}

    tool = Tool.from_schema("order", "", ORDER, order)
    model = ScriptedModel([call("order", {"item": "kettle"}), "done"])
    outcome = Agent("a", model, tools=[tool]).execute_sync("go", deps="bank")
    told: Any = results(completed(outcome).state)[0].content
    assert told["key"]
    assert (told["deps"], told["item"]) == ("bank", "kettle")


def test_a_further_attempt_gets_the_arguments_of_the_first() -> None:
    seen: list[Any] = []

    def order(arguments: dict[str, Any]) -> str:
        seen.append(json.dumps(arguments))
        arguments["to"]["street"] = "changed"
        if len(seen) < 2:
            raise ConnectionError("away")
        return "ordered"

    retry = AsyncRetrying(stop=stop_after_attempt(3), wait=wait_none())
    tool = Tool.from_schema("order", "", ORDER, order, idempotent=True, retry=retry)
    model = ScriptedModel([call("order", {"item": "kettle", "to": {"street": "Long"}}), "done"])
    completed(Agent("a", model, tools=[tool]).execute_sync("go"))
    assert seen == [seen[0]] * 2
    assert json.loads(seen[0])["to"] == {"street": "Long"}


def test_the_options_are_those_of_any_tool() -> None:
    tool = ordering(
        [],
        ask=["approve"],
        idempotent=True,
        timeout=3,
        sequential=True,
        on_unknown="ask",
        version="2",
        display_text="Ordering",
    )
    assert tool.gate is not None
    assert tool.gate.allowed == ("approve",)
    assert (tool.effect == "idempotent", tool.sequential, tool.definition.sequential) == (True,) * 3
    assert (tool.timeout, tool.on_unknown, tool.display_text) == (3, "ask", "Ordering")
    assert tool.fingerprint != ordering([]).fingerprint


def one(arguments: dict[str, Any]) -> str:
    return "done"


def none() -> str:
    return "done"


def three(ctx: ToolContext, arguments: dict[str, Any], more: int) -> str:
    return "done"


@pytest.mark.parametrize(
    ("schema", "function", "error"),
    [
        ({"type": "string"}, one, "must be the schema of an object"),
        ({}, one, "must be the schema of an object"),
        ("object", one, "must be a JSON schema as a dict"),
        ({"type": "objekt"}, one, "no JSON schema: type"),
        ({"type": "object", "properties": {"a": {"minimum": "x"}}}, one, "properties.a.minimum"),
        ({"type": "object", "properties": {"a": {"default": float("nan")}}}, one, "NaN"),
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}},
            one,
            "nothing is fetched",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, one, "does not hold"),
        ({"type": "object", "description": "x" * 200_000}, one, "200,0.. bytes|at most 200,000"),
        ({"type": "object", "properties": {"a": nested(101)}}, one, "100 levels"),
        ({"type": "object", "properties": {"a": {"title": "\ud800"}}}, one, "Unicode|JSON"),
        ({"type": "object"}, none, "call\\(arguments\\) or call\\(ctx, arguments\\)"),
        ({"type": "object"}, three, "call\\(arguments\\) or call\\(ctx, arguments\\)"),
        ({"type": "object"}, "order", "must be a function"),
    ],
)
def test_what_is_no_schema_of_arguments_is_refused_when_the_tool_is_made(
    schema: Any, function: Callable[..., Any], error: str
) -> None:
    with pytest.raises(UsageError, match=error):
        Tool.from_schema("order", "", schema, function)


def test_a_schema_as_deep_as_it_may_be_checks_arguments() -> None:
    tool = Tool.from_schema("a", "", {"type": "object", "properties": {"a": nested(60)}}, one)
    assert tool.validate({"b": 1}) == {"b": 1}
    with pytest.raises(InvalidArguments):
        tool.validate({"a": 1})


def test_a_change_of_the_given_schema_does_not_reach_the_tool() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    tool = Tool.from_schema("a", "", schema, one)
    schema["properties"]["a"]["type"] = "integer"
    given: Mapping[str, Any] = {"a": "text"}
    assert tool.validate(given) == given


@pytest.mark.slow
def test_who_has_no_such_tool_does_not_load_jsonschema() -> None:
    code = (
        "import sys; from understudy import Agent, ScriptedModel, tool\n"
        "@tool\ndef a() -> str:\n    'A.'\n    return 'a'\n"
        "Agent('x', ScriptedModel(['hi']), tools=[a]).execute_sync('go')\n"
        "assert 'jsonschema' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

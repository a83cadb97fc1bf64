"""J16: a number that JSON lacks, and data that no client encodes, are found where they enter."""

from __future__ import annotations

import json
import math
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import Field
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.native_tools import WebSearchTool

from tests.support.agents import calls_made, completed, reloaded, results
from tests.support.wire.providers import PROVIDERS, Provider, Way, run
from tests.support.wire.script import Reply, wire_call
from tests.support.wire.server import WireServer
from understudy import Agent, AgentState, Failed, MiddlewareError, ScriptedModel, UsageError, call
from understudy.middleware import Middleware, ModelInput
from understudy.tools import Tool

NO_JSON = {
    "NaN": '{"amount": NaN}',
    "too large": '{"amount": 1e999}',
    "infinity": '{"amount": -Infinity}',
    "inside": '{"amount": 1, "more": {"of": [1, NaN]}}',
    "deep": '{"amount": 1, "more": ' + "[" * 150 + "]" * 150 + "}",
    "deeper than readers go": '{"amount": 1, "more": ' + "[" * 300 + "]" * 300 + "}",
}


def read(arguments: str) -> None:
    """Read as a strict reader of JSON does."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} was sent")

    json.dumps(json.loads(arguments, parse_constant=refuse), allow_nan=False)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(each, id=name, marks=() if name in {"NaN", "deep"} else pytest.mark.slow)
        for name, each in NO_JSON.items()
    ],
)
async def test_a_call_with_arguments_that_cannot_be_sent_goes_back_and_ends_no_conversation(
    provider: Provider, way: Way, arguments: str
) -> None:
    paid: list[float] = []

    def pay(amount: float, more: Any = None) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    called = (wire_call("pay", arguments, id="call_a"),)
    with WireServer([Reply(calls=called), Reply(text="I cannot.")]) as server:
        told = await run(way, provider.model(server), tools=[pay])
        read(json.dumps(server.requests))
    assert completed(told.outcome).text == "I cannot."
    assert paid == []
    (part,) = results(told.outcome.state)
    assert part.outcome == "failed"
    assert "The arguments are" in str(part.content)
    (made,) = calls_made(told.outcome.state)
    read(made.args_as_json_str())

    for later in PROVIDERS:
        with WireServer([Reply(text="Yes.")]) as server:
            state = reloaded(told.outcome.state)
            again = await run(way, later.model(server), tools=[pay], state=state)
            read(json.dumps(server.requests))
        assert completed(again.outcome).text == "Yes."


async def test_arguments_have_one_shape_and_one_meaning_whatever_the_provider_sends(
    provider: Provider, way: Way
) -> None:
    days: list[date] = []

    def book(day: Annotated[date, Field(strict=True)]) -> str:
        """Book a day."""
        days.append(day)
        return "booked"

    called = (wire_call("book", '{ "day" : "2026-11-29"}', id="call_a"),)
    with WireServer([Reply(calls=called), Reply(text="Done.")]) as server:
        told = await run(way, provider.model(server), tools=[book])
    assert days == [date(2026, 11, 29)]
    (made,) = calls_made(told.outcome.state)
    assert made.args == {"day": "2026-11-29"}


async def test_a_call_without_arguments_has_none_in_the_same_shape(
    provider: Provider, way: Way
) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    with WireServer([Reply(calls=(wire_call("look", "", id="a"),)), Reply(text="So.")]) as server:
        told = await run(way, provider.model(server), tools=[look])
    assert [made.args for made in calls_made(told.outcome.state)] == [{}]
    assert [part.content for part in results(told.outcome.state)] == ["seen"]


async def test_an_imported_call_with_such_arguments_is_sent(provider: Provider) -> None:
    for arguments in NO_JSON.values():
        reply = ModelResponse(parts=[ToolCallPart("pay", arguments, tool_call_id="a")])
        history: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Pay")]), reply]
        with WireServer([Reply(text="Yes.")]) as server:
            state = AgentState(messages=history)
            told = await run("execute", provider.model(server), state=state)
            read(json.dumps(server.requests))
        assert completed(told.outcome).text == "Yes."


def endless(limit: float = math.inf) -> str:
    """Search."""
    return ""


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"tools": [endless]}, "Tool 'endless'"),
        ({"model_settings": {"temperature": math.nan}}, "`model_settings`"),
        ({"model_settings": {"extra_body": {"deep": [math.inf]}}}, "`model_settings`"),
        ({"model": TestModel(settings={"top_p": math.nan})}, "`settings` of TestModel"),
        (
            {"native_tools": [WebSearchTool(user_location={"city": math.nan})]},  # type: ignore[arg-type]
            "`native_tools`",
        ),
    ],
    ids=["default", "settings", "inside", "of a model", "native tool"],
)
def test_an_agent_that_could_not_be_sent_is_refused_when_it_is_made(
    options: dict[str, Any], culprit: str
) -> None:
    with pytest.raises(UsageError, match=f"{culprit}.* holds NaN or an infinity"):
        Agent("a", **{"model": ScriptedModel([]), **options})


async def test_settings_that_a_hook_makes_so_fail_the_run_unpaid_and_name_it() -> None:
    class Warms(Middleware):
        async def before_model(self, run: Any, input: ModelInput) -> ModelInput:
            return input.replace(settings={"temperature": math.nan})

    model = ScriptedModel(["never"])
    outcome = await Agent("a", model, middleware=[Warms()]).execute("Hi")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert "'Warms' raised UsageError: what it returned as settings holds NaN" in str(outcome.error)
    assert model.requests == []


async def test_a_tool_that_takes_any_object_does_not_run_with_what_is_no_json() -> None:
    ran: list[Any] = []

    def take(arguments: dict[str, Any]) -> str:
        ran.append(arguments)
        return "taken"

    anything = Tool.from_schema(
        name="take", description="Take all.", parameters={"type": "object"}, call=take
    )
    replies: list[Any] = [
        call("take", '{"a": NaN}'),
        call("take", {"INVALID_JSON": '{"a": 1}'}),
        "No.",
    ]
    outcome = completed(await Agent("a", ScriptedModel(replies), tools=[anything]).execute("Hi"))
    assert ran == []
    assert [part.outcome for part in results(outcome.state)] == ["failed", "failed"]

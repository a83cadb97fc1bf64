"""How each provider is asked for a value of a type (R10), and for the call of a tool (U8)."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel, create_model
from pydantic_ai.models import Model
from pydantic_ai.native_tools import WebSearchTool

from tests.support.agents import assert_valid_history, completed
from tests.support.wire.providers import ANTHROPIC, GOOGLE, Provider, Way, run
from tests.support.wire.script import Reply, wire_call
from tests.support.wire.server import WireServer
from understudy import Agent, Failed, Outcome, UsageError, tool
from understudy.events import Event
from understudy.models.requirements import OutputMode

MODES: tuple[OutputMode, ...] = get_args(OutputMode)
NEWER = "gemini-3-pro-preview"
"""A model of Google's that takes tools beside a schema of the answer."""
GIVEN = {"stars": 4, "why": "it is red"}


class Review(BaseModel):
    stars: int
    why: str = ""


@tool
def lookup(order: str) -> str:
    """Find an order."""
    return f"order {order} is a kettle"


@tool
def save(stars: int) -> str:
    """Save a review."""
    return "saved"


LOOKUP = wire_call("lookup", {"order": "17"}, id="call_a")


def answer(mode: OutputMode, given: dict[str, Any], *, id: str = "call_b") -> Reply:
    if mode == "tool":
        return Reply(calls=(wire_call("final_result", given, id=id),))
    return Reply(text=json.dumps(given))


def asked_by_api(request: dict[str, Any]) -> Any:
    """The schema that the provider holds the answer to."""
    return (
        request.get("response_format", {}).get("json_schema")  # OpenAI's chat completions
        or request.get("text", {}).get("format", {}).get("schema")  # its responses
        or (request.get("output_config") or {}).get("format")  # Anthropic
        or request.get("output_format")
        or request.get("generationConfig", {}).get("responseJsonSchema")  # Google
    )


def names(request: dict[str, Any]) -> set[str]:
    """Of the tools that are sent."""
    text = json.dumps(request.get("tools", []))
    return {name for name in ("lookup", "save", "final_result") if f'"{name}"' in text}


@pytest.mark.parametrize("mode", MODES)
async def test_each_provider_is_asked_in_its_own_way(
    provider: Provider, way: Way, mode: OutputMode
) -> None:
    """R10: and the value is the same."""
    with WireServer([Reply(calls=(LOOKUP,)), answer(mode, GIVEN)]) as server:
        model = provider.model(server, NEWER if provider is GOOGLE else None)
        told = await run(way, model, tools=[lookup], output_type=Review, output_mode=mode)
    assert completed(told.outcome).output == Review(stars=4, why="it is red")
    assert_valid_history(told.outcome.state)
    for request in server.requests:
        assert names(request) == ({"lookup", "final_result"} if mode == "tool" else {"lookup"})
        assert ("stars" in json.dumps(asked_by_api(request))) is (mode == "native")
        keys = ("messages", "input", "instructions", "system", "systemInstruction")
        prompt = json.dumps([request.get(key) for key in keys])
        assert ("that's compatible with this schema" in prompt) is (mode == "prompted")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"output_type": Review, "output_mode": "native"}, "output_mode='native' or tools"),
        ({"native_tools": [WebSearchTool()]}, "native_tools or tools"),
    ],
)
def test_what_googles_older_models_do_not_take_beside_tools_is_refused(
    options: dict[str, Any], named: str
) -> None:
    """R10, R11: when the agent is made."""
    with WireServer([]) as server:
        with pytest.raises(UsageError, match=f"'gemini-2.5-flash' takes {named}, not both"):
            Agent("a", GOOGLE.model(server), tools=[lookup], **options)
        Agent("a", GOOGLE.model(server), **options)
        Agent("a", GOOGLE.model(server, NEWER), tools=[lookup], **options)


def test_what_only_a_class_of_models_knows_is_asked_of_it() -> None:
    """R10, R11: when the agent is made."""
    fields: Any = {f"field_{n}": (int | None, None) for n in range(40)}
    wide = create_model("Wide", **fields)
    with WireServer([]) as server:
        Agent("a", ANTHROPIC.model(server), output_type=wide, output_mode="tool")
        with pytest.raises(UsageError, match=r"model 'claude.*' cannot be asked so"):
            Agent("a", ANTHROPIC.model(server), output_type=wide, output_mode="native")


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_that_does_not_fit_is_told_and_given_again(
    provider: Provider, mode: OutputMode
) -> None:
    wrong = answer(mode, {"stars": "many"}, id="call_a")
    with WireServer([wrong, answer(mode, GIVEN)]) as server:
        model = provider.model(server)
        told = await run("execute", model, output_type=Review, output_mode=mode)
    assert completed(told.outcome).output == Review(stars=4, why="it is red")
    assert "valid integer" in json.dumps(server.conversations[1])
    assert_valid_history(told.outcome.state)


async def test_the_last_answer_of_a_run_may_be_the_call_of_the_output_tool_alone(
    provider: Provider, way: Way
) -> None:
    """R1: all tools are sent; that one is to be called."""
    with WireServer([Reply(calls=(LOOKUP,)), answer("tool", GIVEN)]) as server:
        told = await run(
            way,
            provider.model(server, settings={"thinking": False}),
            tools=[lookup],
            output_type=Review,
            output_mode="tool",
            max_runs=1,
            early_stopping="generate",
        )
    outcome = completed(told.outcome)
    assert (outcome.early_stopped, outcome.output) == (True, Review(stars=4, why="it is red"))
    assert "final_result" in names(server.requests[1])


# ----------------------------------------------------------------------------- forced

FORCED: dict[str, Any] = {
    "openai-chat": {"type": "function", "function": {"name": "save"}},
    "openai-responses": {"type": "function", "name": "save"},
    "anthropic": {"type": "tool", "name": "save"},
    "google": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["save"]}},
}


def choice(request: dict[str, Any]) -> Any:
    return request.get("tool_choice", request.get("toolConfig"))


async def test_an_until_tool_may_be_forced(provider: Provider, way: Way) -> None:
    """U8: all tools are sent, and this one is chosen."""
    call = wire_call("save", {"stars": 4}, id="call_a")
    thinks = {"thinking": False} if provider.name != "anthropic" else {}
    name = "claude-haiku-4-5-local" if provider.name == "anthropic" else None
    with WireServer([Reply(calls=(call,))]) as server:
        model = provider.model(server, name, settings=thinks)
        outcome = completed(await run_forced(way, model))
    assert outcome.tool_result is not None
    assert outcome.tool_result.value == "saved"
    (request,) = server.requests
    assert names(request) == {"lookup", "save"}
    assert choice(request) == FORCED[provider.name]


async def test_a_model_that_cannot_be_forced_while_it_thinks_says_so(way: Way) -> None:
    """U8: nothing is sent."""
    thinks = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}}
    with WireServer([]) as server:
        model = ANTHROPIC.model(server, "claude-haiku-4-5-local", settings=thinks)
        outcome = await run_forced(way, model)
    assert isinstance(outcome, Failed)
    assert "thinking" in outcome.explain()
    assert server.requests == []


async def run_forced(way: Way, model: Model) -> Outcome:
    agent = Agent("support", model, "Help.", tools=[lookup, save])
    listener = None if way == "execute" else list[Event]().append
    async with model:
        return await agent.execute("Hi", until_tool=save, force=True, on_event=listener)

"""An agent at each provider's real client, over HTTP and back."""

from __future__ import annotations

import json
from itertools import repeat

import pytest
from pydantic_ai.messages import ModelResponse, ThinkingPart

from tests.support.agents import completed, results
from tests.support.wire.providers import AT_ONCE, Provider, Way, run
from tests.support.wire.script import HttpError, Reply, Thinking, Tokens, wire_call
from tests.support.wire.server import WireServer
from understudy import Failed, ModelFailed, tool
from understudy.events import TextDelta

LOOKUP = wire_call("lookup", {"order": "17"}, id="call_a")


@tool
def lookup(order: str) -> str:
    """Find an order."""
    return f"order {order} is paid"


async def test_a_reply_comes_with_its_text_and_its_cost(provider: Provider, way: Way) -> None:
    script = [Reply(text=("Hel", "lo!"), tokens=Tokens(input=11, output=5))]
    with WireServer(script) as server:
        told = await run(way, provider.model(server))
    outcome = completed(told.outcome)
    assert outcome.text == "Hello!"
    assert (outcome.usage.requests, outcome.usage.input_tokens) == (1, 11)
    assert outcome.usage.output_tokens == 5
    deltas = [event.text for event in told.events if isinstance(event, TextDelta)]
    assert deltas == (["Hel", "lo!"] if way == "stream" else [])


async def test_a_call_is_made_and_its_result_is_sent_back(provider: Provider, way: Way) -> None:
    script = [Reply(text="So.", calls=(LOOKUP,)), Reply(text="It is paid.")]
    with WireServer(script) as server:
        told = await run(way, provider.model(server), tools=[lookup])
    assert completed(told.outcome).text == "It is paid."
    assert [part.content for part in results(told.outcome.state)] == ["order 17 is paid"]
    assert "order 17 is paid" in json.dumps(server.conversations[1])


async def test_several_calls_of_one_reply_are_all_made(provider: Provider, way: Way) -> None:
    calls = tuple(wire_call("lookup", {"order": str(n)}, id=f"call_{n}") for n in (1, 2, 3))
    with WireServer([Reply(calls=calls), Reply(text="All paid.")]) as server:
        told = await run(way, provider.model(server), tools=[lookup])
    assert completed(told.outcome).text == "All paid."
    contents = [part.content for part in results(told.outcome.state)]
    assert contents == [f"order {n} is paid" for n in (1, 2, 3)]


async def test_thinking_goes_back_with_its_signature(provider: Provider, way: Way) -> None:
    thinking = Thinking("They want order 17.")
    with WireServer([Reply(thinking=thinking, calls=(LOOKUP,)), Reply(text="Paid.")]) as server:
        told = await run(way, provider.model(server), tools=[lookup])
    assert completed(told.outcome).text == "Paid."
    reply = told.outcome.state.messages[1]
    assert isinstance(reply, ModelResponse)
    thoughts = [part.content for part in reply.parts if isinstance(part, ThinkingPart)]
    assert thoughts == [thinking.text]
    if provider.name != "openai-chat":  # it has no signature
        assert thinking.signature in json.dumps(server.conversations[1])


@pytest.mark.parametrize("status", [400, 529])
async def test_an_error_of_the_provider_is_a_failing_model(
    provider: Provider, way: Way, status: int
) -> None:
    error = HttpError(status=status, headers=AT_ONCE, message="not today")
    with WireServer(repeat(error)) as server:
        told = await run(way, provider.model(server))
    assert isinstance(told.outcome, Failed)
    assert isinstance(told.outcome.error, ModelFailed)
    assert "not today" in told.outcome.explain()

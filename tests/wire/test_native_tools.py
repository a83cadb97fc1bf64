"""A provider searches the web by itself: what it says of that is shown, kept, sent back (R11)."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, NativeToolCallPart, NativeToolReturnPart
from pydantic_ai.native_tools import WebSearchTool

from tests.support.agents import completed, interrupted, reloaded, results
from tests.support.loops import soon
from tests.support.places import Place
from tests.support.wire.providers import ANTHROPIC, GOOGLE, OPENAI_RESPONSES, Provider, Way
from tests.support.wire.script import Reply, Search, wire_call
from tests.support.wire.server import WireServer
from understudy import Agent, AgentState, Runtime, approve, tool
from understudy.events import Event, NativeToolCalled, NativeToolReturned, ToolStarted

SEARCH = Search("red kettles")
ANSWER = Reply(search=SEARCH, text="There are 3 red kettles.")
SENDS_BACK = (ANTHROPIC, OPENAI_RESPONSES)
"""Google tells of a search beside the content, and takes nothing of it back."""

every_provider = pytest.mark.parametrize("provider", [*SENDS_BACK, GOOGLE], ids=str)
those_that_take_it_back = pytest.mark.parametrize("provider", SENDS_BACK, ids=str)


@tool
def pay(amount: int) -> str:
    """Pay it."""
    return f"paid {amount}"


def agent_at(server: WireServer, provider: Provider, **options: Any) -> Agent:
    options.setdefault("native_tools", [WebSearchTool()])
    return Agent("support", provider.model(server), "Help.", **options)


async def talk(
    agent: Agent, way: Way, *inputs: str, state: AgentState | None = None
) -> tuple[AgentState, list[Event]]:
    """Say these one after the other; between two of them the state goes through JSON."""
    events: list[Event] = []
    listener = None if way == "execute" else events.append
    async with AsyncExitStack() as clients:
        for model in agent.runner.models:
            await clients.enter_async_context(model)
        for text in inputs:
            outcome = await agent.execute(text, state=state, on_event=listener)
            state = reloaded(completed(outcome).state)
    assert state is not None
    return state, events


def searched(sent: list[dict[str, Any]]) -> list[Any]:
    """What of a conversation on the wire is of the search."""
    blocks = [
        block
        for message in sent
        for block in (message["content"] if isinstance(message.get("content"), list) else [message])
    ]
    return [
        block for block in blocks if "search" in str(block.get("type")) + str(block.get("name"))
    ]


@every_provider
async def test_a_search_of_the_provider_is_shown_and_not_run(provider: Provider, way: Way) -> None:
    """R11."""
    with WireServer([ANSWER]) as server:
        state, events = await talk(agent_at(server, provider), way, "Red kettles?")
    (request,) = server.requests
    assert "search" in json.dumps(request["tools"]).lower()
    reply = state.messages[1]
    assert isinstance(reply, ModelResponse)
    assert reply.text == "There are 3 red kettles."
    (call,) = [part for part in reply.parts if isinstance(part, NativeToolCallPart)]
    (returned,) = [part for part in reply.parts if isinstance(part, NativeToolReturnPart)]
    assert call.tool_name == returned.tool_name == "web_search"
    assert "red kettles" in str(call.args)
    assert SEARCH.url in str(returned.content)
    assert results(state) == []
    if way == "stream":
        shown = [e for e in events if isinstance(e, (NativeToolCalled, NativeToolReturned))]
        assert [type(event) for event in shown] == [NativeToolCalled, NativeToolReturned]
        assert not any(isinstance(event, ToolStarted) for event in events)


@those_that_take_it_back
async def test_what_the_provider_said_of_its_search_goes_back_byte_for_byte(
    provider: Provider, way: Way
) -> None:
    """R11: from the process that got it, and from one that read the state."""
    order = wire_call("pay", {"amount": 3}, id="call_a")
    asked = Reply(search=SEARCH, text="So.", calls=(order,))
    with WireServer([asked, Reply(text="Paid."), Reply(text="Bye.")]) as server:
        await talk(agent_at(server, provider, tools=[pay]), way, "Pay for a kettle.", "Bye.")
    _, live, stored = server.conversations
    assert searched(live), "it is sent back"
    assert json.dumps(stored[: len(live)]) == json.dumps(live)
    if provider is ANTHROPIC:
        (told,) = [b for b in searched(live) if b["type"] == "web_search_tool_result"]
        (page,) = told["content"]
        assert page["encrypted_content"].startswith("EqgfCioIARgBIiQ3YTAw")
        assert (page["url"], page["title"]) == (SEARCH.url, SEARCH.title)


@pytest.mark.slow
@those_that_take_it_back
async def test_a_search_comes_back_from_every_store(provider: Provider, place: Place) -> None:
    """R11."""

    async def say(server: WireServer, text: str, *, streams: bool) -> None:
        agent = agent_at(server, provider)
        async with AsyncExitStack() as stack:
            for model in agent.runner.models:
                await stack.enter_async_context(model)
            runtime = await stack.enter_async_context(Runtime([agent], store=place.store()))
            ref = runtime.spawn("support", "1")
            subscription = ref.events() if streams else None
            completed(await soon(ref.run(text)))
            if subscription is not None:
                subscription.close()

    with WireServer([ANSWER, Reply(text="one"), Reply(text="two")]) as server:
        await say(server, "Red kettles?", streams=True)
        await say(server, "one", streams=False)
        await say(server, "two", streams=True)
    _, first, second = server.conversations
    assert searched(first) == searched(second) != []
    assert second[: len(first)] == first


@every_provider
async def test_a_call_beside_a_search_is_approved_alone(provider: Provider) -> None:
    """R11: the search has run already, and nobody is asked about it."""
    order = wire_call("pay", {"amount": 3}, id="call_a")
    if provider is GOOGLE:
        provider = Provider(GOOGLE.name, "gemini-3-pro-preview", GOOGLE.build)
    script = [Reply(search=SEARCH, calls=(order,)), Reply(text="Paid.")]
    with WireServer(script) as server:
        options: dict[str, Any] = {"tools": [pay], "interrupt_on": {"pay": True}}
        agent = agent_at(server, provider, **options)
        async with AsyncExitStack() as clients:
            for model in agent.runner.models:
                await clients.enter_async_context(model)
            waiting = interrupted(await agent.execute("Pay for a kettle."))
            assert [request.tool_name for request in waiting.requests] == ["pay"]
            state = reloaded(waiting.state)
            outcome = await agent.resume(state, waiting.decide(approve()))
    assert completed(outcome).text == "Paid."
    assert [part.content for part in results(outcome.state)] == ["paid 3"]

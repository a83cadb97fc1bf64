"""The answer that ends a run early: the tools are sent with it, and none may be called (R1)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import assert_valid_history, completed
from tests.support.wire.providers import PROVIDERS, Provider, Way, run
from tests.support.wire.script import Reply, wire_call
from tests.support.wire.server import WireServer
from understudy import tool

TOOL_KEYS = ("tools", "system", "instructions", "systemInstruction")
"""What comes before the messages, and is cached with them."""
NONE: dict[str, Any] = {
    "openai-chat": "none",
    "openai-responses": "none",
    "anthropic": {"type": "none"},
    "google": {"functionCallingConfig": {"mode": "NONE"}},
}


@tool
def lookup(order: str) -> str:
    """Find an order."""
    return f"order {order} is paid"


def choice(request: dict[str, Any]) -> Any:
    return request.get("tool_choice", request.get("toolConfig"))


def before_messages(request: dict[str, Any]) -> dict[str, Any]:
    return {key: request[key] for key in TOOL_KEYS if key in request}


async def answered_early(
    provider: Provider, way: Way, **options: Any
) -> tuple[str, list[dict[str, Any]]]:
    calls = (wire_call("lookup", {"order": "17"}, id="call_a"),)
    with WireServer([Reply(calls=calls), Reply(text="It is paid.")]) as server:
        model = provider.model(server)
        told = await run(
            way, model, tools=[lookup], max_runs=1, early_stopping="generate", **options
        )
    outcome = completed(told.outcome)
    assert outcome.early_stopped
    assert_valid_history(outcome.state)
    return outcome.text, server.requests


async def test_the_last_answer_is_asked_for_with_the_tools_and_without_a_choice(
    provider: Provider, way: Way
) -> None:
    text, (first, last) = await answered_early(provider, way)
    assert text == "It is paid."
    assert "tools" in first
    assert before_messages(last) == before_messages(first), "its prompt is cached"
    assert choice(last) == NONE[provider.name]
    assert choice(first) != choice(last)


@pytest.mark.parametrize("provider", [p for p in PROVIDERS if p.name != "anthropic"], ids=str)
async def test_a_run_that_must_call_tools_may_answer_at_its_limit(
    provider: Provider, way: Way
) -> None:
    """Anthropic's model of these tests thinks, and cannot be made to call a tool."""
    required = {"tool_choice": "required", "thinking": False}
    text, (first, last) = await answered_early(provider, way, model_settings=required)
    assert text == "It is paid."
    assert choice(first) not in (None, "auto")
    assert choice(last) == NONE[provider.name]

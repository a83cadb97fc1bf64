"""The real clients of the providers, each at a local server, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_ai.models import Model

from tests.support.wire.server import WireServer
from understudy import Agent, AgentState, Outcome
from understudy.events import Event
from understudy.models.messages import UserInput

Way = Literal["execute", "stream"]
WAYS: tuple[Way, ...] = ("execute", "stream")
AT_ONCE = {"retry-after-ms": "1"}
"""Tells a client to try again at once; it takes `Retry-After: 0` as no advice and waits."""


@dataclass(frozen=True)
class Provider:
    """A provider: its client class at a local server."""

    name: str
    model_name: str
    """One by whose name Pydantic AI knows what the model takes."""
    build: Callable[[WireServer, str, dict[str, Any]], Model]

    def model(self, server: WireServer, model_name: str | None = None, **options: Any) -> Model:
        """A model whose requests go to the server."""
        return self.build(server, model_name or self.model_name, options)

    def __str__(self) -> str:
        return self.name


def _openai_chat(server: WireServer, name: str, options: dict[str, Any]) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=server.base_url, api_key="test")
    return OpenAIChatModel(name, provider=provider, **options)


def _openai_responses(server: WireServer, name: str, options: dict[str, Any]) -> Model:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=server.base_url, api_key="test")
    return OpenAIResponsesModel(name, provider=provider, **options)


def _anthropic(server: WireServer, name: str, options: dict[str, Any]) -> Model:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    provider = AnthropicProvider(base_url=server.url, api_key="test")
    return AnthropicModel(name, provider=provider, **options)


def _google(server: WireServer, name: str, options: dict[str, Any]) -> Model:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    provider = GoogleProvider(base_url=server.url, api_key="test")
    return GoogleModel(name, provider=provider, **options)


OPENAI_CHAT = Provider("openai-chat", "gpt-5-mini", _openai_chat)
OPENAI_RESPONSES = Provider("openai-responses", "gpt-5-mini", _openai_responses)
ANTHROPIC = Provider("anthropic", "claude-sonnet-5-5-local", _anthropic)  # never deprecated
GOOGLE = Provider("google", "gemini-2.5-flash", _google)
PROVIDERS = (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, GOOGLE)


@dataclass(frozen=True)
class Told:
    """A run, and the events that it emitted; none if it was not streamed."""

    outcome: Outcome
    events: list[Event]


async def run(
    way: Way,
    *models: Model,
    input: UserInput = "Hi",
    state: AgentState | None = None,
    **options: Any,
) -> Told:
    """Run an agent with this model and these fallbacks, with their clients closed at the end."""
    agent = Agent("support", models[0], "Help.", fallback_models=models[1:], **options)
    async with AsyncExitStack() as clients:
        for model in models:
            await clients.enter_async_context(model)
        if way == "execute":
            return Told(await agent.execute(input, state=state), [])
        *events, outcome = [item async for item in agent.stream(input, state=state)]
    assert isinstance(outcome, Outcome), "a stream ends with the outcome of its run"
    return Told(outcome, [event for event in events if not isinstance(event, Outcome)])

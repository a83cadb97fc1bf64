"""What a host with many conversations gives: a factory, hooks that tell, options of children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy import Agent, AgentRef, Completed, Interrupted, Runtime, ScriptedModel
from understudy.actors import AgentFactory
from understudy.middleware import Middleware, SubAgent

desk = Agent("desk", ScriptedModel(["Hello."]), stays_for_subscribers=True)
Agent("desk", ScriptedModel(["Hello."]), stays_for_subscribers="yes")  # error: True or False


def plain(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent | None:
    return desk if name == "desk" else None


async def later(name: str, agent_id: str, values: Mapping[str, Any]) -> Agent:
    return desk


def by_id(agent_id: str) -> Agent:
    return desk


def text(name: str, agent_id: str, values: Mapping[str, Any]) -> str:
    return name


factory: AgentFactory = plain
Runtime(factory=plain)
Runtime([desk], factory=later, deps_for=lambda _: None)
Runtime(factory=None)
Runtime(factory=by_id)  # error: it takes a name, an id and values
Runtime(factory=text)  # error: it makes a text


class Tells(Middleware):
    def __init__(self) -> None:
        self.told: list[tuple[Any, object]] = []

    async def on_completed(self, actor: AgentRef, outcome: Completed) -> None:
        self.told.append((actor.id, outcome.text))

    async def on_interrupted(self, actor: AgentRef, outcome: Interrupted) -> None:
        self.told.append((actor.id, outcome.requests))

    async def on_passivated(self, actor: AgentRef, reason: str) -> None:
        self.told.append((actor.id, reason))


class Counts(Middleware):
    async def on_passivated(self, actor: Any, reason: int) -> None:  # error: a reason is text
        assert reason


Agent("told", ScriptedModel(["Hello."]), middleware=[Tells()])
SubAgent([desk, {"name": "search", "instructions": "Search.", "initial_messages": []}])
SubAgent(general_purpose="Do one task, and cite what you read.")
SubAgent(general_purpose=5)  # error: a text, True or False

"""Changed copies of an agent, with the same change in the agents inside it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.native_tools import SUPPORTED_NATIVE_TOOLS, AbstractNativeTool
from pydantic_ai.profiles import ModelProfile, merge_profile
from pydantic_ai.settings import ModelSettings

from understudy.agent.agent import Agent
from understudy.agent.nested_runs import NestedRuns
from understudy.agent.runner import Runner
from understudy.errors import UsageError
from understudy.outcomes import Outcome
from understudy.run.definition import AgentDefinition, ChildAgent
from understudy.run.run import Run

Alter = Callable[[AgentDefinition], AgentDefinition]


class AlteredRuns(NestedRuns):
    """Runs agents inside a run with a change, also agents that a tool runs by an object.

    Args:
        alter: makes the definition that replaces another one.

    """

    def __init__(self, alter: Alter) -> None:
        super().__init__()
        self._alter = alter
        self._altered: WeakKeyDictionary[AgentDefinition, AgentDefinition] = WeakKeyDictionary()

    def altered(self, definition: AgentDefinition) -> AgentDefinition:
        """The definition that replaces this one. It is the same each time."""
        found = self._altered.get(definition)
        if found is None:
            found = self._altered[definition] = self._alter(definition)
        return found

    async def run(
        self, parent: Run, key: str, child: ChildAgent, message: ModelRequest | None
    ) -> Outcome:
        child = replace(child, definition=self.altered(child.definition))
        return await super().run(parent, key, child, message)

    def models_below(self, definition: AgentDefinition) -> tuple[Model, ...]:
        models: tuple[Model, ...] = ()
        for child in definition.mode.agents:
            inner = self.altered(child.definition)
            models += (*self._models_of(inner), *self.models_below(inner))
        return models


def altered_agent(agent: Agent[Any, Any], runs: AlteredRuns) -> Agent[Any, Any]:
    """The agent with the change of these runs. It runs like any other agent."""
    twin = copy(agent)
    twin.definition = runs.altered(agent.definition)
    twin.runner = Runner(twin.definition, runs)
    return twin


class StandIn(Model):
    """A model with the name of another model, that supports everything that an agent may need.

    It sends messages as they are.

    Args:
        given: the other model, or its name. No model is made from a name.

    """

    def __init__(self, given: str | Model) -> None:
        super().__init__()
        self.given: str | Model = given

    @property
    def model_name(self) -> str:
        if isinstance(self.given, Model):
            return self.given.model_name
        return self.given.partition(":")[2] or self.given

    @property
    def system(self) -> str:
        given = self.given
        return given.system if isinstance(given, Model) else given.partition(":")[0]

    @property
    def profile(self) -> ModelProfile:
        if isinstance(self.given, Model):
            return self.given.profile
        return merge_profile(super().profile, {"supports_json_schema_output": True})

    @property
    def settings(self) -> ModelSettings | None:
        return self.given.settings if isinstance(self.given, Model) else None

    @classmethod
    def supported_native_tools(cls) -> frozenset[type[AbstractNativeTool]]:
        return SUPPORTED_NATIVE_TOOLS

    def prepare_messages(
        self,
        messages: list[ModelMessage],
        model_request_parameters: ModelRequestParameters | None = None,
    ) -> list[ModelMessage]:
        return messages

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        raise UsageError(f"nothing answers in the place of the model {self.model_name!r} here")

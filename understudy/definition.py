"""`AgentDefinition`: the frozen description of an agent. It does nothing by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from tenacity import AsyncRetrying

from understudy.cancellation import CancellationSource
from understudy.hooks import Hooks
from understudy.instructions import Instructions
from understudy.tools import Tool
from understudy.values import digest

__all__ = ["AgentDefinition", "PauseWhen", "Pipeline"]

PauseWhen = Callable[[], bool | str | Awaitable[bool | str | None] | None]
"""Asked after each model reply: true, or a reason, pauses the run (R7)."""


class Pipeline(Protocol):
    """What a definition knows of its mode."""

    @property
    def steps(self) -> tuple[Any, ...]:
        """The steps, in order: async functions of the run."""

    @property
    def step_names(self) -> tuple[str, ...]:
        """Their names."""


class Gate(Protocol):
    """A middleware that asks persons about tools; it holds in every agent below (S5)."""

    def covers(self, tool_name: str) -> bool | None:
        """Whether the tool is gated; None where nothing is said about it by name."""

    async def check_tool_calls(self, run: Any, calls: Any) -> Any:
        """As of a middleware."""


@dataclass(frozen=True, kw_only=True)
class ChildAgent:
    """An agent that another one may run, with how its run is to end (S2)."""

    definition: AgentDefinition
    until_tool: tuple[str, ...] | None = None
    require_tool_success: bool = False


@dataclass(frozen=True, kw_only=True)
class AgentDefinition:
    """Everything that is fixed about an agent, with its middleware's share merged in."""

    name: str
    model: str | Model
    description: str = ""
    instructions: tuple[Instructions, ...] = ()
    """The agent's own, then each middleware's in stack order (R3)."""
    tools: Mapping[str, Tool[Any]] = field(default_factory=dict)
    middleware: tuple[Any, ...] = ()
    gates: tuple[Gate, ...] = ()
    """Those of the middleware that ask persons."""
    cancellation: tuple[CancellationSource, ...] = ()
    """Asked whether a run is cancelled, wherever the agent runs (P7)."""
    children: Mapping[str, ChildAgent] = field(default_factory=dict)
    """The agents that its tools may run, by name."""
    hooks: Hooks = field(default_factory=Hooks)
    schemas: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    """The middleware that adds typed values, by name, with its `state_schema`."""
    mode: Pipeline
    max_runs: int = 50
    early_stopping: str = "force"
    max_overrides: int = 3
    fallback_models: tuple[str | Model, ...] = ()
    model_settings: ModelSettings | None = None
    retry: AsyncRetrying | None = None
    pause_when: PauseWhen | None = None

    @property
    def fingerprint(self) -> str:
        """Of what a run depends on: recorded with it, so that a change can be told (J12)."""
        return digest(
            [
                self.name,
                [tool.fingerprint for tool in self.tools.values()],
                [type(m).__qualname__ for m in self.middleware],
                list(self.mode.step_names),
            ]
        )

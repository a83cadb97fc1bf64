"""`AgentDefinition`: the frozen description of an agent. It does nothing by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from tenacity import AsyncRetrying

from understudy._base.json_values import digest
from understudy.models.output import Output
from understudy.run.cancellation import CancellationSource
from understudy.run.hooks import Hooks
from understudy.run.instructions import Instructions
from understudy.tools import Tool

__all__ = ["AgentDefinition", "PauseWhen", "Pipeline"]

PauseWhen = Callable[[], bool | str | Awaitable[bool | str | None] | None]
"""Asked after each model reply: true, or a reason, pauses the run (R7)."""


class Pipeline(Protocol):
    """What a definition knows of its mode."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def steps(self) -> tuple[Any, ...]:
        """The steps, in order: async functions of the run."""

    @property
    def step_names(self) -> tuple[str, ...]:
        """Their names."""

    @property
    def agents(self) -> tuple[ChildAgent, ...]:
        """The agents that they run, if they make a workflow."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class AgentDefinition:
    """Everything that is fixed about an agent, with its middleware's share merged in.

    Two are the same only if they are one object: what is made for one can be kept weakly by it.
    """

    name: str
    model: str | Model | None
    """None for a workflow, which asks none."""
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
    output: Output | None = None
    """What becomes of the final text; None where it is just told."""
    include_contents: Literal["default", "none"] = "default"
    idle_timeout: float | Literal["runtime"] | None = "runtime"
    """Seconds after which an actor of it is put out of memory; None = never (A5)."""
    haltable: bool = False
    """Whether a middleware of it lets tools halt it, and all below it (I11)."""

    @property
    def asks_model(self) -> bool:
        """Whether its mode asks a model: that of a workflow does not."""
        return not self.mode.agents or "call_llm" in self.mode.step_names

    @property
    def workflow(self) -> str | None:
        """The agents of its mode in order, as text: they stay the same for a whole run (J12)."""
        names = [child.definition.name for child in self.mode.agents]
        return f"{self.mode.name}({', '.join(names)})" if names else None

    @property
    def fingerprint(self) -> str:
        """Of what a run depends on: recorded with it, so that a change can be told (J12)."""
        return digest(
            [
                self.name,
                [tool.fingerprint for tool in self.tools.values()],
                [type(m).__qualname__ for m in self.middleware],
                list(self.mode.step_names),
                *([self.workflow] if self.workflow is not None else ()),
            ]
        )

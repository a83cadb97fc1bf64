"""`AgentDefinition`: the frozen description of an agent. It has no behaviour of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.settings import ModelSettings

from understudy._base.json_values import digest
from understudy.approvals import Approval
from understudy.models.output import Output
from understudy.models.prices import PUBLISHED, Prices
from understudy.models.requirements import Requirements
from understudy.run.cancellation import CancellationSource
from understudy.run.hooks import Hooks
from understudy.run.instructions import Instructions
from understudy.tools import Tool
from understudy.tools.tool_defaults import NO_DEFAULTS, ToolDefaults

if TYPE_CHECKING:
    from tenacity import AsyncRetrying

EarlyStopping = Literal["force", "generate"]
"""What happens when a run is at its maximum of model calls: it fails, or answers once more."""

BACKGROUND_SUFFIX = "__background"
"""The suffix of the name of an agent that makes the background calls of another agent."""

OnVersion = Literal["newest", "wait"]
"""The effect on a run that an older definition has begun: it continues with the newest definition,
or waits for a host that has the older definition."""

PauseWhen = Callable[[], bool | str | Awaitable[bool | str | None] | None]
"""A function that is called after each model reply: True, or a reason, pauses the run."""


class Pipeline:
    """The steps of a mode, which a definition has. It is a `Mode`, in the layer `modes` above.

    Args:
        steps: async functions of the run, in order.
        name: the name of the mode.

    """

    def __init__(self, steps: tuple[Any, ...], name: str) -> None:
        self.steps = steps
        self._name = name

    @property
    def name(self) -> str:
        """The name of the mode."""
        return self._name

    @cached_property
    def agents(self) -> tuple[ChildAgent, ...]:
        """The agents that its steps run, if it is a workflow; empty for any other mode."""
        return tuple(agent for step in self.steps for agent in getattr(step, "agents", ()))

    @property
    def step_names(self) -> tuple[str, ...]:
        """The names of the steps, in order."""
        return tuple(name_of_step(step) for step in self.steps)


def name_of_step(step: object) -> str:
    """The name of a step: the name of its function, or of its class."""
    return getattr(step, "__name__", type(step).__name__)


class Gate(ABC):
    """A middleware that requests approvals. It also applies to all agents below its own.

    It is a `HumanInTheLoop`, in the layer `middleware` above.
    """

    @abstractmethod
    def covers(self, tool_name: str) -> bool | None:
        """Return whether the tool is gated; None if no rule names it."""

    def asks_several(self, tool: Tool) -> bool:
        """Return whether several persons must agree to calls of the tool.

        The gates of agents below do not change the answer.
        """
        return False

    def approvals(self) -> Mapping[str, Approval]:
        """Return the approval of each tool whose calls need several persons, by its name."""
        return {}

    @abstractmethod
    async def check_tool_calls(self, run: Any, calls: Any) -> Any:
        """The hook `Middleware.check_tool_calls`."""


def covers(gate: Gate, tool: Tool) -> bool | None:
    """Whether the tool is gated; None if no rule has its name or an earlier name of it."""
    found = (gate.covers(name) for name in tool.names)
    return next((each for each in found if each is not None), None)


@dataclass(frozen=True, kw_only=True)
class ChildAgent:
    """An agent that another agent may run, with the until tool that ends its run."""

    definition: AgentDefinition
    until_tool: tuple[str, ...] | None = None
    require_tool_success: bool = False
    force: bool = False
    instructions: str = ""
    """Instructions in addition to those of its definition."""
    initial_messages: tuple[ModelMessage, ...] = ()
    """The conversation with which its run begins; well-formed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AgentDefinition:
    """Everything that is fixed about an agent, including what its middleware adds.

    Definitions are compared by identity, so they can be keys of a `WeakKeyDictionary`.
    """

    name: str
    model: str | Model | None
    """The model; None for a workflow, which calls no model itself."""
    description: str = ""
    instructions: tuple[Instructions, ...] = ()
    """The instructions of the agent, then of each middleware in stack order."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    middleware: tuple[Any, ...] = ()
    gates: tuple[Gate, ...] = ()
    """The middleware objects that request approvals."""
    cancellation: tuple[CancellationSource, ...] = ()
    """The sources that may cancel any run of the agent, wherever it runs."""
    children: Mapping[str, ChildAgent] = field(default_factory=dict)
    """The agents that its tools may run, by name."""
    hooks: Hooks = field(default_factory=Hooks)
    schemas: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    """The `state_schema` of each middleware that has one, by the middleware's name."""
    mode: Pipeline
    max_runs: int = 50
    early_stopping: EarlyStopping = "force"
    early_stopping_prompt: str | None = None
    """The user message that asks for the last answer; None for the default."""
    max_overrides: int = 3
    fallback_models: tuple[str | Model, ...] = ()
    model_settings: ModelSettings | None = None
    retry: AsyncRetrying | None = None
    pause_when: PauseWhen | None = None
    output: Output | None = None
    """The rule by which the final text is parsed, and its key in the values; None for plain
    text."""
    output_tools: tuple[Tool[Any], ...] = ()
    """The tools by which the model gives its final answer; empty if it answers by text.

    They are among `tools`.
    """
    native_tools: tuple[AbstractNativeTool, ...] = ()
    """The tools that the provider runs."""
    include_contents: Literal["default", "none"] = "default"
    idle_timeout: float | Literal["runtime"] | None = "runtime"
    """The seconds after which a `Runtime` passivates the idle agent; None = never."""
    stays_for_subscribers: bool = False
    """Whether the agent stays in memory, even if it is idle, while its events have a subscriber."""
    movable: bool = True
    """Whether another host may take the agent from a living host while the agent does nothing."""
    tool_defaults: ToolDefaults = NO_DEFAULTS
    """The defaults for the agent's tools."""
    needs: frozenset[str] = frozenset()
    """The labels that a host must have to run the agent itself; see `all_needs`."""
    version: int = 0
    """The version. A higher version is newer. Of equal versions, the one that hosts saw later is
    newer."""
    on_version: OnVersion = "newest"
    """What happens to a run that an older definition began: `newest` continues it with this one."""
    prices: Prices | None = None
    """The prices that a middleware sets for the replies, whatever prices the runtime has."""
    needs_cost: bool = False
    """Whether a middleware must know what each reply costs."""
    has_plain_turns: bool = False
    """Whether only the steps of `AgentExecution` look at a turn before it is closed.

    Then one record is enough for what otherwise needs several, with a step or a hook in between.
    """
    haltable: bool = False
    """Whether the middleware lets tools halt the agent, and all agents below it."""
    background: Mapping[str, Tool] = field(default_factory=dict)
    """The agent's tools that run in the background, by name.

    The tools with the same names in `tools` only start them.
    """
    background_of: str = ""
    """The name of the agent whose background calls this agent makes; empty for any other agent."""

    @cached_property
    def needs_cost_inside(self) -> bool:
        """Whether a middleware of this agent, or of an agent inside it, must know what each reply
        costs.
        """
        children = (*self.mode.agents, *self.children.values())
        return self.needs_cost or any(each.definition.needs_cost_inside for each in children)

    @property
    def declared_tools(self) -> Mapping[str, Tool]:
        """The tools as declared. Of a background tool it has the tool itself, not the tool that
        starts it.
        """
        return {**self.tools, **self.background} if self.background else self.tools

    @cached_property
    def background_inside(self) -> tuple[str, ...]:
        """The names of the background tools of this agent and of the agents inside it, each
        once.
        """
        if not self.background and not self.children and not self.mode.agents:
            return ()
        children = (*self.mode.agents, *self.children.values())
        inside = (name for each in children for name in each.definition.background_inside)
        return tuple(dict.fromkeys((*self.background, *inside)))

    @cached_property
    def has_keys(self) -> bool:
        """Whether a tool of the agent has a `key`, by which calls are equal."""
        return any(tool.key is not None for tool in self.tools.values())

    @cached_property
    def tools_to_run(self) -> tuple[Tool, ...]:
        """The tools, without the tools by which the model gives its final answer."""
        return tuple(tool for tool in self.tools.values() if tool not in self.output_tools)

    @cached_property
    def has_display_texts(self) -> bool:
        """Whether a tool has a `display_text`, which people read of its calls."""
        return any(tool.display_text is not None for tool in self.tools.values())

    @property
    def default_prices(self) -> Prices | None:
        """The prices of the replies if neither a middleware nor the runtime has prices."""
        return PUBLISHED if self.needs_cost else None

    @property
    def asks_model(self) -> bool:
        """Whether the mode calls a model. A workflow's mode does not, nor a mode of plain steps
        without one.
        """
        if "call_llm" in self.mode.step_names:
            return True
        return not self.mode.agents and self.model is not None

    # A test may stand around this: `testing.seams`.
    def tool_of(self, name: str) -> Tool | None:
        """Return the tool that has this name, or had it earlier; None if there is no such tool."""
        return self.tools.get(name) or self._tools_by_alias.get(name)

    @cached_property
    def _tools_by_alias(self) -> Mapping[str, Tool]:
        return {alias: tool for tool in self.tools.values() for alias in tool.aliases}

    def untyped(self, text: str) -> str | None:
        """Return the output of a run whose final text was not read: None if the agent has an output
        type.
        """
        return None if self.output is not None and self.output.typed else text

    @cached_property
    def asked_by(self) -> str:
        """The name of this definition in this process. Another definition may have other gates.

        It is recorded: see `Run.asked_by`.
        """
        return uuid4().hex[:16]

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The agent path if the agent runs alone. Background calls have the path of their agent."""
        return (self.background_of or self.name,)

    @cached_property
    def workflow(self) -> str | None:
        """The agents of the mode in order, as text. They must not change while a run is open."""
        names = [child.definition.name for child in self.mode.agents]
        return f"{self.mode.name}({', '.join(names)})" if names else None

    @property
    def all_needs(self) -> frozenset[str]:
        """The labels that a host must have for the agent and for the agents that run inside it."""
        children = (*self.mode.agents, *self.children.values())
        inside = (child.definition.all_needs for child in children)
        return self.needs.union(*inside)

    @property
    def requirements(self) -> Requirements:
        """The features that the agent's models must support."""
        mode = self.output.mode if self.output is not None else None
        return Requirements(mode, self.native_tools)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what a run depends on. It is recorded with each run, so that a change
        shows.
        """
        asking = [tool.name for tool in self.tools.values() if tool.gate is not None]
        return digest(
            [
                self.name,
                [tool.fingerprint for tool in self.tools.values()],
                [type(m).__qualname__ for m in self.middleware],
                list(self.mode.step_names),
                *([self.workflow] if self.workflow is not None else ()),
                *self.requirements.fingerprints,
                *([{"version": self.version}] if self.version else ()),
                *([{"ask": asking}] if asking else ()),
            ]
        )


def definition_of(agent: object) -> AgentDefinition | None:
    """The definition of an agent; None for anything else."""
    definition = getattr(agent, "definition", None)
    return definition if isinstance(definition, AgentDefinition) else None

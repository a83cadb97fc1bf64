"""`Source`: an agent of Pydantic AI. All that has no public name there is read in this module.

`tests/adopted/test_private_names.py` says what each of these names must mean.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, Union

from pydantic import TypeAdapter
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai._agent_graph import get_captured_run_messages
from pydantic_ai._instructions import resolve_sourced_instructions
from pydantic_ai._output import (
    run_none_process_hooks,
    run_output_with_hooks,
    types_from_output_spec,
)
from pydantic_ai.capabilities import (
    AbstractCapability,
    CombinedCapability,
    DynamicCapability,
    Hooks,
    WrapperCapability,
)
from pydantic_ai.exceptions import ToolRetryError
from pydantic_ai.messages import InstructionPart, RetryFeedbackPart
from pydantic_ai.models import Model
from pydantic_ai.tools import DeferredToolRequests, RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, PreparedToolset
from pydantic_ai.toolsets._instruction_collection import collect_toolset_instructions
from pydantic_ai.usage import UsageLimits
from pydantic_core import PydanticSerializationError, to_jsonable_python

from understudy._base.json_values import as_json
from understudy.models.output import InvalidOutput

OVERRIDES = (
    "deps",
    "model",
    "toolsets",
    "tools",
    "native_tools",
    "instructions",
    "metadata",
    "model_settings",
    "output_retries",
    "tool_retries",
    "workspace",
    "root_capability",
)
"""The parts of an agent that `agent.override()` replaces, by the names under which it keeps them.

The name of the agent is not among them: it is read only when the agent is carried over.
"""
INFRASTRUCTURE = ("ToolSearch", "PendingMessageDrainCapability")
"""The capabilities that Pydantic AI adds to every agent. The features that need them are
refused."""


class Source:
    """An agent of Pydantic AI.

    Args:
        agent: the agent.
        usage_limits: the limits of the usage of its runs.

    """

    def __init__(self, agent: PydanticAgent[Any, Any], usage_limits: UsageLimits | None) -> None:
        self.agent = agent
        replaced = agent._override_model.get()
        self.model: str | Model | None = agent.model if replaced is None else replaced.value
        """Its model, when it was carried over."""
        self.usage_limits = usage_limits
        leaves = agent.root_capability.capabilities
        given = [each for each in leaves if type(each).__name__ not in INFRASTRUCTURE]
        self.capability: AbstractCapability[Any] = CombinedCapability(given)
        """All its capabilities, without those that Pydantic AI adds."""
        self.listens: bool = agent._event_hooks.has_on_event
        """Whether it has functions for events of its stream."""
        self.limits_runs: bool = agent._concurrency_limiter is not None
        """Whether it limits the number of its concurrent runs."""
        self.schema: Any = agent._output_schema
        """The types of its output, and how a model is asked for them."""
        self.tool_retries: int = agent._max_tool_retries
        self.output_retries: int = agent._max_output_retries
        self.validators: list[Any] = agent._output_validators
        self.metadata: Any = agent._metadata
        self.has_system_prompts: bool = bool(
            agent._system_prompts or agent._system_prompt_functions
        )

    @property
    def overridden(self) -> set[str]:
        """The names of `OVERRIDES` that an `agent.override()` around the caller replaces now.

        The model is among them unless the override gives the model that was carried over.
        """
        kept = vars(self.agent)
        given = {name: kept[f"_override_{name}"].get() for name in OVERRIDES}
        found = {name for name, value in given.items() if value is not None}
        if "model" in found and given["model"].value is self.model:
            found.remove("model")
        return found

    @property
    def capabilities(self) -> list[AbstractCapability[Any]]:
        """Its capabilities, including capabilities inside of others."""
        leaves: list[AbstractCapability[Any]] = []
        self.capability.apply(leaves.append)
        return leaves

    @property
    def changes_arguments(self) -> bool:
        """Whether a capability may change arguments before they are validated."""
        return any(hooks_of(each, VALIDATE_HOOKS) for each in self.capabilities)

    @cached_property
    def values(self) -> TypeAdapter[Any]:
        """The adapter that reads a value of the output from JSON.

        Raises:
            PydanticSchemaGenerationError: for a type that Pydantic cannot make.
            PydanticUserError: the same.
            TypeError: the same.

        """
        types: list[Any] = []
        for spec in _flat(self.agent.output_type):
            given: Sequence[Any] = types_from_output_spec(spec)
            types += [type(_owner(spec)) if each is Self else each for each in given]
        types = [each for each in types if each is not DeferredToolRequests]
        union: Any = Union[tuple(types)]  # noqa: UP007  # the types are known only now
        return TypeAdapter(union)

    @property
    def prompted_template(self) -> Any:
        """The template of the prompt that asks for an output; None without one."""
        return getattr(self.schema, "template", None)

    def toolset(self, capability: AbstractCapability[Any]) -> AbstractToolset[Any]:
        """All its tools, output tools first, as these capabilities prepare and wrap them."""
        given = capability.get_toolset()
        inner = CombinedToolset(
            self.agent._build_toolset_list(cap_toolsets=[] if given is None else [given])
        )
        prepared: AbstractToolset[Any] = PreparedToolset(inner, capability.prepare_tools)
        prepared = capability.get_wrapper_toolset(prepared) or prepared
        if self.schema.toolset is None:
            return prepared
        outputs = copy(self.schema.toolset)
        outputs.output_validators = self.validators
        if outputs.max_retries is None:
            outputs.max_retries = self.output_retries

        async def prepare(
            ctx: RunContext[Any], definitions: list[ToolDefinition]
        ) -> list[ToolDefinition]:
            ctx = replace(ctx, max_retries=self.output_retries)
            return await capability.prepare_output_tools(ctx, definitions)

        return CombinedToolset([PreparedToolset(outputs, prepare), prepared])

    async def instructions(
        self,
        ctx: RunContext[Any],
        capability: AbstractCapability[Any],
        toolset: AbstractToolset[Any],
    ) -> list[InstructionPart]:
        """The present instructions of the agent, its capabilities and its toolsets."""
        sourced = self.agent._get_instructions(cap_instructions=capability._collect_instructions())
        parts = await resolve_sourced_instructions(sourced, ctx)
        return [*parts, *await collect_toolset_instructions(toolset, ctx)]

    @property
    def gives_plain_text(self) -> bool:
        """Whether its output is the final text itself, and nothing validates it."""
        given = [each for each in _flat(self.agent.output_type) if each is not DeferredToolRequests]
        return given == [str] and not self.validators and not self.capabilities

    def dump(self, value: Any) -> Any:
        """A value of the output as JSON.

        Raises:
            ValueError: if it is no output, or no type says how to read it from JSON again.

        """
        kind = type(value).__name__
        try:
            data = as_json(to_jsonable_python(value))
        except PydanticSerializationError as error:
            raise ValueError(
                f"the output of type {kind!r} cannot be kept as JSON: {error}"
            ) from error
        try:
            again = self.load(data)
        except ValueError:
            again = data
        if _is_lost(value, again):
            raise ValueError(
                f"the output of type {kind!r} cannot be made of JSON again: name its type in "
                "output_type=, or as what the output function returns"
            )
        return data

    def load(self, data: Any) -> Any:
        """The value from its `dump`.

        Raises:
            ValueError: if it fits none of the output types.

        """
        return self.values.validate_python(data)

    def output_tools(self) -> dict[str, Any]:
        """The processors of its output tools, by the names of the tools."""
        toolset = self.schema.toolset
        return {} if toolset is None else dict(toolset.processors)

    def output_definitions(self) -> Sequence[ToolDefinition]:
        """The definitions of its output tools."""
        toolset = self.schema.toolset
        return [] if toolset is None else list(toolset._tool_defs)

    async def read(
        self, text: str, ctx: RunContext[Any], capability: AbstractCapability[Any]
    ) -> Any:
        """The value of a final text, through its output functions and validators.

        Raises:
            InvalidOutput: if the text is no output; the message is for the model.

        """
        processor = self.schema.text_processor
        if self.schema.allows_none and not text.strip():
            return await self._nothing(ctx, capability)
        if processor is None:
            names = ", ".join(map(repr, self.output_tools()))
            raise InvalidOutput(f"Give the answer by calling the tool {names}.")
        try:
            return await run_output_with_hooks(
                processor,
                text=text,
                run_context=ctx,
                capability=capability,
                schema=self.schema,
                output_validators=self.validators,
            )
        except ToolRetryError as retry:
            raise InvalidOutput(retry_text(retry)) from retry

    async def _nothing(self, ctx: RunContext[Any], capability: AbstractCapability[Any]) -> Any:
        """The value of an empty reply, if None is one of the output types."""
        try:
            return await run_none_process_hooks(
                run_context=ctx,
                capability=capability,
                schema=self.schema,
                output_validators=self.validators,
            )
        except ToolRetryError as retry:
            raise InvalidOutput(retry_text(retry)) from retry


def _is_lost(value: Any, again: Any) -> bool:
    """Whether a value that was read back from JSON has another class than before."""
    if isinstance(value, (list, tuple)) and isinstance(again, (list, tuple)):
        return any(map(_is_lost, value, again))
    if isinstance(value, dict) and isinstance(again, dict):
        return any(map(_is_lost, value.values(), again.values()))
    return not isinstance(value, (type(again), int, tuple))


def _owner(spec: Any) -> Any:
    """The object whose method an output function is; None if it is no method."""
    function = getattr(spec, "output", getattr(spec, "output_function", spec))
    return getattr(function, "__self__", None)


def is_captured() -> bool:
    """Whether a `capture_run_messages()` around the caller waits for a run of Pydantic AI."""
    try:
        return not get_captured_run_messages().used
    except LookupError:
        return False


def _flat(spec: Any) -> list[Any]:
    """The parts of an output specification, which may have nested lists."""
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return [each for inner in spec for each in _flat(inner)]
    return [spec]


def retry_text(retry: ToolRetryError) -> str:
    """The text for a model about a call, or an answer, that it is to make again."""
    part = retry.tool_retry
    if isinstance(part.content, str):
        return part.content
    if isinstance(part, RetryFeedbackPart):
        return part.model_response()
    return part.model_response_str(wrap_if_error=False)


VALIDATE_HOOKS = frozenset({"before_tool_validate", "wrap_tool_validate", "on_tool_validate_error"})


def hooks_of(capability: AbstractCapability[Any], names: Collection[str]) -> set[str]:
    """The hooks that a capability has, by its class or by the functions that it got."""
    base: type[Any] = AbstractCapability
    for known in (Hooks, WrapperCapability, DynamicCapability):  # they have all, to pass them on
        if isinstance(capability, known):
            base = known
    hooks = {name for name in names if getattr(type(capability), name) is not getattr(base, name)}
    if isinstance(capability, Hooks):
        hooks |= {name for name, given in capability._registry.items() if given and name in names}
    return hooks

"""`Source`: an agent of Pydantic AI. All that has no public name there is read in this module.

`tests/adopted/test_private_names.py` says what each of these names must mean.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai._instructions import resolve_sourced_instructions
from pydantic_ai._output import run_output_with_hooks, types_from_output_spec
from pydantic_ai.capabilities import (
    AbstractCapability,
    CombinedCapability,
    DynamicCapability,
    Hooks,
    WrapperCapability,
)
from pydantic_ai.exceptions import ToolRetryError
from pydantic_ai.messages import InstructionPart, RetryFeedbackPart
from pydantic_ai.tools import DeferredToolRequests, RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, PreparedToolset
from pydantic_ai.toolsets._instruction_collection import collect_toolset_instructions
from pydantic_ai.usage import UsageLimits
from pydantic_core import PydanticSerializationError, to_jsonable_python

from understudy._base.json_values import as_json
from understudy.models.output import InvalidOutput

INFRASTRUCTURE = ("ToolSearch", "PendingMessageDrainCapability")
"""Capabilities that Pydantic AI adds to every agent. What they serve is refused."""


class Source:
    """An agent of Pydantic AI.

    Args:
        agent: the agent.
        usage_limits: what a run of it may use.

    """

    def __init__(self, agent: PydanticAgent[Any, Any], usage_limits: UsageLimits | None) -> None:
        self.agent = agent
        self.usage_limits = usage_limits
        leaves = agent.root_capability.capabilities
        given = [each for each in leaves if type(each).__name__ not in INFRASTRUCTURE]
        self.capability: AbstractCapability[Any] = CombinedCapability(given)
        """All its capabilities, without those that Pydantic AI adds."""
        self.listens: bool = agent._event_hooks.has_on_event
        """Whether it has functions for events of its stream."""
        self.limits_runs: bool = agent._concurrency_limiter is not None
        """Whether it limits how many of its runs go on at a time."""
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
    def capabilities(self) -> list[AbstractCapability[Any]]:
        """Each of its capabilities, those inside of others as well."""
        leaves: list[AbstractCapability[Any]] = []
        self.capability.apply(leaves.append)
        return leaves

    @property
    def changes_arguments(self) -> bool:
        """Whether a capability may change arguments before they are validated."""
        return any(hooks_of(each, VALIDATE_HOOKS) for each in self.capabilities)

    @property
    def output_types(self) -> list[Any]:
        """The types of the values of its output."""
        return [
            each for spec in _flat(self.agent.output_type) for each in types_from_output_spec(spec)
        ]

    @property
    def prompted_template(self) -> Any:
        """The template of the prompt that asks for an output, where it has one."""
        return getattr(self.schema, "template", None)

    def toolset(self, capability: AbstractCapability[Any]) -> AbstractToolset[Any]:
        """All its tools, those of its output first, as these capabilities prepare and wrap them."""
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
        """The instructions of the agent, its capabilities and its toolsets, as of now."""
        sourced = self.agent._get_instructions(cap_instructions=capability._collect_instructions())
        parts = await resolve_sourced_instructions(sourced, ctx)
        return [*parts, *await collect_toolset_instructions(toolset, ctx)]

    @property
    def gives_plain_text(self) -> bool:
        """Whether its output is the final text as it is, and nobody looks at that."""
        given = [each for each in _flat(self.agent.output_type) if each is not DeferredToolRequests]
        return given == [str] and not self.validators and not self.capabilities

    @staticmethod
    def dump(value: Any) -> Any:
        """A value of the output as JSON.

        Raises:
            ValueError: if it is none.

        """
        try:
            return as_json(to_jsonable_python(value))
        except PydanticSerializationError as error:
            raise ValueError(
                f"the output of type {type(value).__name__!r} cannot be kept as JSON: {error}"
            ) from error

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
            InvalidOutput: if it is none; the message is for the model.

        """
        processor = self.schema.text_processor
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


def _flat(spec: Any) -> list[Any]:
    """The parts of a specification of outputs, which may be lists of lists."""
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return [each for inner in spec for each in _flat(inner)]
    return [spec]


def retry_text(retry: ToolRetryError) -> str:
    """What a model is told of a call, or an answer, that it is to make again."""
    part = retry.tool_retry
    if isinstance(part.content, str):
        return part.content
    if isinstance(part, RetryFeedbackPart):
        return part.model_response()
    return part.model_response_str(wrap_if_error=False)


VALIDATE_HOOKS = frozenset({"before_tool_validate", "wrap_tool_validate", "on_tool_validate_error"})


def hooks_of(capability: AbstractCapability[Any], names: Collection[str]) -> set[str]:
    """Which of these hooks a capability has, by its class, or by the functions it was given."""
    base: type[Any] = AbstractCapability
    for known in (Hooks, WrapperCapability, DynamicCapability):  # they have each, to pass it on
        if isinstance(capability, known):
            base = known
    hooks = {name for name in names if getattr(type(capability), name) is not getattr(base, name)}
    if isinstance(capability, Hooks):
        hooks |= {name for name, given in capability._registry.items() if given and name in names}
    return hooks

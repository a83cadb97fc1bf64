"""The options of an agent that its models must support: the output mode and native tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.native_tools import MemoryTool

from understudy._base.json_values import check_sendable
from understudy.errors import UsageError
from understudy.models.output import OUTPUT_TOOL
from understudy.models.requirements import native_names
from understudy.modes.steps.model_call.ask_model import ask_for_output
from understudy.run.definition import AgentDefinition
from understudy.run.model_input import ModelInput
from understudy.tools import Tool, ToolResult


def output_tools_of(definition: AgentDefinition) -> tuple[Tool[Any], ...]:
    """The tools by which the model gives its answer; empty if it does not do so by a tool.

    Raises:
        UsageError: if the mode would not end a run by such a tool.

    """
    output = definition.output
    if output is None or (output.mode != "tool" and not output.tools):
        return ()
    if definition.asks_model and "check_until_tool" not in definition.mode.step_names:
        raise UsageError(
            f"Agent {definition.name!r}: its output ends a run by a tool, but the mode has no "
            "step check_until_tool, so no run would end: add the step"
        )

    if output.tools:
        return output.tools

    def answer(response: Any) -> Any:
        return ToolResult("The answer is accepted.", value=response)

    result_type: Any = ToolResult
    answer.__annotations__ = {"response": output.type, "return": result_type[output.type]}
    about = output.object_definition().description or ""
    tool: Tool[Any] = Tool(
        answer,
        name=OUTPUT_TOOL,
        description=f"The final answer, which ends this conversation. {about}".strip(),
        inline=True,
        read_only=True,
    )
    return (tool,)


def check_models(definition: AgentDefinition, models: Sequence[Model]) -> None:
    """Check what the agent requires of these models.

    Raises:
        UsageError: if a model lacks a feature, or a tool has the name of a native tool.

    """
    check_sendable(definition.native_tools, what=f"Agent {definition.name!r}: `native_tools`")
    requirements = definition.requirements
    if not requirements.fingerprints:
        return
    for name in sorted(native_names(definition.native_tools) & set(definition.tools)):
        if name != MemoryTool.kind:  # the native memory tool calls the tool of this name
            raise UsageError(
                f"Agent {definition.name!r} has a tool and a native tool named {name!r}: rename "
                "the tool with @tool(name=...)"
            )
    tools = [tool for tool in definition.tools.values() if tool not in definition.output_tools]
    settings = definition.model_settings
    request = ModelInput((), "", tuple(tools), settings, definition.native_tools)
    parameters = request.parameters()
    ask_for_output(parameters, definition)
    requirements.check(models, agent=definition.name, parameters=parameters, settings=settings)


def known_models(definition: AgentDefinition) -> list[Model]:
    """The models of the definition that are objects; names are looked up at the first run."""
    models = (definition.model, *definition.fallback_models)
    return [model for model in models if isinstance(model, Model)]

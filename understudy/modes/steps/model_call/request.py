"""What a model request asks for beside the conversation: which tools, and which form of answer."""

from __future__ import annotations

from dataclasses import replace

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ToolChoice

from understudy._base.json_values import check_text
from understudy.errors import UsageError
from understudy.run.definition import AgentDefinition
from understudy.run.hooks import Hook, HookFailed
from understudy.run.model_input import ModelInput
from understudy.run.run import Run


def tool_choice(run: Run, prompt: ModelInput) -> ToolChoice:
    """What the settings must say of the choice of tools; None for as they are.

    All tools are sent in either case: providers want those that the conversation called, and cache
    them with it.
    """
    current = run.current
    if current.early_stop is not None:
        return "none" if prompt.tools or run.definition.output_tool is not None else None
    if current.forced and current.until_tool is not None:
        return [tool.name for tool in prompt.tools if run.is_until_tool(tool.name)] or None
    return None


def parameters_of(run: Run, prompt: ModelInput) -> ModelRequestParameters:
    """The parameters of this request; those of the last one where nothing in them has changed."""
    last = run.parameters
    if last is not None:
        sent, parameters = last
        same_tools = sent.tools is prompt.tools and sent.native_tools is prompt.native_tools
        if same_tools and sent.instructions == prompt.instructions:
            return parameters
    parameters = prompt.parameters()
    if run.current.until_tool is None:
        ask_for_output(parameters, run.definition)
    run.parameters = prompt, parameters
    return parameters


def ask_for_output(parameters: ModelRequestParameters, definition: AgentDefinition) -> None:
    """Make the parameters ask for the final answer in the agent's output mode, if it has one."""
    output, output_tool = definition.output, definition.output_tool
    if output is None or output.mode is None:
        return
    parameters.output_mode = output.mode
    if output_tool is None:
        parameters.output_object = output.object_definition()
    else:
        parameters.output_tools = [replace(output_tool.definition, kind="output")]
        parameters.allow_text_output = False


def check_changed(hook: Hook, before: ModelInput, after: ModelInput) -> None:
    """Check what a hook has put into a request; what was there before it is valid.

    Raises:
        HookFailed: for what cannot be sent.

    """
    messages: list[ModelMessage] = []
    if after.messages is not before.messages:
        known = {id(message) for message in before.messages}
        messages = [message for message in after.messages if id(message) not in known]
    added = (
        ("instructions", after.instructions),
        ("messages", messages),
        ("settings", after.settings if after.settings is not before.settings else None),
        (
            "native tools",
            after.native_tools if after.native_tools is not before.native_tools else (),
        ),
    )
    model = after.model
    try:
        if model is not None and not isinstance(model, Model):
            raise UsageError(f"the `model` of a request must be a Pydantic AI Model, got {model!r}")
        for what, value in added:
            if value:
                check_text(value, what=f"the text of the {what} that it returned")
    except UsageError as error:
        raise HookFailed(hook.failure(error)) from error

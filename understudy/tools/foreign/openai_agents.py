"""Tools of the OpenAI Agents SDK: `FunctionTool`, as `@function_tool` makes it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from copy import copy
from typing import Any

from agents import FunctionTool, RunContextWrapper, ToolOutputFileContent, ToolOutputImage
from agents import ToolOutputText as Text
from agents.exceptions import ModelBehaviorError
from agents.tool import (
    ToolOriginType,
    default_tool_error_function,
    get_function_tool_origin,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext as TheirContext
from agents.usage import Usage

from understudy._base.json_values import text_of
from understudy.errors import UsageError
from understudy.tools.context import ToolContext
from understudy.tools.foreign.content import content_of
from understudy.tools.foreign.fits import check_fits
from understudy.tools.foreign.foreign_tool import Foreign, not_carried
from understudy.tools.function_tool import ToolOptions
from understudy.tools.result import InvalidArguments, RemoteToolError
from understudy.tools.schema_arguments import by_schema

_MODELS = (Text, ToolOutputImage, ToolOutputFileContent)


def read(given: object) -> Foreign:
    """Read a tool of the Agents SDK.

    Raises:
        UsageError: for anything but a `FunctionTool`, for what cannot be carried over, and for a
            schema that does not fit the function.

    """
    if not isinstance(given, FunctionTool):
        raise UsageError(
            f"{type(given).__name__} is run by OpenAI, or by the loop of the Agents SDK: give the "
            "agent native_tools=[...], or a tool of its own that does the same"
        )
    what = f"Tool {given.name!r} of the Agents SDK"
    for part, is_there, instead in _not_carried(given):
        if is_there:
            raise not_carried(what, part, instead)
    _check_function(given, what=what)
    options = ToolOptions()
    if given.timeout_seconds is not None:
        options["timeout"] = given.timeout_seconds
    if given.needs_approval:
        options["ask"] = {"when": _asks(given)} if callable(given.needs_approval) else True
    return Foreign(
        name=given.name,
        description=given.description,
        parameters=given.params_json_schema,
        call=_Call(given).call,
        check=by_schema(_with_defaults(given.params_json_schema)),
        strict=given.strict_json_schema or None,
        options=options,
    )


def _with_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that checks arguments, without the requirement of arguments that have a
    default.
    """
    own, required = schema.get("properties"), schema.get("required")
    if not isinstance(own, dict) or not isinstance(required, list):
        return schema
    left = [name for name in required if "default" not in own.get(name, ())]
    return {**schema, "required": left}


def _not_carried(tool: FunctionTool) -> list[tuple[str, bool, str]]:
    """The parts of a tool that are not carried over: name, whether it is set, and the remedy."""
    tells = "look at what the tool returns in a middleware with wrap_tool_call"
    is_changing = callable(tool.is_enabled)
    hides = "choose the tools of each request in a middleware with wrap_model_call"
    return [
        ("is_enabled=False", not is_changing and not tool.is_enabled, "leave the tool out"),
        ("a function is_enabled", is_changing, hides),
        ("tool_input_guardrails", bool(tool.tool_input_guardrails), "write a gate or a middleware"),
        ("tool_output_guardrails", bool(tool.tool_output_guardrails), tells),
        ("defer_loading=True", tool.defer_loading, "without it the tool is always there"),
        (
            "timeout_behavior='raise_exception'",
            tool.timeout_behavior == "raise_exception",
            "a call that ran out of its time is in doubt here",
        ),
        (
            "a timeout_error_function",
            tool.timeout_error_function is not None,
            "a call that ran out of its time is in doubt here",
        ),
        ("a custom_data_extractor", tool.custom_data_extractor is not None, tells),
        (
            "allowed_callers other than 'direct'",
            tool.allowed_callers not in (None, ["direct"]),
            "a model calls each tool here",
        ),
        (
            "a namespace",
            tool.qualified_name != tool.name,
            "take the tool that was given to tool_namespace(), and give it a name of its own",
        ),
        (
            "an agent inside (Agent.as_tool)",
            _is_of_agent(tool),
            "what it does would be one call, without requests and records: write it as an Agent "
            "and a sub-agent",
        ),
    ]


def _is_of_agent(tool: FunctionTool) -> bool:
    origin = get_function_tool_origin(tool)
    return origin is not None and origin.type is ToolOriginType.AGENT_AS_TOOL


def _check_function(tool: FunctionTool, *, what: str) -> None:
    """Check the function of a tool by `@function_tool`. Other tools do not say what they take."""
    function = getattr(tool, "__wrapped__", None)
    if not callable(function):
        return
    try:
        first = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):
        return
    named = list(tool.params_json_schema.get("properties", {}))
    context = () if first is None or first.name in named else (first.name,)
    if not any(each.kind is each.VAR_POSITIONAL for each in _parameters(function)):
        check_fits(function, named=named, always=named, besides=context, what=what)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _asks(tool: FunctionTool) -> Callable[[dict[str, Any], ToolContext[Any]], Any]:
    """A function that says, from a call's arguments, whether the call needs a person."""
    needs: Any = tool.needs_approval

    async def asks(arguments: dict[str, Any], ctx: ToolContext[Any]) -> bool:
        answer = needs(RunContextWrapper(context=ctx.deps), arguments, ctx.tool_call_id)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    return asks


class _Call:
    """Calls of the tool as the Agents SDK makes them, except for errors, which are handled here."""

    def __init__(self, tool: FunctionTool) -> None:
        self._tells = resolve_function_tool_failure_error_function(tool)
        # The SDK makes a text of each error. Here the error counts, with what led to it: a payment
        # that timed out is in doubt, and must not become a text that asks the model to try again.
        self._tool = set_function_tool_failure_error_function(copy(tool), None)

    async def call(self, ctx: ToolContext[Any], arguments: dict[str, Any]) -> Any:
        """Call the tool with a context of the SDK, which has the deps of the run."""
        text = json.dumps(arguments)
        used = ctx.state.usage
        context: TheirContext[Any] = TheirContext(
            context=ctx.deps,
            usage=Usage(
                requests=used.requests,
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                total_tokens=used.input_tokens + used.output_tokens,
            ),
            tool_name=self._tool.name,
            tool_call_id=ctx.tool_call_id,
            tool_arguments=text,
        )
        try:
            return _content(await self._tool.on_invoke_tool(context, text))
        except Exception as error:
            if _is_refused(error, self._tool.name):
                raise InvalidArguments(text_of(error)) from error
            if self._tells is None or self._tells is default_tool_error_function:
                raise
            text = self._tells(context, error)
            text = await text if inspect.isawaitable(text) else text
            raise RemoteToolError(str(text)) from error


def _is_refused(error: Exception, name: str) -> bool:
    """Whether the SDK has refused the arguments: then the function was not called."""
    begins = f"Invalid JSON input for tool {name}"
    return isinstance(error, ModelBehaviorError) and str(error).startswith(begins)


def _content(output: Any) -> Any:
    if isinstance(output, _MODELS):
        return content_of(output.model_dump(exclude_none=True))
    if isinstance(output, list):
        return content_of(
            [
                each.model_dump(exclude_none=True) if isinstance(each, _MODELS) else each
                for each in output
            ]
        )
    is_block = isinstance(output, dict) and output.get("type") in ("text", "image", "file")
    return content_of(output) if is_block else output

"""Tools of an adopted agent: known when it is made, called through Pydantic AI's `ToolManager`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container, Coroutine, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ToolFailedError,
    ToolRetryError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    WrapperToolset,
)
from pydantic_ai.usage import RunUsage

from understudy._base.error_texts import error_text
from understudy._base.json_values import as_json
from understudy.adopted.source import Source, retry_text
from understudy.adopted.steps import (
    NOT_RETRIED,
    Step,
    Steps,
    context_of,
    exceeded,
    with_capabilities,
)
from understudy.errors import UsageError
from understudy.interrupts import Interrupt
from understudy.run.run import Run, inside_run
from understudy.state.run_state import Call
from understudy.tools import Retry, Tool, ToolContext, ToolFailed, ToolResult
from understudy.tools.function_tool import ToolOptions
from understudy.tools.gate_rule import Rule
from understudy.tools.result import InvalidArguments
from understudy.tools.schema_arguments import Check, GivenArguments

Approves = Callable[[RunContext[Any], ToolDefinition, dict[str, Any]], Any]


@dataclass(frozen=True)
class Found:
    """A tool, with its name for the model."""

    definition: ToolDefinition
    validator: Any = None
    """The validator of its arguments; None if it takes a context of the run."""
    asks: tuple[Approves, ...] = ()
    """Functions of the toolsets around it that say whether a call needs approval."""


# --------------------------------------------------------------------------------- listing


def found_tools(source: Source, deps: object, *, what: str) -> dict[str, Found]:
    """All tools of the agent: the tools that its toolsets hold, and the tools that they list for
    `deps`.

    Raises:
        UsageError: for a toolset that cannot be listed, or a part that cannot be carried over.

    """
    held: dict[str, Found] = {}
    unknown: list[AbstractToolset[Any]] = []
    for toolset in source.agent.toolsets:
        for each in _held(toolset, unknown):
            held[each.definition.name] = each
    listed: dict[str, Found] = {}
    try:
        listed = _on_a_loop(lambda: _listed(source, deps))
    except Exception as error:  # the application's function may need other deps
        if unknown or source.capability.get_wrapper_toolset(CombinedToolset([])) is not None:
            label = unknown[0].label if unknown else "A capability"
            raise UsageError(
                f"{what} has tools that are known to a run alone: {label} raised "
                f"{error_text(error)} when it was asked for them. Give the deps that it needs: "
                "from_pydantic_ai(agent, listed_with=deps)"
            ) from error
    tools = {
        **{name: each for name, each in held.items() if not listed or name not in listed},
        **{
            name: replace(each, asks=held[name].asks) if name in held else each
            for name, each in listed.items()
        },
    }
    if listed and source.capability.get_wrapper_toolset(CombinedToolset([])) is not None:
        tools = {name: each for name, each in tools.items() if name in listed}
    for name, each in tools.items():
        if each.definition.defer_loading:
            raise UsageError(
                f"{what} has the tool {name!r} with defer_loading=True, which a model finds by a "
                "search: without it the tool is there from the beginning"
            )
    return tools


def _held(toolset: AbstractToolset[Any], unknown: list[AbstractToolset[Any]]) -> list[Found]:
    """The tools that a toolset always holds. Toolsets of other kinds are added to `unknown`."""
    if isinstance(toolset, FunctionToolset):
        return [
            Found(
                _with_timeout(each.tool_def, toolset.timeout),
                each.function_schema.validator,
            )
            for each in toolset.tools.values()
        ]
    if isinstance(toolset, ExternalToolset):
        return [Found(replace(each, kind="external")) for each in toolset.tool_defs]
    if isinstance(toolset, CombinedToolset):
        return [each for inner in toolset.toolsets for each in _held(inner, unknown)]
    if isinstance(toolset, PrefixedToolset):
        inside = _held(toolset.wrapped, unknown)
        return [_named(each, f"{toolset.prefix}_{each.definition.name}") for each in inside]
    if isinstance(toolset, RenamedToolset):
        names = {old: new for new, old in toolset.name_map.items()}
        inside = _held(toolset.wrapped, unknown)
        return [
            _named(each, names.get(each.definition.name, each.definition.name)) for each in inside
        ]
    if isinstance(toolset, ApprovalRequiredToolset):
        inside = _held(toolset.wrapped, unknown)
        asks = toolset.approval_required_func
        return [replace(each, asks=(*each.asks, asks)) for each in inside]
    if isinstance(toolset, WrapperToolset):
        return _held(toolset.wrapped, unknown)
    unknown.append(toolset)
    return []


def _with_timeout(definition: ToolDefinition, timeout: float | None) -> ToolDefinition:
    if definition.timeout is not None or timeout is None:
        return definition
    return replace(definition, timeout=timeout)


def _named(found: Found, name: str) -> Found:
    return replace(found, definition=replace(found.definition, name=name))


async def _listed(source: Source, deps: object) -> dict[str, Found]:
    model = source.model
    ctx: RunContext[Any] = RunContext(
        deps=deps,
        model=model if isinstance(model, Model) else TestModel(),
        usage=RunUsage(),
        agent=source.agent,
        max_retries=source.tool_retries,
        run_step=1,
    )
    capability = await source.capability.for_run(ctx)
    with_capabilities(ctx, capability)
    toolset = await source.toolset(capability).for_run(ctx)
    async with toolset:
        tools = await (await toolset.for_run_step(ctx)).get_tools(ctx)
        return {
            name: Found(tool.tool_def, tool.args_validator)
            for name, tool in tools.items()
            if tool.tool_def.kind != "output"
        }


def _on_a_loop(work: Callable[[], Coroutine[Any, Any, dict[str, Found]]]) -> dict[str, Found]:
    """The result of the work, done on a separate loop, because a loop may run in this thread."""
    result: list[dict[str, Found]] = []
    errors: list[BaseException] = []

    def go() -> None:
        try:
            result.append(asyncio.run(work()))
        except BaseException as error:  # the waiting thread gets the error
            errors.append(error)

    thread = threading.Thread(target=go, name="understudy-tools-of-an-agent")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result[0]


# ----------------------------------------------------------------------------------- tools


def _by(validator: Any) -> Check:
    """The check of arguments by a validator of Pydantic AI.

    The body gets the arguments as they were written, and Pydantic AI validates them once more, with
    the context of the run.
    """

    def check(arguments: dict[str, Any]) -> None:
        try:
            validator.validate_python(arguments)
        except ValidationError as error:
            raise _invalid(error) from error

    return check


def _invalid(error: ValidationError) -> InvalidArguments:
    places = tuple(
        (tuple(each["loc"]), each["msg"])
        for each in error.errors(include_url=False, include_context=False)
    )
    lines = (f"{'.'.join(map(str, at)) or 'arguments'}: {why}" for at, why in places)
    return InvalidArguments("\n".join(lines), places)


class AdoptedTool(Tool[Any]):
    """A tool of an agent of Pydantic AI.

    Args:
        found: the tool.
        steps: the steps of the runs of its agent.
        options: the options of the tool, as the application gives them.

    """

    def __init__(self, found: Found, steps: Steps, options: ToolOptions) -> None:
        self._found, self._steps = found, steps
        definition = found.definition
        given: dict[str, Any] = {"sequential": definition.sequential, **options}
        if definition.timeout is not None:
            given.setdefault("timeout", definition.timeout)
        rule = self._rule()
        if rule is not False:
            given.setdefault("ask", rule)
        super().__init__(
            self._called, name=definition.name, description=definition.description or "", **given
        )

    def _read_arguments(self, description: str | None) -> Any:
        definition = self._found.definition
        validator = self._found.validator
        source = self._steps.source
        if source.agent.validation_context is not None or source.changes_arguments:
            validator = None  # only Pydantic AI validates them, in the body
        return GivenArguments(
            replace(definition, description=description or None),
            None if validator is None else _by(validator),
            takes_context=True,
        )

    def as_of(self, definition: ToolDefinition) -> AdoptedTool:
        """The tool with the definition that a step gives the model."""
        if definition == self.definition:
            return self
        twin = copy(self)
        twin.definition = definition
        return twin

    def _rule(self) -> Rule:
        found = self._found
        if found.definition.kind == "external":
            return ["respond", "reject"]
        if found.definition.kind == "unapproved":
            return True
        if not found.asks:
            return False

        def when(arguments: dict[str, Any], context: ToolContext) -> bool:
            run = _run_of(context)
            ctx = context_of(
                self._steps.source,
                run.state,
                deps=run.deps,
                model=run.models[0],
                step=run.current.turns,
            )
            ctx.tool_call_id, ctx.tool_name = context.tool_call_id, context.tool_name
            return any(asks(ctx, found.definition, arguments) for asks in found.asks)

        return {"when": when}

    async def _called(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        run = _run_of(context)
        call = _call_of(run, context)
        step = await self._steps.of(run)
        answer = next(reversed(call.interrupt_answers.values()), None)
        if answer is not None and answer.type == "respond":
            return answer.value
        decided = any(each.type in ("approve", "edit") for each in call.decisions.values())
        part = replace(call.part, args=arguments)
        try:
            return await self._done(
                step, part, approved=decided or self._found.definition.kind == "unapproved"
            )
        except ToolRetryError as retry:
            raise Retry(retry_text(retry)) from retry
        except (ToolFailedError, ToolFailed) as failed:
            await run.once(NOT_RETRIED + call.part.tool_call_id, lambda: True)
            raise ToolFailed(str(failed)) from failed
        except ApprovalRequired as asks:
            raise _question(self.name, asks, allowed=("approve", "reject")) from asks
        except CallDeferred as deferred:
            raise _question(self.name, deferred, allowed=("respond", "reject")) from deferred

    async def _done(self, step: Step, part: ToolCallPart, *, approved: bool) -> Any:
        return await step.manager.handle_call(part, approved=approved)


def _question(tool: str, error: ApprovalRequired | CallDeferred, *, allowed: Any) -> Interrupt:
    asked = "It needs approval." if "approve" in allowed else "It is done elsewhere."
    payload: dict[str, Any] = {"tool": tool, "question": asked}
    if error.metadata:
        payload["metadata"] = as_json(error.metadata)
    return Interrupt(payload, allowed=allowed)


class OutputTool(AdoptedTool):
    """A tool by which a model gives its final answer."""

    async def _done(self, step: Step, part: ToolCallPart, *, approved: bool) -> Any:
        source, manager = self._steps.source, step.manager
        run = inside_run.get()
        assert run is not None, "a tool runs in a run"
        in_order = source.agent.end_strategy != "exhaustive"
        if in_order and _is_answered(run, part, source.output_tools()):
            raise ToolFailed(NOT_USED)
        try:
            validated = await manager.validate_output_tool_call(part, schema=source.schema)
            if validated.validation_error is not None:
                raise validated.validation_error
            value = await manager.execute_output_tool_call(validated, schema=source.schema)
        except UnexpectedModelBehavior as error:
            if _is_answered(run, part, source.output_tools()):
                raise ToolFailed(NOT_USED) from error
            raise exceeded(source, str(error)) from error
        return ToolResult("Final result processed.", value=source.dump(value))


NOT_USED = "Output tool not used - a final result was already processed."


def _is_answered(run: Run, part: ToolCallPart, names: Container[str]) -> bool:
    """Whether an earlier call has given the answer already."""
    turn = run.current.turn
    if turn is None:
        return False
    for call in turn.calls.values():
        if call.part.tool_call_id == part.tool_call_id:
            return False
        result = call.result
        if call.part.tool_name in names and result is not None and result.part.outcome == "success":
            return True
    return False


def adopted_tools(
    source: Source,
    steps: Steps,
    options: Mapping[str, ToolOptions],
    *,
    listed_with: object,
    what: str,
) -> tuple[list[AdoptedTool], tuple[OutputTool, ...]]:
    """The tools of the agent, and its output tools.

    Raises:
        UsageError: as `found_tools` does, and for options of an unknown tool.

    """
    found = found_tools(source, listed_with, what=what)
    for name, given in options.items():
        unknown = sorted(given.keys() - ToolOptions.__annotations__.keys())
        if unknown:
            raise UsageError(
                f"{what} has tool_options for {name!r} with the option {unknown[0]!r}; options are "
                f"{', '.join(sorted(ToolOptions.__annotations__))}"
            )
        if name not in found:
            raise UsageError(
                f"{what} has no tool {name!r}, of which tool_options speaks; it has "
                f"{', '.join(map(repr, found)) or 'none'}"
            )
    tools = [AdoptedTool(each, steps, options.get(name, {})) for name, each in found.items()]
    processors = source.output_tools()
    outputs = []
    for definition in source.output_definitions():
        context = processors[definition.name].get_output_context(source.schema, mode="tool")
        declared: ToolOptions = {} if context.has_function else {"read_only": True}
        in_order: ToolOptions = {"sequential": True, **declared}
        outputs.append(OutputTool(Found(definition), steps, in_order))
    return tools, tuple(outputs)


def _run_of(context: ToolContext) -> Run:
    run = inside_run.get()
    if run is None or run.run_id != context.run_id:
        raise UsageError(
            f"The tool {context.tool_name!r} is one of an agent of Pydantic AI: a run of that "
            "agent alone can call it"
        )
    return run


def _call_of(run: Run, context: ToolContext) -> Call:
    turn = run.current.turn
    assert turn is not None, "a call is one of a turn"
    calls = turn.calls.values()
    return next(each for each in calls if each.part.tool_call_id == context.tool_call_id)

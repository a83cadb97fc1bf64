"""Builds an `AgentDefinition` from the options of an `Agent`: checks them, and merges middleware.

Each mistake that can be found before a run is found here, and named with its remedy.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast, get_args

from pydantic import BaseModel
from pydantic_ai.models import Model

from understudy._base.error_texts import error_text
from understudy._base.json_values import (
    check_sendable,
    checked_flag,
    checked_seconds,
    is_storable_text,
    shown,
)
from understudy._base.points_in_time import checked_time
from understudy.agent.model_options import check_models, known_models, output_tools_of
from understudy.errors import UsageError
from understudy.middleware.base import Middleware, Prepared, collect_hooks
from understudy.middleware.cancellation import Cancellation
from understudy.middleware.fallback import Fallback
from understudy.middleware.human_in_the_loop import GatesOfTools, HumanInTheLoop
from understudy.models.output import Output
from understudy.models.prices import Prices
from understudy.models.requirements import OutputMode, check_can_be_forced, checked_native_tools
from understudy.modes import AgentExecution, Mode, collapse_until_tool
from understudy.modes.agent_execution import OWN_STEPS
from understudy.run.child_calls import checked_initial
from understudy.run.definition import AgentDefinition, ChildAgent, OnVersion, definition_of
from understudy.run.hooks import Hook
from understudy.run.instructions import check_instructions
from understudy.run.until_tool import check_force, check_known, refuse_both
from understudy.tools import Tool
from understudy.tools.base_agent import instead_of_agent
from understudy.tools.effects import check_tables
from understudy.tools.gate_rule import Rule
from understudy.tools.tool_defaults import ToolDefaults
from understudy.tools.toolsets import as_tools

LONGEST = 100
"""The maximum characters of a label."""
MOST = 100
"""The maximum number of labels of a host, or of an agent."""


def checked_labels(given: object, *, what: str) -> frozenset[str]:
    """The labels, as a set.

    Raises:
        UsageError: if they are not some short texts.

    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise UsageError(f"{what} must be a set of texts, such as {{'gpu'}}, got {shown(given)}")
    labels = list(given)
    for label in labels:
        is_text = isinstance(label, str) and is_storable_text(label) and label.isprintable()
        if not is_text or label != label.strip() or not 1 <= len(label) <= LONGEST:
            raise UsageError(
                f"{what}: a label is a text of 1 to {LONGEST} printable characters, without spaces "
                f"around it, such as 'gpu', got {shown(label)}"
            )
    if len(labels) > MOST:
        raise UsageError(f"{what} must be at most {MOST} labels, got {len(labels)}")
    return frozenset(labels)


_NAME = re.compile(r"[A-Za-z0-9_-]{1,500}")


def build_definition(
    *,
    tools: object,
    middleware: object,
    mode: Mode | None,
    instructions: Any,
    interrupt_on: Mapping[str, Rule] | None,
    output_key: str | None = None,
    output_type: Any = None,
    output_mode: OutputMode | None = None,
    native_tools: object = (),
    include_contents: Any = "default",
    stays_for_subscribers: object = False,
    undeclared: object = None,
    unknown_after: object = (),
    tool_errors: object = None,
    movable: object = True,
    needs: object = (),
    version: object = 0,
    on_version: Any = "newest",
    **options: Any,
) -> AgentDefinition:
    """The complete definition of an agent.

    Raises:
        UsageError: for an invalid option, with the remedy.

    """
    _check_options(mode=mode, instructions=instructions, **options)
    agent = options["name"]
    check_limits(options["max_runs"], options["early_stopping"], agent=agent)
    check_prompt(options["early_stopping_prompt"], agent=agent)
    check_overrides(options["max_overrides"], agent=agent)
    if options.get("idle_timeout") not in ("runtime", None):
        checked_seconds(options["idle_timeout"], what=f"Agent {agent!r}: idle_timeout")
    if include_contents not in ("default", "none"):
        raise UsageError(
            f"Agent {agent!r}: `include_contents` must be 'default' or 'none', got "
            f"{include_contents!r}"
        )
    stays_for_subscribers = checked_flag(
        stays_for_subscribers, what=f"Agent {agent!r}: `stays_for_subscribers`"
    )
    check_placement(movable, version, on_version, agent=agent)
    output = None
    if isinstance(output_type, Output):
        output = output_type
    elif output_key is not None or output_type is not None or output_mode is not None:
        output = Output(key=output_key, type=output_type, mode=output_mode, agent=agent)
    stack = _stack(middleware, interrupt_on, agent=agent)
    all_hooks = collect_hooks((*stack, *_around_model(options)))
    chosen = mode if mode is not None else AgentExecution()
    base = AgentDefinition(
        **{**options, "fallback_models": _fallback_models(options, stack)},
        instructions=(instructions,) if instructions else (),
        tools=_merge_tools({}, tools, agent=agent, owner="tools"),
        middleware=stack,
        hooks=all_hooks,
        schemas=_schemas(stack, agent=agent),
        cancellation=tuple(
            source for item in stack if isinstance(item, Cancellation) for source in item.sources
        ),
        mode=chosen,
        has_plain_turns=not all_hooks.after_step and chosen.steps == OWN_STEPS,
        output=output,
        native_tools=checked_native_tools(native_tools, agent=agent),
        include_contents=include_contents,
        stays_for_subscribers=stays_for_subscribers,
        tool_defaults=ToolDefaults.given(
            undeclared, unknown_after, tool_errors, what=f"Agent {agent!r}"
        ),
        movable=bool(movable),
        needs=checked_labels(needs, what=f"Agent {agent!r}: `needs`"),
        version=cast("int", version),
        on_version=on_version,
        haltable=any(getattr(item, "halts", False) for item in stack),
        prices=_prices(stack, agent=agent),
        needs_cost=any(item.needs_cost for item in stack),
    )
    asks = base.asks_model
    if not asks:
        _check_workflow(base)
    definition = _prepared(base, stack)
    if output_tools := output_tools_of(definition):
        owner = "output_mode='tool'" if output_mode == "tool" else "its output"
        tools = _merge_tools(definition.tools, output_tools, agent=agent, owner=owner)
        definition = replace(definition, tools=tools, output_tools=output_tools)
    definition = _with_gates_of_tools(definition)
    if any(tool.background for tool in definition.tools.values()):
        from understudy.agent.background import with_starters  # few agents have one

        definition = with_starters(definition)
    if asks and definition.background_inside:
        from understudy.agent.background import tools_for_calls

        owner = "the calls in the background"
        tools = _merge_tools(definition.tools, tools_for_calls(), agent=agent, owner=owner)
        definition = replace(definition, tools=tools)
    for tool in definition.tools.values():
        both = f"Agent {agent!r}, with its tool {tool.name!r},"
        check_tables(tool.nothing_happened, definition.tool_defaults.unknown_after, what=both)
    if not asks:
        _check_workflow_hooks(definition)
    _check_output(definition)
    check_models(definition, known_models(definition))
    if asks and definition.model is None:
        raise UsageError(
            f"Agent {agent!r}: `model` is None, and its mode ({definition.mode.name}) needs one: "
            "give a Pydantic AI model or its name, such as 'openai:gpt-5-mini'; or as `mode` a "
            "workflow of agents, such as Sequential([...]), or steps without call_llm"
        )
    if not asks and definition.tools:
        raise UsageError(
            f"Agent {agent!r} calls no model, so nothing could call {', '.join(definition.tools)}: "
            "give the middleware with these tools to the agents that it runs"
        )
    if (
        asks
        and definition.hooks.check_tool_calls
        and "check_interrupts" not in definition.mode.step_names
    ):
        raise UsageError(
            f"Agent {agent!r}: a middleware or their `ask` gates tools, but the mode has no step "
            "check_interrupts, so the gate would be silently off: add the step"
        )
    for hooks, step in (
        (definition.hooks.before_step, "check_stop"),
        (definition.hooks.after_step, "continue_or_finish"),
    ):
        if hooks and step not in definition.mode.step_names:
            raise UsageError(
                f"Agent {agent!r}: middleware {hooks[0].middleware} has {hooks[0].name}, but the "
                f"mode has no step {step}, so it would be silently off: add the step"
            )
    for item in stack:
        with _named(item, "check", agent=agent):
            item.check(definition)
    return definition


@contextlib.contextmanager
def _named(item: Middleware, hook: str, *, agent: object) -> Iterator[None]:
    """Name the middleware in the error that its hook raises; for a `UsageError`, in a note."""
    where = f"{hook} of middleware {item.name!r}"
    try:
        yield
    except UsageError as error:
        error.add_note(f"Raised by {where} of agent {agent!r}.")
        raise
    except Exception as error:
        raise UsageError(f"Agent {agent!r}: {where} raised {error_text(error)}") from error


def _check_options(
    name: object,
    *,
    model: object,
    description: object,
    instructions: object,
    fallback_models: object,
    retry: object,
    mode: object,
    pause_when: object,
    model_settings: object,
    **_: object,
) -> None:
    name = check_name(name)
    if isinstance(fallback_models, (str, Model)) or not isinstance(fallback_models, Sequence):
        raise UsageError(
            f"Agent {name!r}: `fallback_models` must be a list, got {fallback_models!r}"
        )
    for given in (*(() if model is None else (model,)), *fallback_models):
        if not isinstance(given, (str, Model)) or not given:
            raise UsageError(
                f"Agent {name!r}: a model must be a Pydantic AI model or its name, such as "
                f"'openai:gpt-5-mini', got {given!r}"
            )
        if isinstance(given, Model):
            settings = getattr(given, "settings", None)
            check_sendable(settings, what=f"Agent {name!r}: `settings` of {type(given).__name__}")
    if not isinstance(description, str):
        raise UsageError(f"Agent {name!r}: `description` must be a text, got {description!r}")
    check_sendable(description, what=f"Agent {name!r}: `description`")
    if retry is not None:
        from tenacity import AsyncRetrying  # few agents have one

        if not isinstance(retry, AsyncRetrying):
            wanted = "must be a tenacity.AsyncRetrying"
            raise UsageError(f"Agent {name!r}: `retry` {wanted}, got {retry!r}")
    if mode is not None and not isinstance(mode, Mode):
        raise UsageError(
            f"Agent {name!r}: `mode` must be a Mode, such as AgentExecution(), got {mode!r}"
        )
    if model_settings is not None and not isinstance(model_settings, Mapping):
        raise UsageError(
            f"Agent {name!r}: `model_settings` must be a dict, such as {{'temperature': 0}}, got "
            f"{model_settings!r}"
        )
    check_sendable(model_settings, what=f"Agent {name!r}: `model_settings`")
    if pause_when is not None and not callable(pause_when):
        raise UsageError(f"Agent {name!r}: `pause_when` must be a function, got {pause_when!r}")
    check_instructions(instructions, agent=name)


def _check_output(definition: AgentDefinition) -> None:
    key = definition.output.key if definition.output is not None else None
    for owner, schema in definition.schemas.items():
        if key is not None and key in schema.model_fields:
            raise UsageError(
                f"Agent {definition.name!r}: output_key={key!r} is a value that {owner} keeps: "
                "choose another name"
            )


def _check_workflow(definition: AgentDefinition) -> None:
    """Raise for options that a workflow does not use: they would be silently ignored."""
    unused = {
        "model": definition.model,
        "fallback_models": definition.fallback_models,
        "model_settings": definition.model_settings,
        "retry": definition.retry,
        "instructions": definition.instructions,
        "tools": definition.tools,
        "output_key or output_type": definition.output,
        "native_tools": bool(definition.native_tools),
        "max_runs": definition.max_runs != AgentDefinition.max_runs,
        "early_stopping": definition.early_stopping != AgentDefinition.early_stopping,
        "early_stopping_prompt": definition.early_stopping_prompt is not None,
        "max_overrides": definition.max_overrides != AgentDefinition.max_overrides,
    }
    for option, given in unused.items():
        if given:
            what = f"{option} ({', '.join(given)})" if isinstance(given, dict) else option
            if not definition.mode.agents:
                raise UsageError(
                    f"Agent {definition.name!r} has no model, and nothing in {definition.mode!r} "
                    f"would use {what}: give a model, or leave it out"
                )
            raise UsageError(
                f"Agent {definition.name!r} runs other agents by {definition.mode!r} and calls no "
                f"model itself: give {what} to its agents, not to it"
            )
    nested = [definition.name, *_names_below(definition)]
    for name in nested:
        if nested.count(name) > 1:
            where = "nested in itself" if name == definition.name else "twice in this workflow"
            raise UsageError(
                f"Agent {definition.name!r}: an agent named {name!r} is {where}: give each agent "
                "of a workflow, at any depth, its own name"
            )


def _check_workflow_hooks(definition: AgentDefinition) -> None:
    """Raise for hooks around model and tool calls. Gates are fine: they apply to agents below."""
    hooks, gates = definition.hooks, {type(gate).__name__ for gate in definition.gates}
    for hook in (
        *hooks.before_model,
        *hooks.after_model,
        *hooks.wrap_model_call,
        *hooks.wrap_tool_call,
        *(hook for hook in hooks.check_tool_calls if hook.middleware not in gates),
    ):
        raise UsageError(
            f"Agent {definition.name!r}: middleware {hook.middleware} has {hook.name}, but "
            f"{definition.mode!r} calls no model and no tools itself, so it would be silently off: "
            "give it to the agents of the workflow"
        )


def _names_below(definition: AgentDefinition) -> list[str]:
    names = []
    for child in definition.mode.agents:
        names += [child.definition.name, *_names_below(child.definition)]
    return names


def check_limits(max_runs: object, early_stopping: object, *, agent: str) -> None:
    if not isinstance(max_runs, int) or isinstance(max_runs, bool) or max_runs < 1:
        raise UsageError(
            f"Agent {agent!r}: `max_runs` must be an integer of at least 1, got {max_runs!r}"
        )
    if early_stopping not in ("force", "generate"):
        raise UsageError(
            f"Agent {agent!r}: `early_stopping` must be 'force' or 'generate', got "
            f"{early_stopping!r}"
        )


LARGEST_VERSION = (1 << 63) - 1


def check_placement(movable: object, version: object, on_version: object, *, agent: str) -> None:
    checked_flag(movable, what=f"Agent {agent!r}: `movable`")
    is_number = isinstance(version, int) and not isinstance(version, bool)
    if not is_number or not 0 <= cast("int", version) <= LARGEST_VERSION:
        raise UsageError(
            f"Agent {agent!r}: `version` must be an integer of at least 0, got {shown(version)}"
        )
    if on_version not in get_args(OnVersion):
        raise UsageError(
            f"Agent {agent!r}: `on_version` must be 'newest' or 'wait', got {shown(on_version)}"
        )


def check_prompt(prompt: object, *, agent: str) -> None:
    if prompt is not None and (not isinstance(prompt, str) or not prompt.strip()):
        raise UsageError(
            f"Agent {agent!r}: `early_stopping_prompt` must be a non-empty text, got {prompt!r}"
        )
    check_sendable(prompt, what=f"Agent {agent!r}: `early_stopping_prompt`")


def check_overrides(max_overrides: object, *, agent: str) -> None:
    if not isinstance(max_overrides, int) or isinstance(max_overrides, bool) or max_overrides < 0:
        raise UsageError(
            f"Agent {agent!r}: `max_overrides` must be an integer of at least 0, got "
            f"{max_overrides!r}"
        )


def check_name(name: object) -> str:
    """The name of an agent; raises a `UsageError` if it is no valid name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"Agent: `name` must consist of 1 to 500 letters, digits, _ and -, got {shown(name)}"
        )
    return name


def check_deadline(deadline: object) -> float | None:
    """The deadline of a run, in seconds, or None.

    Raises:
        UsageError: for anything but a number above 0.

    """
    return None if deadline is None else checked_seconds(deadline, what="deadline")


def check_ends_at(ends_at: object) -> datetime | None:
    """The time at which a run ends, or None.

    Raises:
        UsageError: for anything but a datetime with a time zone.

    """
    return None if ends_at is None else checked_time(ends_at, what="`ends_at`")


def _stack(
    middleware: object, interrupt_on: Mapping[str, Rule] | None, *, agent: str
) -> tuple[Middleware, ...]:
    if isinstance(middleware, Middleware) or not isinstance(middleware, Sequence):
        raise UsageError(f"Agent {agent!r}: `middleware` must be a list, got {middleware!r}")
    for item in middleware:
        if not isinstance(item, Middleware):
            raise UsageError(
                f"Agent {agent!r}: `middleware` must hold instances of subclasses of "
                f"understudy.middleware.Middleware, got {item!r}"
            )
    stack = cast("tuple[Middleware, ...]", tuple(middleware))
    if interrupt_on is not None:
        if any(isinstance(item, HumanInTheLoop) for item in stack):
            raise UsageError(
                f"Agent {agent!r}: interrupt_on and HumanInTheLoop are both given: use one"
            )
        stack = (*stack, HumanInTheLoop(interrupt_on))
    return stack


def _prices(stack: Sequence[Middleware], *, agent: str) -> Prices | None:
    """The prices for the replies of the agent. Only one set of prices is allowed: a reply has one
    cost.
    """
    given = [item.prices for item in stack if item.prices is not None]
    if any(each is not given[0] for each in given):
        raise UsageError(
            f"Agent {agent!r}: `pricing` is given twice: give it to one middleware, which is "
            "enough for all, or the same Prices(...) to each"
        )
    return given[0] if given else None


def _fallback_models(
    options: Mapping[str, Any], stack: Sequence[Middleware]
) -> tuple[str | Model, ...]:
    """The fallback models of the option, or of the middleware."""
    given = [tuple(options["fallback_models"])] if options["fallback_models"] else []
    given += [item.models for item in stack if isinstance(item, Fallback)]
    if len(given) > 1:
        raise UsageError(
            f"Agent {options['name']!r}: fallback models are given twice: use `fallback_models` or "
            "one Fallback"
        )
    return given[0] if given else ()


def _around_model(options: Mapping[str, Any]) -> list[Middleware]:
    """The middleware for which `fallback_models` and `retry` stand. It is not in the
    fingerprint.
    """
    stands_for: list[Middleware[Any]] = []
    if options["fallback_models"]:
        stands_for.append(Fallback(options["fallback_models"]))
    if options["retry"]:
        from understudy.middleware.retry import Retry  # few agents have one

        stands_for.append(Retry(options["retry"]))
    return stands_for


def _merge_tools(
    into: Mapping[str, Tool], tools: object, *, agent: str, owner: str
) -> dict[str, Tool]:
    if isinstance(tools, (str, Tool)) or not isinstance(tools, Sequence):
        raise UsageError(f"Agent {agent!r}: {owner} must be a list of functions, got {tools!r}")
    merged = dict(into)
    for tool in (each for given in tools for each in as_tools(given)):
        if tool.name in merged:
            raise UsageError(
                f"Agent {agent!r} has two tools named {tool.name!r} (the second from {owner}): "
                "rename one with @tool(name=...)"
            )
        merged[tool.name] = tool
    had: dict[str, str] = {}
    for name, tool in merged.items():
        for alias in tool.aliases:
            other = alias if alias in merged else had.get(alias)
            if other is not None:
                raise UsageError(
                    f"Agent {agent!r}: tools {name!r} and {other!r} both stand for {alias!r}, "
                    f"which is an alias of {name!r}: each name may stand for one tool only"
                )
            had[alias] = name
    return merged


def _schemas(stack: Sequence[Middleware], *, agent: str) -> dict[str, type[BaseModel]]:
    owners: dict[str, str] = {}
    schemas: dict[str, type[BaseModel]] = {}
    for item in stack:
        if item.state_schema is None:
            continue
        for key in item.state_schema.model_fields:
            if key in owners:
                raise UsageError(
                    f"Agent {agent!r}: {item.name} and {owners[key]} both add the value {key!r}: "
                    "rename one"
                )
            owners[key] = item.name
        schemas[item.name] = item.state_schema
    return schemas


def _prepared(definition: AgentDefinition, stack: Sequence[Middleware]) -> AgentDefinition:
    agent = definition.name
    instructions, tools = list(definition.instructions), dict(definition.tools)
    children = {child.definition.name: child for child in definition.mode.agents}
    for item in stack:
        with _named(item, "prepare", agent=agent):
            added = item.prepare(definition)
        if not isinstance(added, Prepared):
            raise UsageError(f"{item.name}.prepare must return Prepared(...), got {added!r}")
        for given in added.agents:
            child = _child(given, definition)
            if child.definition.name in children:
                raise UsageError(
                    f"Agent {agent!r} has two children named {child.definition.name!r}: rename one"
                )
            children[child.definition.name] = child
        check_instructions(added.instructions, agent=agent)  # they may describe the children
        if added.instructions:
            instructions.append(added.instructions)
        tools = _merge_tools(tools, added.tools, agent=agent, owner=item.name)
    gates = tuple(item for item in stack if isinstance(item, HumanInTheLoop))
    return replace(
        definition, instructions=tuple(instructions), tools=tools, children=children, gates=gates
    )


def _with_gates_of_tools(definition: AgentDefinition) -> AgentDefinition:
    """The definition with a gate for tools with `ask`, after the gates of the middleware."""
    rules = {tool.name: tool.gate for tool in definition.tools.values() if tool.gate is not None}
    if not rules:
        return definition
    gate = GatesOfTools(rules)
    own = Hook.of(gate, "check_tool_calls", gate.check_tool_calls)
    checks = (*definition.hooks.check_tool_calls, own)
    return replace(definition, hooks=replace(definition.hooks, check_tool_calls=checks))


_CHILD_OPTIONS = (
    "name",
    "description",
    "instructions",
    "tools",
    "middleware",
    "model",
    "max_runs",
    "early_stopping",
    "early_stopping_prompt",
    "max_overrides",
    "native_tools",
    "until_tool",
    "until_tool_success",
    "force",
    "initial_messages",
)


def _child(given: Any, parent: AgentDefinition) -> ChildAgent:
    """The child as it was given, or made from its options."""
    if not isinstance(given, Mapping):
        definition = definition_of(given)
        if definition is None:
            raise UsageError(
                f"Agent {parent.name!r}: a child must be an Agent or a dict, got "
                + instead_of_agent(given)
            )
        return ChildAgent(definition=definition)
    unknown = [key for key in given if key not in _CHILD_OPTIONS]
    if unknown:
        raise UsageError(
            f"Agent {parent.name!r}: a child has the option {unknown[0]!r}; options are "
            f"{', '.join(_CHILD_OPTIONS)}"
        )
    until, until_success = given.get("until_tool"), given.get("until_tool_success")
    refuse_both(until, until_success)
    names, require_success = collapse_until_tool(until, until_success)
    middleware = given.get("middleware", ())
    asks_others = "model" in given or any(isinstance(item, Fallback) for item in middleware)
    definition = build_definition(
        name=given.get("name"),
        model=given.get("model", parent.model),
        description=given.get("description", ""),
        instructions=given.get("instructions", ""),
        tools=given.get("tools", ()),
        middleware=middleware,
        mode=None,
        interrupt_on=None,
        max_runs=given.get("max_runs", 50),
        early_stopping=given.get("early_stopping", "force"),
        early_stopping_prompt=given.get("early_stopping_prompt"),
        max_overrides=given.get("max_overrides", 3),
        native_tools=given.get("native_tools", ()),
        fallback_models=() if asks_others else parent.fallback_models,
        model_settings=parent.model_settings,
        retry=parent.retry,
        pause_when=None,
        undeclared=parent.tool_defaults.undeclared,
        unknown_after=parent.tool_defaults.unknown_after,
        tool_errors=parent.tool_defaults.errors,
    )
    if names is not None:
        check_known(names, definition.tools, agent=definition.name)
    force = given.get("force", False)
    check_force(force, names, agent=definition.name)
    if force:
        check_can_be_forced(known_models(definition), agent=definition.name)
    return ChildAgent(
        definition=definition,
        until_tool=names,
        require_tool_success=require_success,
        force=force,
        initial_messages=checked_initial(
            given.get("initial_messages", ()), what=f"Agent {definition.name!r}"
        ),
    )

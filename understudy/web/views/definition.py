"""The definition of an agent: its prompt, its tools with their gates, and its middleware."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from understudy._base.json_values import jsonable
from understudy.actors import Observer, Runtime
from understudy.middleware.base import Middleware
from understudy.middleware.human_in_the_loop import HumanInTheLoop
from understudy.run.definition import AgentDefinition, Gate, covers
from understudy.run.hooks import Hook
from understudy.run.instructions import Instructions
from understudy.tools import Tool
from understudy.tools.gate_rule import GateRule
from understudy.web.views.agents import info_of
from understudy.web.visit import Visit

OBSERVED = (
    "These pages look at the store beside the runtimes: the definitions are in the programs of the "
    "runtimes, and none of them is here."
)
ELSEWHERE = (
    "No definition of this name is in this process: it is at another host, or the program does not "
    "have it any more."
)


async def definition(visit: Visit) -> dict[str, Any]:
    """The registered definition, with those of inner agents; or the reason why it is not known."""
    name = (await info_of(visit)).agent
    source = visit.source
    found = None
    if isinstance(source, Runtime):
        found = next((each for each in source.definitions if each.name == name), None)
    why = OBSERVED if isinstance(source, Observer) else ELSEWHERE
    return {
        "id": visit.agent_id,
        "name": name,
        "why_unknown": why if found is None else None,
        "has_rules": isinstance(source, Runtime) and source.rules is not None,
        "agents": [] if found is None else list(_with_inner(found.definition, (name,), ())),
    }


def _with_inner(
    given: AgentDefinition, path: tuple[str, ...], above: tuple[Gate, ...]
) -> Iterator[dict[str, Any]]:
    """The definition and those of the agents that it may run, each with the gates above it."""
    yield definition_row(given, path, above)
    inner = {child.definition.name: child for child in given.mode.agents}
    for name, child in {**inner, **given.children}.items():
        if name not in path:  # an agent may run itself
            yield from _with_inner(child.definition, (*path, name), (*above, *given.gates))


def definition_row(
    given: AgentDefinition, path: tuple[str, ...], above: tuple[Gate, ...] = ()
) -> dict[str, Any]:
    """A definition as plain data."""
    gates = (*above, *given.gates)
    return {
        "agent_path": list(path),
        "name": given.name,
        "description": given.description,
        "version": given.version,
        "model": None if given.model is None else _model_name(given.model),
        "fallback_models": [_model_name(model) for model in given.fallback_models],
        "model_settings": jsonable(dict(given.model_settings or {})),
        "instructions": [_instructions(each) for each in given.instructions],
        "tools": [tool_row(given, tool, gates) for tool in given.declared_tools.values()],
        "native_tools": [each.kind for each in given.native_tools],
        "middleware": [middleware_row(given, each) for each in given.middleware],
        "mode": given.mode.name,
        "steps": list(given.mode.step_names),
        "max_runs": given.max_runs,
        "early_stopping": given.early_stopping,
        "output_key": None if given.output is None else given.output.key,
        "needs": sorted(given.needs),
        "on_version": given.on_version,
    }


def _model_name(model: Any) -> str:
    if isinstance(model, str):
        return model
    name = getattr(model, "model_name", None)
    return name if isinstance(name, str) else type(model).__name__


def _instructions(given: Instructions) -> dict[str, Any]:
    """A text as it is registered, or the name of the function that makes it."""
    if isinstance(given, str):
        return {"text": given, "function": None}
    return {"text": None, "function": _name_of(given)}


def _name_of(function: Any) -> str:
    """The name of a function, or of the class of a callable object."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', type(function).__module__)}.{name}"


def tool_row(given: AgentDefinition, tool: Tool, gates: tuple[Gate, ...]) -> dict[str, Any]:
    """A tool as plain data, with the known effects of a call, and its gate."""
    undeclared = tool.undeclared or given.tool_defaults.undeclared or "effects"
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": jsonable(tool.parameters),
        "effect": tool.effect or undeclared,
        "is_declared": tool.effect is not None,
        "has_key": tool.key is not None,
        "has_check": tool.check is not None,
        "on_unknown": tool.on_unknown,
        "timeout": tool.timeout,
        "sequential": tool.sequential,
        "aliases": list(tool.aliases),
        "version": tool.version,
        "gate": gate_row(tool, gates),
    }


def gate_row(tool: Tool, gates: tuple[Gate, ...]) -> dict[str, Any] | None:
    """What a person may decide about calls of the tool, and who must agree; None without a gate.

    Each gate that covers the tool asks. The first gate says what may be decided. If a gate of the
    agent, or of an agent above, names the tool, the tool's own option `ask` does not hold.
    """
    named = [gate for gate in gates if covers(gate, tool) is not None]
    asking = [gate for gate in named if covers(gate, tool)]
    rule = next((found for gate in asking if (found := _rule(gate, tool)) is not None), None)
    several = (gate.approvals().get(name) for gate in asking for name in tool.names)
    approval = next((each for each in several if each is not None), None)
    if not named and tool.gate is not None:
        rule, approval = tool.gate, tool.gate.approval
    if not asking and rule is None:
        return None
    return {
        "allowed": [] if rule is None else list(rule.allowed),
        "when": None if rule is None or rule.when is None else _name_of(rule.when),
        "display": None if rule is None or rule.display is None else _name_of(rule.display),
        "must_agree": "" if approval is None else approval.text,
    }


def _rule(gate: Gate, tool: Tool) -> GateRule | None:
    if not isinstance(gate, HumanInTheLoop):
        return None
    return next((rule for name in tool.names if (rule := gate.rule_of(name)) is not None), None)


def middleware_row(given: AgentDefinition, item: Any) -> dict[str, Any]:
    """A middleware as plain data: its own description, and its hooks."""
    about = "" if type(item) is Middleware else inspect.getdoc(type(item)) or ""
    names = given.hooks.__dataclass_fields__
    hooks = [name for name in names if _is_hook_of(getattr(given.hooks, name), item)]
    return {
        "name": item.name,
        "class_name": _name_of(type(item)),
        "about": about.partition("\n\n")[0].replace("\n", " "),
        "hooks": hooks,
    }


def _is_hook_of(hooks: Any, item: Any) -> bool:
    if not isinstance(hooks, tuple):
        return False
    of = (getattr(hook.function, "__self__", None) for hook in hooks if isinstance(hook, Hook))
    return any(each is item for each in of)

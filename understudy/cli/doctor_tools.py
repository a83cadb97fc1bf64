"""Finds the tools of a program that do not declare their effects, for `understudy doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from understudy.agent.agent import Agent
from understudy.cli.doctor_store import Check
from understudy.modes.steps.tool_call.arguments import declared_effect
from understudy.run.definition import AgentDefinition, Gate
from understudy.state.records import Effect
from understudy.tools import Tool
from understudy.tools.tool_defaults import ToolDefaults
from understudy.tools.varying import varying_arguments


class _Found(NamedTuple):
    """A tool of an agent."""

    path: str
    tool: Tool[Any]
    effect: Effect


def of_tools(agents: Sequence[Agent[Any, Any]], defaults: ToolDefaults) -> Iterator[Check]:
    """The tools that do not declare the effect of calling them again, or may miss an equal call.

    Args:
        agents: the definitions of the program.
        defaults: the defaults of its runtime.

    """
    found: dict[tuple[int, Effect], _Found] = {}
    for agent in agents:
        for each in _tools_of(agent.definition, (), (), defaults):
            # An inner agent may have the tools of the agent above: each tool is reported once.
            found.setdefault((id(each.tool), each.effect), each)
    undeclared = [each for each in found.values() if not _is_said(each.tool)]
    harmful = [each.path for each in undeclared if each.effect == "effects"]
    harmless = [each.path for each in undeclared if each.effect != "effects"]
    if harmful:
        detail = f"count as tools with effects: {', '.join(harmful)}. A tool that only looks "
        detail += "something up says read_only=True; one that may run again, idempotent=True; one "
        detail += 'that has effects, undeclared="effects"'
        yield Check("undeclared", "note", detail)
    if harmless:
        detail = f"count as read-only, by `undeclared`: {', '.join(harmless)}"
        yield Check("undeclared", "note", detail)
    varying = []
    for each in found.values():
        if each.effect != "effects" or each.tool.key is not None:
            continue
        arguments = varying_arguments(each.tool)
        if arguments:
            kinds = ", ".join(f"{name} is {what}" for name, what in arguments.items())
            varying.append(f"{each.path} ({kinds})")
    if varying:
        detail = f"two calls that mean the same may differ in a time or an id: {'; '.join(varying)}"
        yield Check("no key", "note", f"{detail}. A `key` says which calls are equal")


def _is_said(tool: Any) -> bool:
    """Whether a tool declares its effect, or has options that only a tool with effects needs."""
    is_known = tool.effect is not None or tool.undeclared == "effects"
    return is_known or tool.is_known_to_have_effects or bool(tool.unknown_after)


def _tools_of(
    definition: AgentDefinition,
    path: tuple[str, ...],
    above: tuple[Gate, ...],
    defaults: ToolDefaults,
) -> Iterator[_Found]:
    """The tools of an agent and of the agents that it declares, at any depth."""
    here = (*path, definition.name)
    for tool in definition.declared_tools.values():
        effect = declared_effect(tool, definition, above, defaults)
        yield _Found("/".join((*here, tool.name)), tool, effect)
    gates = (*definition.gates, *above)
    for child in (*definition.mode.agents, *definition.children.values()):
        yield from _tools_of(child.definition, here, gates, defaults)

"""Checks of definitions and rules against each other: the tools that rules see, and who can
approve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from understudy.agent.agent import Agent
from understudy.approvals import Approval
from understudy.errors import UsageError
from understudy.models.requirements import native_names
from understudy.run.definition import AgentDefinition
from understudy.tools import InvalidArguments
from understudy.trust.check import ReachableTool, matches_nothing, who_can_meet
from understudy.trust.people import People
from understudy.trust.rules import Rules
from understudy.trust.trial import Known, KnownTool

NATIVE = "a native tool, which its provider runs before the reply comes: no rule sees its calls"
OUTPUT = "the tool by which the model gives its final answer: no rule sees its calls"


def reachable_tools(agents: Iterable[Agent]) -> Iterator[ReachableTool]:
    """The tools of these agents, and of the inner agents that they declare.

    An agent that a tool runs only by `ctx.run_agent` is in no definition, so its tools are missing
    here.
    """
    for path, definition in all_definitions(agents):
        for tool in definition.tools.values():
            unseen = OUTPUT if tool in definition.output_tools else ""
            yield ReachableTool(agent_path=path, names=tuple(tool.names), unseen=unseen)
        for name in sorted(native_names(definition.native_tools)):
            yield ReachableTool(agent_path=path, names=(name,), unseen=NATIVE)


def all_definitions(agents: Iterable[Agent]) -> Iterator[tuple[tuple[str, ...], AgentDefinition]]:
    """All definitions, each with the path of names from the outermost agent to itself."""

    def of(
        definition: AgentDefinition, above: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], AgentDefinition]]:
        path = (*above, definition.name)
        yield path, definition
        for child in (*definition.mode.agents, *definition.children.values()):
            yield from of(child.definition, path)

    for agent in agents:
        yield from of(agent.definition, ())


def known_tools(agents: Iterable[Agent]) -> Known:
    """A lookup of the tools of recorded calls in these definitions.

    Args:
        agents: the definitions of today.

    """
    definitions = dict(all_definitions(agents))

    def known(path: tuple[str, ...], name: str, arguments: Mapping[str, Any]) -> KnownTool | str:
        definition = definitions.get(path)
        tool = None if definition is None else definition.tool_of(name)
        if definition is None or tool is None:
            return "calls that no definition of today can make"
        if tool in definition.output_tools:
            return f"calls of {OUTPUT}"
        try:
            made = tool.canonical(tool.validate(arguments))
        except InvalidArguments:
            return "calls whose arguments the tool of today refuses"
        return KnownTool(tuple(tool.names), made)

    return known


def check_approvals(agents: Iterable[Agent], rules: Rules | None, people: People | None) -> None:
    """Refuse gates and rules that ask for more persons than there are, if persons are listed.

    Args:
        agents: the agents of a runtime, whose gates are checked.
        rules: the rules of the runtime.
        people: the people who may vote.

    Raises:
        UsageError: if nobody could ever meet what a rule or a gate asks for.

    """
    if people is None or people.listed is None:
        return
    asked: list[tuple[str, Approval | None]] = [
        (f"the rule {rule.name!r}", rule.approval)
        for rule in (rules.rules if rules is not None else ())
    ]
    for path, definition in all_definitions(agents):
        for gate in definition.gates:
            for tool, of_gate in gate.approvals().items():
                asked.append((f"the gate of {tool!r} of agent {'/'.join(path)!r}", of_gate))
    known: dict[str, str] = {}
    for what, approval in asked:
        if approval is None:
            continue
        if approval.text not in known:
            known[approval.text], _ = who_can_meet(approval, people)
        if known[approval.text]:
            raise UsageError(
                f"{what} can never be met: {known[approval.text]}. Name them in `people`, or ask "
                "for fewer"
            )


def rules_that_match_nothing(agents: Iterable[Agent], rules: Rules) -> list[str]:
    """Warnings about rules that name one tool and that no call can match by now.

    Agents that are declared later may have the tool.
    """
    return matches_nothing(rules, reachable_tools(agents))

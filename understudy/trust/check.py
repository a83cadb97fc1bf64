"""Checks rules against existing tools, and whether persons can meet what the rules ask.

It needs no runtime: the tools come from definitions, by `agent.rule_checks.reachable_tools`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from understudy.approvals import MAX_PERSONS, Approval, persons_missing
from understudy.trust.people import Key, People, Person
from understudy.trust.rules import Rule, Rules

WILD = frozenset("*?[")
"""The characters that make a name a pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableTool:
    """A tool that an agent may call."""

    agent_path: tuple[str, ...]
    """The names of the agents from the outermost to the owner of the tool."""
    names: tuple[str, ...]
    """The name of the tool, and its earlier names."""
    unseen: str = ""
    """The reason why no rule sees its calls; empty if rules see them."""

    @property
    def text(self) -> str:
        """The agents and the tool: "boss/desk/refund"."""
        return "/".join((*self.agent_path, self.names[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCheck:
    """The findings about a rule."""

    rule: Rule
    matches: tuple[str, ...] = ()
    """The tools that it matches, each after the names of its agents."""
    problems: tuple[str, ...] = ()
    """The reasons why the rule cannot work; empty if it is fine."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        return {
            "rule": self.rule.name,
            "kind": self.rule.kind,
            "tool": self.rule.tool,
            "agent": self.rule.agent,
            "matches": list(self.matches),
            "problems": list(self.problems),
            "notes": list(self.notes),
        }


def check_rules(
    rules: Rules, tools: Iterable[ReachableTool], people: People | None = None
) -> list[RuleCheck]:
    """The matches and problems of each rule.

    Args:
        rules: the rules to check.
        tools: the existing tools.
        people: the persons who may vote; None if nobody is named.

    """
    there = list(tools)
    return [_checked(rule, there, people) for rule in rules.rules]


def matches_nothing(rules: Rules, tools: Iterable[ReachableTool]) -> list[str]:
    """Warnings about rules that name a tool which no agent has, or which no rule sees."""
    there = list(tools)
    named = (rule for rule in rules.rules if not WILD & {*rule.tool, *rule.agent.removeprefix("*")})
    return [problem for rule in named for problem in _checked(rule, there, None).problems]


def _checked(rule: Rule, tools: Sequence[ReachableTool], people: People | None) -> RuleCheck:
    found = [tool for tool in tools if rule.covers(tool.names, tool.agent_path)]
    seen = [tool for tool in found if not tool.unseen]
    problems: list[str] = []
    notes = [f"{tool.text}: {tool.unseen}" for tool in found if tool.unseen and seen]
    if found and not seen:
        problems += [f"{tool.text}: {tool.unseen}" for tool in found]
    elif not found:
        problems.append(_why_nothing(rule, tools))
    if rule.approval is not None:
        problem, note = who_can_meet(rule.approval, people)
        problems += [problem] if problem else []
        notes += [note] if note else []
    return RuleCheck(
        rule=rule,
        matches=tuple(dict.fromkeys(tool.text for tool in seen)),
        problems=tuple(f"rule {rule.name!r}: {each}" for each in problems),
        notes=tuple(notes),
    )


def _why_nothing(rule: Rule, tools: Sequence[ReachableTool]) -> str:
    agents = {name for tool in tools for name in tool.agent_path}
    if rule.agent != "*" and not any(rule.covers_agent((agent,)) for agent in agents):
        near = _near(rule.agent, agents)
        return f"no agent is named {rule.agent!r}{near}"
    of_agent = "" if rule.agent == "*" else f" of agent {rule.agent!r}"
    names = {name for tool in tools for name in tool.names}
    return f"no tool{of_agent} is named {rule.tool!r}{_near(rule.tool, names)}"


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(known), n=3)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def who_can_meet(approval: Approval, people: People | None) -> tuple[str, str]:
    """The reason why nobody could ever meet an approval, and a warning about it; both may be empty.

    Args:
        approval: the approval that is asked.
        people: the persons who may vote. A function cannot be listed.

    """
    if people is None:
        return "", "nobody is named by `people`, so nobody can vote"
    if people.listed is None:
        roles = people.seen_roles()
        unseen = sorted(approval.roles - roles)
        if not unseen:
            return "", ""
        return "", f"`people` is a function, and nobody seen so far is {', '.join(unseen)}"
    by_role = _by_role(people.listed, approval.roles)
    ways = [persons_missing(way, by_role) for way in approval.ways]
    if not all(ways):
        return "", ""
    missing = " or ".join(
        " and ".join(f"{number} more of {role}" for role, number in way.items()) for way in ways
    )
    return f"it asks {approval.text}, and `people` lacks {missing}", ""


def _by_role(listed: Mapping[Key, Person], roles: frozenset[str]) -> dict[str, set[str]]:
    """The ids of persons by role; no more per role than can be asked for."""
    found: dict[str, set[str]] = {role: set() for role in roles}
    for person in listed.values():
        if person.kind != "person":
            continue
        for role in person.roles & roles:
            if len(found[role]) < MAX_PERSONS:
                found[role].add(person.id)
    return found

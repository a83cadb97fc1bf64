"""Assertions about the verdict of rules: `assert_denied(rules, "refund", {"amount": 2000})`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from understudy._base.clock import SystemClock
from understudy.agent.agent import Agent
from understudy.agent.rule_checks import reachable_tools
from understudy.trust import CallView, People, Person, Rules, Verdict
from understudy.trust.check import check_rules


def assert_denied(
    rules: Rules,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    by: str | None = None,
    view: CallView | None = None,
) -> None:
    """Assert that a rule denies the call.

    Args:
        rules: the rules that judge the call.
        tool: the name of the tool.
        arguments: the arguments of the call.
        by: the name of the rule that must deny it; None = any rule.
        view: more facts about the call, such as its agent.

    Raises:
        AssertionError: if no rule denies it, or only other rules do. The error shows the
            verdict.

    """
    _assert(rules, "deny", tool, arguments, by, view)


def assert_asked(
    rules: Rules,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    by: str | None = None,
    view: CallView | None = None,
) -> None:
    """Assert that a rule asks persons about the call, and that no rule denies it.

    Args:
        rules, tool, arguments, view: as in `assert_denied`. by: the name of a rule that must ask;
        None = any rule.

    Raises:
        AssertionError: if no rule asks, or a rule denies the call.

    """
    _assert(rules, "ask", tool, arguments, by, view)


def assert_unasked(
    rules: Rules, tool: str, arguments: Mapping[str, Any], *, view: CallView | None = None
) -> None:
    """Assert that no rule denies the call or asks about it. The gates of an agent may still ask.

    Args:
        rules, tool, arguments, view: as in `assert_denied`.

    Raises:
        AssertionError: if a rule denies the call, or asks about it.

    """
    found = rules.verdict(tool, arguments, view)
    if found.result not in (None, "allow"):
        raise AssertionError(_said(tool, arguments, found, "must neither be denied nor asked"))


def assert_rules_fit(
    rules: Rules,
    agents: Iterable[Agent[Any, Any]],
    *,
    people: Mapping[str, Person | Iterable[str]] | None = None,
) -> None:
    """Assert that each rule matches a tool, and that enough persons exist for what it asks.

    Args:
        rules: the rules to check.
        agents: the definitions whose tools the rules are about, with the agents inside them.
        people: as in `Runtime(people=...)`; None = the persons are not checked.

    Raises:
        AssertionError: if a rule matches nothing, is about a tool that rules do not see, or
            asks for more persons of a role than there are. The error names the rule and similar
            names.

    """
    known = None if people is None else People(people, SystemClock())
    problems = [
        problem
        for found in check_rules(rules, tuple(reachable_tools(agents)), known)
        for problem in found.problems
    ]
    if problems:
        raise AssertionError("\n".join(problems))


def _assert(
    rules: Rules,
    wanted: str,
    tool: str,
    arguments: Mapping[str, Any],
    by: str | None,
    view: CallView | None,
) -> None:
    found = rules.verdict(tool, arguments, view)
    must = {"deny": "must be denied", "ask": "must be asked about"}[wanted]
    if by is not None:
        must = f"{must} by the rule {by!r}"
    if found.result != wanted or (by is not None and by not in [each.name for each in found.rules]):
        raise AssertionError(_said(tool, arguments, found, must))


def _said(tool: str, arguments: Mapping[str, Any], found: Verdict, must: str) -> str:
    call = f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
    if found.result is None:
        return f"{call} {must}, and no rule matches it"
    names = ", ".join(repr(each.name) for each in found.rules)
    said = {"deny": "denied", "ask": "asked about", "allow": "allowed"}[found.result]
    return f"{call} {must}, and it is {said} by {names}"

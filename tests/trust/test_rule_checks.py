"""What rules match, near misses, and approvals that nobody could meet."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from pydantic_ai.native_tools import WebSearchTool

from understudy import Agent, Runtime, ScriptedModel, UsageError, tool
from understudy.agent.rule_checks import reachable_tools
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.trust import (
    Caller,
    Person,
    Rules,
    allow,
    approval,
    ask,
    deny,
)
from understudy.trust.check import RuleCheck, check_rules

FINANCE = frozenset({"finance"})
PEOPLE: dict[str, Person | list[str]] = {
    "ann": ["finance"],
    "bob": ["finance", "legal"],
    "annie": Person(id="ann", roles=FINANCE),
}


@tool
def refund(amount: int) -> str:
    """Refund."""
    return "paid"


@tool
def search(text: str) -> str:
    """Search."""
    return text


def desk(**options: Any) -> Agent:
    inner = Agent("clerk", ScriptedModel(["done"]), description="Pays.", tools=[refund])
    return Agent(
        "desk",
        ScriptedModel(["done"]),
        tools=[search],
        middleware=[SubAgent([inner], general_purpose=False)],
        **options,
    )


def checked(*rules: Any, people: Any = None) -> list[RuleCheck]:
    known = None if people is None else Runtime(people=people).people
    return check_rules(Rules(*rules), reachable_tools([desk()]), known)


def test_each_rule_says_which_tools_it_matches_also_of_agents_inside() -> None:
    """V11."""
    found = checked(
        deny("*", name="all"),
        deny("refund", name="inside", agent="desk"),
        allow("refund", name="own", agent="clerk"),
    )
    assert [set(each.matches) for each in found] == [
        {"desk/search", "desk/task", "desk/clerk/refund"},
        {"desk/clerk/refund"},
        {"desk/clerk/refund"},
    ]
    assert [each.problems for each in found] == [(), (), ()]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (deny("refnud"), r"no tool is named 'refnud' \(did you mean 'refund'\?\)"),
        (deny("drop_*"), r"no tool is named 'drop_\*'$"),
        (allow("refund", agent="desk"), "no tool of agent 'desk' is named 'refund'"),
        (deny("refund", agent="clrek"), r"no agent is named 'clrek' \(did you mean 'clerk'\?\)"),
    ],
)
def test_a_rule_that_matches_nothing_is_found_with_what_is_near(rule: Any, problem: str) -> None:
    """V11."""
    (found,) = checked(rule)
    assert found.matches == ()
    (said,) = found.problems
    assert re.search(problem, said), said


def test_a_rule_about_a_native_tool_of_a_provider_is_found() -> None:
    """V11: no rule sees it."""
    agent = Agent("desk", "openai-responses:gpt-5", native_tools=[WebSearchTool()], tools=[search])
    one, both = check_rules(Rules(deny("web_search"), deny("*search")), reachable_tools([agent]))
    assert "native tool" in one.problems[0]
    assert (both.matches, both.problems) == (("desk/search",), ())
    assert "native tool" in both.notes[0]


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [
        (approval({"finance": 3}), "1 more of finance"),
        (approval({"finance": 2, "legal": 1}), "1 more of"),
        (approval({"ceo": 1}), "1 more of ceo"),
        (approval(any_of=[{"ceo": 1}, {"finance": 2}]), ""),
        (approval({"finance": 1, "legal": 1}), ""),
    ],
)
def test_an_approval_that_nobody_could_ever_meet_is_refused_at_the_start(
    asked: Any, lacks: str
) -> None:
    """V11: of rules and of gates; one person by two logins counts once."""
    (found,) = checked(ask("refund", asked), people=PEOPLE)
    assert bool(found.problems) == bool(lacks)
    gate = HumanInTheLoop({"refund": {"approval": asked}})
    gated = Agent("gated", ScriptedModel(["done"]), tools=[refund], middleware=[gate])
    rules = Rules(ask("refund", asked))
    for agents, given in (([desk()], rules), ([gated], None)):
        if not lacks:
            Runtime(agents, rules=given, people=PEOPLE)
            continue
        with pytest.raises(UsageError, match=lacks):
            Runtime(agents, rules=given, people=PEOPLE)
    if lacks:
        with Runtime([desk()], people=PEOPLE) as runtime, pytest.raises(UsageError, match=lacks):
            runtime.rules = rules


async def test_people_that_are_a_function_are_said_to_be_unseen() -> None:
    """V11: nobody can list them."""

    def who(caller: Caller) -> Person | None:
        return Person(id=caller.name, roles=frozenset({"finance"}))

    runtime = Runtime(people=who)
    assert runtime.people is not None
    tools = list(reachable_tools([desk()]))
    rules = Rules(ask("refund", approval({"finance": 1, "legal": 1})))
    (found,) = check_rules(rules, tools, runtime.people)
    assert found.problems == ()
    assert "nobody seen so far is finance, legal" in found.notes[0]
    await runtime.people.resolve(Caller(name="ann"))
    (found,) = check_rules(rules, tools, runtime.people)
    assert "nobody seen so far is legal" in found.notes[0]
    (found,) = check_rules(rules, tools)
    assert "nobody can vote" in found.notes[0]


def test_a_rule_about_a_tool_that_no_agent_has_is_said_when_the_runtime_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """V11: a denial with a typo would deny nothing, silently. A pattern may be for later."""
    rules = Rules(deny("refnud"), deny("drop_*"), deny("refund"))
    with caplog.at_level(logging.WARNING, logger="understudy"), Runtime([desk()], rules=rules):
        pass
    (said,) = [each.message for each in caplog.records]
    assert "rule 'deny refnud': no tool is named 'refnud' (did you mean 'refund'?)" in said
    caplog.clear()

    def make(name: str, id: str, values: Any) -> Agent:
        return desk()

    with Runtime([desk()], rules=rules, factory=make), Runtime(rules=rules):
        pass
    assert [each.message for each in caplog.records] == [], "what there will be is not known"


def test_the_verdict_on_a_tool_itself() -> None:
    """V5: by all of its names; and what is none of these is refused by name."""
    rules = Rules(deny("refund"))
    assert rules.verdict(refund, {"amount": 7}).result == "deny"
    assert rules.verdict(search, {"text": "x"}).result is None
    for wrong in (7, [], [7], refund.function):
        with pytest.raises(UsageError, match=r"a tool, the name of a tool"):
            rules.verdict(wrong, {})  # type: ignore[arg-type]

"""The people of a test, and assertions about rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import FakeClock, by_turn, completed, interrupted
from understudy import Agent, Runtime, UsageError, approve, call, tool
from understudy.errors import PeopleUnavailable
from understudy.testing import FakePeople, assert_asked, assert_denied, assert_unasked
from understudy.trust import CallView, Person, Rules, allow, approval, ask, deny

RULES = Rules(
    deny("refund", name="never over 1,000", when=lambda a, view: a["amount"] > 1000),
    ask("refund", name="over 500", when=lambda a, view: a["amount"] > 500),
    ask("refund", name="not by the intern", when=lambda a, view: view.agent == "intern"),
    allow("refund", name="small", when=lambda a, view: a["amount"] < 10),
)


def desk() -> Agent:
    @tool
    def refund(amount: int) -> str:
        """Refund."""
        return "paid"

    gates: dict[str, Any] = {"refund": {"approval": approval({"finance": 2})}}
    return Agent("desk", by_turn(call("refund", {"amount": 7})), tools=[refund], interrupt_on=gates)


async def test_a_vote_does_not_count_once_its_person_has_lost_the_role() -> None:
    people = FakePeople({"ann": ["finance"], "bob": ["finance"], "cy": ["support"]})
    clock = FakeClock()
    async with Runtime([desk()], people=people, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await ref.run("go"))
        interrupted(await ref.resume(approve(by="ann")))
        people.lose_role("ann", "finance")
        clock.advance(61)  # for a minute an answer is kept
        interrupted(await ref.resume(approve(by="bob")))
        people.gain_role("cy", "finance")
        completed(await ref.resume(approve(by="cy")))
    assert [each.name for each in people.asked][:1] == ["ann"]


async def test_nobody_votes_while_the_directory_is_away_or_does_not_know_them() -> None:
    people = FakePeople({"ann": Person(id="1", roles=frozenset({"finance"})), "bob": ["finance"]})
    clock = FakeClock()
    async with Runtime([desk()], people=people, clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await ref.run("go"))
        people.is_away = True
        with pytest.raises(PeopleUnavailable, match="the directory is away"):
            await ref.resume(approve(by="ann"))
        people.is_away = False
        people.leave("ann")
        with pytest.raises(Exception, match="knows nobody by the name 'ann'"):
            await ref.resume(approve(by="ann"))


def test_a_role_that_nobody_has_cannot_be_taken_away() -> None:
    people = FakePeople({"ann": ["finance"]})
    with pytest.raises(UsageError, match="does not have the role 'legal'; has: finance"):
        people.lose_role("ann", "legal")
    with pytest.raises(UsageError, match="nobody has the login 'bob'; there are: 'ann'"):
        people.gain_role("bob", "legal")


def test_what_rules_say_can_be_asserted_without_a_runtime() -> None:
    assert_denied(RULES, "refund", {"amount": 1001}, by="never over 1,000")
    assert_asked(RULES, "refund", {"amount": 501})
    assert_asked(RULES, "refund", {"amount": 5}, view=CallView(tool="refund", agent="intern"))
    assert_unasked(RULES, "refund", {"amount": 5})
    assert_unasked(RULES, "look_up", {})


@pytest.mark.parametrize(
    ("assertion", "arguments", "options", "told"),
    [
        (assert_denied, {"amount": 501}, {}, r"refund\(amount=501\) must be denied, and it is "),
        (assert_denied, {"amount": 50}, {}, "no rule matches it"),
        (assert_denied, {"amount": 1001}, {"by": "x"}, "by the rule 'x', and it is denied by 'nev"),
        (assert_asked, {"amount": 1001}, {}, "must be asked about, and it is denied by"),
        (assert_asked, {"amount": 5}, {}, "and it is allowed by 'small'"),
        (assert_asked, {"amount": 501}, {"by": "small"}, "by the rule 'small'"),
        (assert_unasked, {"amount": 501}, {}, "must neither be denied nor asked, and it is asked"),
    ],
)
def test_an_assertion_that_fails_says_what_the_rules_say(
    assertion: Any, arguments: dict[str, Any], options: dict[str, Any], told: str
) -> None:
    with pytest.raises(AssertionError, match=told):
        assertion(RULES, "refund", arguments, **options)

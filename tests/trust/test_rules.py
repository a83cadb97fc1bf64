"""Rules for the calls of all agents of a runtime: denied, asked about, allowed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted, results
from tests.support.trust.broken import is_found_out
from understudy import (
    Agent,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    UsageError,
    approve,
    call,
    edit,
    tool,
)
from understudy.middleware import Middleware, SubAgent
from understudy.trust import CallView, Rules, allow, approval, ask, deny

PEOPLE = {"ann": ["finance"], "bob": ["finance"], "cy": ["support"]}


def over(limit: int) -> Any:
    return lambda arguments, view: arguments["amount"] > limit


def refunds(*amounts: int, **options: Any) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    turns = [call("refund", {"amount": amount}) for amount in amounts]
    return Agent("desk", by_turn(*turns), tools=[refund], **options), paid


RULES = Rules(
    deny("refund", name="never over 1,000", when=over(1000)),
    ask("refund", approval({"finance": 2}), name="two of finance", when=over(500)),
    ask("refund", approval({"support": 1}), name="support", when=over(100)),
)


@pytest.mark.parametrize(
    ("amount", "result", "names"),
    [
        (5000, "deny", ["never over 1,000"]),
        (700, "ask", ["two of finance", "support"]),
        (200, "ask", ["support"]),
        (10, None, []),
    ],
)
def test_a_denial_counts_more_than_questions_and_all_questions_count(
    amount: int, result: str | None, names: list[str]
) -> None:
    """V5: without a runtime."""
    verdict = RULES.verdict("refund", {"amount": amount})
    assert verdict.result == result
    assert [rule.name for rule in verdict.rules] == names


def test_names_and_agents_are_patterns_and_defaults_are_for_the_rest() -> None:
    """V5."""
    rules = Rules(allow("search_*"), deny("*", agent="guest", name="guests"), default="ask")
    assert rules.verdict("search_files", {}).result == "allow"
    assert rules.verdict("drop", {}).result == "ask"
    guest = CallView(tool="search_files", agent="guest")
    assert rules.verdict("search_files", {}, guest).result == "deny"
    assert Rules(default="deny").verdict("drop", {}).result == "deny"
    assert Rules().verdict("drop", {}).result is None
    assert Rules(deny("old")).verdict(["new", "old"], {}).result == "deny", "a name of before"


def busy(arguments: Any, view: CallView) -> bool:
    until = time.thread_time() + 0.06
    while time.thread_time() < until:
        pass
    return False


async def asks_a_service(arguments: Any, view: CallView) -> bool:
    return True


@pytest.mark.parametrize(
    "when",
    [
        lambda arguments, view: arguments["no"],
        lambda arguments, view: asks_a_service(arguments, view),
        busy,
    ],
)
def test_a_when_that_fails_or_takes_long_denies_and_asks_and_allows_nothing(when: Any) -> None:
    """V5."""
    assert Rules(deny("t", when=when)).verdict("t", {}).result == "deny"
    assert Rules(ask("t", when=when)).verdict("t", {}).result == "ask"
    assert Rules(allow("t", when=when), default="deny").verdict("t", {}).result == "deny"


async def test_a_call_runs_once_each_rule_that_asks_is_satisfied() -> None:
    """V6."""
    agent, paid = refunds(10, 200, 700, 5000)
    async with Runtime([agent], rules=RULES, people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        support = interrupted(await ref.run("go"))
        assert paid == [10]
        assert [each.source for each in support.requests] == ["rule: support"]
        both = interrupted(await ref.resume(approve(by="cy")))
        assert paid == [10, 200]
        assert len(both.requests) == 2
        of_finance, of_support = both.requests
        assert of_finance.source == "rule: two of finance"
        await ref.resume({of_support: approve(by="cy"), of_finance: approve(by="ann")})
        assert paid == [10, 200]
        done = completed(await ref.resume(approve(by="bob")))
    assert paid == [10, 200, 700]
    assert str(results(done.state)[-1].content).startswith(
        "Denied by a rule of the application, 'never over"
    )


async def test_rules_hold_for_agents_inside_and_a_gate_stays_stricter_than_an_allow() -> None:
    """V6."""
    inside, paid = refunds(10)
    desk = Agent(
        "outer",
        by_turn(call("task", {"task_name": "desk", "instructions": "go"})),
        middleware=[SubAgent([inside])],
    )
    async with Runtime([desk], rules=Rules(deny("refund"))) as runtime:
        completed(await runtime.spawn("outer", id="a").run("go"))
        assert paid == []
        runtime.rules = None
        completed(await runtime.spawn("outer", id="b").run("go"))
        assert paid == [10]
    gated, paid = refunds(10, interrupt_on={"refund": True})
    async with Runtime([gated], rules=Rules(allow("refund"), default="deny")) as runtime:
        interrupted(await runtime.spawn("desk", id="a").run("go"))
    assert paid == []


async def test_the_rules_of_now_hold_for_a_call_that_was_approved_before() -> None:
    """V7: the stricter of then and now."""
    agent, paid = refunds(200)
    async with Runtime([agent], rules=RULES, people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await ref.run("go"))
        runtime.rules = Rules(*RULES.rules, ask("refund", approval({"finance": 1}), name="new"))
        again = interrupted(await ref.resume(approve(by="cy")))
        assert [each.source for each in again.requests] == ["rule: new"]
        assert "One does now" in again.requests[0].asked_again
        runtime.rules = Rules(deny("refund"))
        completed(await ref.resume(approve(by="ann")))
    assert paid == []


async def test_what_a_person_edits_or_a_middleware_changes_is_judged_anew() -> None:
    """V7."""
    agent, paid = refunds(200, interrupt_on={"refund": True})
    async with Runtime([agent], rules=Rules(deny("refund", when=over(500)))) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await ref.run("go"))
        completed(await ref.resume(edit({"amount": 900}, by="ann")))
    assert paid == []

    class Tenfold(Middleware):
        async def wrap_tool_call(self, run: Any, given: Any, next: Any) -> Any:
            return await next(given.replace({"amount": given.arguments["amount"] * 10}))

    agent, paid = refunds(200, middleware=[Tenfold()])
    async with Runtime([agent], rules=Rules(deny("refund", when=over(500)))) as runtime:
        done = completed(await runtime.spawn("desk", id="a").run("go"))
        assert str(results(done.state)[-1].content).startswith("Denied by a rule")
        runtime.rules = Rules(ask("refund", when=over(500)))
        asked = interrupted(await runtime.spawn("desk", id="b").run("go"))
        assert asked.requests[0].arguments == {"amount": 2000}
    assert paid == []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Rules("refund"), r"takes what deny\(\), ask\(\) and allow\(\) make"),  # type: ignore[arg-type]
        (lambda: Rules(deny("a"), deny("a")), "two rules are named 'deny a'"),
        (lambda: Rules(default="never"), "must be gates, ask or deny"),  # type: ignore[arg-type]
        (lambda: deny(""), "the name of a tool"),
        (lambda: ask("a", {"finance": 2}), r"takes what approval\(...\) makes"),  # type: ignore[arg-type]
        (lambda: allow("a", when=asks_a_service), "must be a plain function"),
        (lambda: deny("a", when=True), "must be a function"),  # type: ignore[arg-type]
        (lambda: Runtime(rules=[deny("a")]), r"`rules` must be Rules\(...\)"),  # type: ignore[call-overload]
    ],
)
def test_rules_that_could_not_hold_are_refused_where_they_are_made(make: Any, told: str) -> None:
    """V5."""
    with pytest.raises(UsageError, match=told):
        make()


async def test_a_denial_whose_when_raises_denies_in_a_runtime() -> None:
    """V5."""
    agent, paid = refunds(200)
    rules = Rules(deny("refund", when=lambda arguments, view: arguments["currency"] == "EUR"))
    async with Runtime([agent], rules=rules) as runtime:
        completed(await runtime.spawn("desk", id="a").run("go"))
    assert paid == []


CONTROLS: list[tuple[str, Any]] = [
    (
        "a denial counts less than what asks or allows",
        test_what_a_person_edits_or_a_middleware_changes_is_judged_anew,
    ),
    (
        "one of the rules that ask is enough",
        test_a_call_runs_once_each_rule_that_asks_is_satisfied,
    ),
    ("a `when` that raises matches nothing", test_a_denial_whose_when_raises_denies_in_a_runtime),
    (
        "agents inside have no rules",
        test_rules_hold_for_agents_inside_and_a_gate_stays_stricter_than_an_allow,
    ),
    (
        "the rules of then hold at the start",
        test_the_rules_of_now_hold_for_a_call_that_was_approved_before,
    ),
]


@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(broken: str, attack: Any) -> None:
    """Else the attack would prove nothing."""
    assert await is_found_out(broken, attack)


async def test_a_rule_has_a_title_and_reminds_as_a_gate_does(clock: SimulatedClock) -> None:
    """V6, I15."""
    asked = ask(
        "refund",
        approval({"boss": 1}, within=600),
        title="Refund {amount:,.2f}",
        remind_after=[60, 120],
        escalate_after={300: "the board"},
    )

    @tool
    def refund(amount: int) -> str:
        return "refunded"

    agent = Agent("desk", ScriptedModel([call("refund", {"amount": 1000}), "done"]), tools=[refund])
    async with Runtime([agent], rules=Rules(asked, version=1), clock=clock) as runtime:
        [request] = interrupted(await runtime.spawn("desk", id="a").run("go")).requests
        assert (request.title, request.rule) == ("Refund 1,000.00", asked.name)
        await clock.advance(310)
        [pending] = await runtime.pending()
        assert (pending.reminders, pending.escalated_to) == (2, ("the board",))
        await clock.advance(300)
        assert list(await runtime.pending()) == []


def test_the_title_and_the_times_of_a_rule_are_checked_and_part_of_its_version() -> None:
    """V9."""
    with pytest.raises(UsageError, match="title"):
        ask("refund", title=" ")
    with pytest.raises(UsageError, match="below `expires_after`"):
        ask("refund", approval({"boss": 1}, within=60), remind_after=60)
    prints = {
        Rules(each).fingerprint
        for each in (ask("refund"), ask("refund", title="A"), ask("refund", remind_after=1))
    }
    assert len(prints) == 3

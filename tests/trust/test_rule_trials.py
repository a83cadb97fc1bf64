"""Rules, tried on the calls that a store has the records of."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart

from tests.support.agents import by_turn, completed, interrupted
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Interrupted,
    Observer,
    Runtime,
    SimulatedClock,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import SubAgent
from understudy.trust import Rules, Trial, allow, approval, ask, deny

FINANCE = approval({"finance": 1})
PEOPLE = {"ann": ["finance"], "bob": ["finance"]}


def over(limit: int) -> Any:
    return lambda arguments, view: arguments["amount"] > limit


@tool
def refund(amount: int, reason: str = "none") -> str:
    """Refund."""
    return "paid"


def desk(*amounts: int, **options: Any) -> Agent:
    turns = [call("refund", {"amount": amount}) for amount in amounts]
    return Agent("desk", by_turn(*turns), tools=[refund], **options)


BEFORE = Rules(
    deny("refund", name="never", when=over(1000)),
    ask("refund", FINANCE, name="ask", when=over(500)),
)


def made(url: str, *amounts: int, id: str = "t", by: str | None = "cy", **options: Any) -> None:
    """An agent makes these calls under `BEFORE`; each that is asked about is approved."""
    with Runtime([desk(*amounts, **options)], store=url, rules=BEFORE, people=PEOPLE) as runtime:
        ref = runtime.spawn("desk", id)
        outcome: Any = ref.run("go", by=by).get(timeout=60)
        while isinstance(outcome, Interrupted):
            outcome = ref.resume(approve(by="ann")).get(timeout=60)
        completed(outcome)


def tried(url: str, rules: Rules, **options: Any) -> Trial:
    with Observer(url) as observer:
        return observer.try_rules(rules, **options).get(timeout=60)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_what_rules_would_have_said_of_each_recorded_call(url: str) -> None:
    """V12: before and now, with counts by tool and examples."""
    made(url, 7, 700, 1700)
    same = tried(url, BEFORE)
    assert (same.agents, same.calls) == (1, 3)
    assert dict(same.by_tool["refund"]) == {
        "calls": 3,
        "unasked_before": 1,
        "unasked_now": 1,
        "asked_before": 1,
        "asked_now": 1,
        "denied_before": 1,
        "denied_now": 1,
    }
    assert same.examples == {}

    loose = tried(url, Rules(allow("*"))).to_dict()
    assert loose["changes"]["newly_unasked"] == 2
    assert [(each["before"], each["now"]) for each in loose["examples"]["newly_unasked"]] == [
        ("asked", "unasked"),
        ("denied", "unasked"),
    ]
    strict = tried(url, Rules(deny("refund", name="no"))).to_dict()
    assert strict["changes"]["newly_denied"] == 2
    example = strict["examples"]["newly_denied"][0]
    assert (example["agent_id"], example["tool"], example["rules"]) == ("t", "refund", ["no"])
    asks = tried(url, Rules(ask("refund", approval({"finance": 2})))).to_dict()["changes"]
    assert asks == {
        "newly_denied": 0,
        "newly_asked": 1,
        "newly_unasked": 0,
        "no_longer_denied": 1,
        "asked_others": 1,
    }


def test_what_gates_ask_stays_asked(url: str) -> None:
    """V12: no rule takes it back."""
    made(url, 7, interrupt_on={"refund": True})
    trial = tried(url, Rules(allow("*")))
    assert trial.to_dict()["changes"] == dict.fromkeys(trial.to_dict()["changes"], 0)
    assert trial.by_tool["refund"]["asked_now"] == 1


def test_rules_see_the_agents_and_who_had_asked(url: str) -> None:
    """V12: also of agents inside, and of calls that wait."""
    inner = Agent(
        "clerk", by_turn(call("refund", {"amount": 7})), description="Pays.", tools=[refund]
    )
    task = call("task", {"task_name": "clerk", "instructions": "pay"})
    boss = Agent("boss", by_turn(task), middleware=[SubAgent([inner], general_purpose=False)])
    waits = Agent(
        "waits",
        by_turn(call("refund", {"amount": 9})),
        tools=[refund],
        interrupt_on={"refund": True},
    )
    with Runtime([boss, waits], store=url) as runtime:
        completed(runtime.spawn("boss", "b").run("go", by="cy").get(timeout=60))
        interrupted(runtime.spawn("waits", "w").run("go").get(timeout=60))
    seen: list[Any] = []

    def look(arguments: Any, view: Any) -> bool:
        seen.append((view.agent_path, view.requesters, dict(arguments)))
        return False

    assert tried(url, Rules(deny("refund", when=look, name="x"))).calls == 3
    assert (("boss", "clerk"), ("cy",), {"amount": 7, "reason": "none"}) in seen
    assert (("waits",), (), {"amount": 9, "reason": "none"}) in seen
    inside = tried(url, Rules(deny("refund", agent="boss")))
    assert inside.count("newly_denied") == 1


def test_definitions_give_the_arguments_as_rules_see_them(url: str) -> None:
    """V12: with defaults. A call that no definition makes any more cannot be tried, and is
    reported.
    """
    made(url, 1700, 1800)  # they are denied: what is recorded of them is what the model wrote

    def reason(arguments: Any, view: Any) -> bool:
        return bool(arguments["reason"] == "none")

    rules = Rules(deny("refund", name="reason", when=reason))
    without = tried(url, rules)
    assert without.by_tool["refund"]["denied_now"] == 2, "to the safe side"
    assert dict(without.unknown) == {"reason": 2}
    assert dict(tried(url, rules, agents=[desk()]).unknown) == {}
    other = Agent("desk", by_turn("done"))
    gone = tried(url, rules, agents=[other])
    assert (gone.calls, dict(gone.untried)) == (
        0,
        {"calls that no definition of today can make": 2},
    )


def test_a_call_whose_arguments_are_no_json_is_told(url: str) -> None:
    """V12: the model wrote nonsense, and the call was refused."""
    nonsense = ModelResponse(parts=[ToolCallPart("refund", "[1", tool_call_id="c")])
    with Runtime([Agent("desk", by_turn(nonsense), tools=[refund])], store=url) as runtime:
        completed(runtime.spawn("desk", "t").run("go").get(timeout=60))
    trial = tried(url, Rules(deny("*")))
    assert (trial.calls, dict(trial.untried)) == (0, {"calls whose arguments are no JSON": 1})


def test_only_calls_of_the_period_are_tried(tmp_path: Path) -> None:
    """V12: and what was compacted in it is reported."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    clock = SimulatedClock()
    with Runtime([desk(7, 700)], store=url, clock=clock) as runtime:
        completed(runtime.spawn("desk", "old").run("go").get(timeout=60))
        completed(runtime.spawn("desk", "compacted").run("go").get(timeout=60))
        clock.advance(40 * 86_400.0).get(timeout=60)
        completed(runtime.spawn("desk", "new").run("go").get(timeout=60))
        runtime.get("compacted").compact().get(timeout=60)
    rules = Rules(deny("refund"))
    whole = tried(url, rules)
    assert (whole.agents, whole.calls) == (3, 4)
    assert dict(whole.untried) == {"agents whose records were compacted in the period": 1}
    part = tried(url, rules, since=clock.now() - timedelta(days=30))
    assert part.calls == 2
    assert [each.agent_id for each in part.examples["newly_denied"]] == ["new", "new"]
    assert tried(url, rules, since=clock.now() + timedelta(days=1)).calls == 0
    with pytest.raises(UsageError, match="try_rules"):
        tried(url, None)  # type: ignore[arg-type]


async def test_a_long_conversation_is_read_page_by_page(hosts: Hosts) -> None:
    """V12."""
    calls = [call("refund", {"amount": amount}) for amount in range(400)]
    agent = Agent("desk", by_turn(calls), tools=[refund])
    async with Runtime([agent], store=DatabaseStore(hosts.new())) as runtime:
        completed(await runtime.spawn("desk", "t").run("go"))
    async with Observer(DatabaseStore(hosts.new())) as observer:
        trial = await observer.try_rules(Rules(deny("refund", when=over(300))))
    assert (trial.calls, trial.count("newly_denied")) == (400, 99)
    assert len(trial.examples["newly_denied"]) == 5

"""Decisions by request, by what a list brings, and alone where one request is pending."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from understudy import Agent, DecisionError, Runtime, approve, call, reject, tool


def desk(*turns: Any) -> tuple[Agent, list[str]]:
    paid: list[str] = []

    @tool(ask=True)
    def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        return f"paid {order}"

    return Agent("desk", by_turn(*turns), tools=[pay]), paid


def pays(order: str) -> Any:
    return call("pay", {"order": order})


async def test_a_request_is_a_key_of_decisions_and_makes_them() -> None:
    agent, paid = desk([pays("1"), pays("2"), pays("3")])
    outcome = interrupted(await agent.execute("go"))
    one, two, three = outcome.requests
    assert len({one, two, three, *outcome.requests}) == 3
    assert hash(one) == hash(reloaded(outcome.state).requests[0])
    left = interrupted(await agent.resume(outcome.state, {one: approve(), two: reject()}))
    assert left.requests == (three,)
    completed(await agent.resume(left.state, three.decide(approve(by="ann"))))
    assert sorted(paid) == ["1", "3"]
    with pytest.raises(DecisionError, match=r"does not allow|not a decision"):
        one.decide({"type": "dismiss"})


async def test_one_decision_alone_is_for_the_only_request() -> None:
    agent, paid = desk(pays("1"), [pays("2"), pays("3")])
    outcome = interrupted(await agent.execute("go"))
    both = interrupted(await agent.resume(outcome.state, approve(by="ann")))
    assert paid == ["1"]
    with pytest.raises(
        DecisionError, match=r"exactly one pending request, and 2 are pending: .*\(pay\), .*\(pay\)"
    ):
        await agent.resume(both.state, approve())
    assert paid == ["1"]


async def test_a_ref_takes_all_three_and_binds_one_alone_to_what_is_pending() -> None:
    agent, paid = desk(pays("1"), pays("2"), pays("3"))
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        first = interrupted(await ref.run("go"))
        second = interrupted(await ref.resume({first.requests[0]: approve()}))
        (pending,) = await runtime.pending()
        with pytest.raises(DecisionError, match=r"does not allow|not a decision"):
            pending.decide({"type": "dismiss"})
        interrupted(await ref.resume(pending.decide(approve(by="ann"))))
        await ref.decide(reject("no", by="bob"))
        outcome = await ref.outcome()
        assert outcome is not None
        with pytest.raises(DecisionError, match="request, and 0 are pending: none"):
            await ref.resume(approve())
        made = [record.decision.by for record in await ref.decisions()]
    assert second.requests == (pending.request,)
    assert paid == ["1", "2"]
    assert made == [None, "ann", "bob"]
    assert results(completed(outcome).state)[-1].outcome == "denied"

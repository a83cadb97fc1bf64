"""Whoever continues a run asks its own gates, too; a renamed tool continues its open calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from understudy import Agent, DecisionError, ScriptedModel, approve, call, tool
from understudy.journal import MemoryJournal

ORDER = {"order": "17"}
REPLY = [call("refund", ORDER), call("pay", ORDER)]


class Shop:
    """Its agent asks about refunds, and of the payments beside them as the definition says."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def agent(self, **gates: Any) -> Agent:
        @tool
        def refund(order: str) -> str:
            """Refund."""
            self.done.append(f"refund {order}")
            return "refunded"

        @tool
        def pay(order: str) -> str:
            """Pay."""
            self.done.append(f"pay {order}")
            return "paid"

        tools = [refund, pay]
        return Agent("desk", by_turn(REPLY), tools=tools, interrupt_on={"refund": True, **gates})


def test_a_call_that_was_not_started_is_put_to_the_gates_of_today() -> None:
    """I7: while a person was asked about the other one, a deploy has switched its gate on."""
    shop = Shop()
    first = interrupted(shop.agent().execute_sync("go"))
    assert [request.tool_name for request in first.requests] == ["refund"]

    today = shop.agent(pay=True)
    second = interrupted(today.resume_sync(reloaded(first.state), first.decide(approve())))
    (request,) = second.requests
    assert (request.tool_name, request.arguments) == ("pay", ORDER)
    assert request.asked_again == "No gate asked about this call when it was made. One does now."
    assert shop.done == []

    done = completed(today.resume_sync(reloaded(second.state), second.decide(approve())))
    assert sorted(shop.done) == ["pay 17", "refund 17"]
    assert [part.content for part in results(done.state)] == ["refunded", "paid"]


def test_gates_of_today_that_need_nobody_leave_no_record() -> None:
    """I7: whoever continues the run asks them, and the verdict is the same."""
    shop = Shop()
    asked: list[str] = []

    def when(arguments: dict[str, Any], ctx: Any) -> bool:
        asked.append(arguments["order"])
        return False

    first = interrupted(shop.agent().execute_sync("go"))
    journal = MemoryJournal()
    today = shop.agent(pay={"when": when})
    completed(today.resume_sync(reloaded(first.state), first.decide(approve()), journal=journal))
    assert asked == ["17"]
    assert sorted(shop.done) == ["pay 17", "refund 17"]
    assert "requested" not in {record.kind for record in journal.records}


def test_what_was_asked_stays_asked_where_the_gates_of_today_would_not_ask() -> None:
    """I7: the stricter of then and now counts."""
    shop = Shop()
    first = interrupted(shop.agent(pay=True).execute_sync("go"))
    assert len(first.requests) == 2
    refund, payment = first.requests
    today = shop.agent()
    second = interrupted(today.resume_sync(reloaded(first.state), {refund.id: approve()}))
    assert [request.id for request in second.requests] == [payment.id]
    assert shop.done == []


def renamed(aliases: list[str], done: list[str]) -> Agent:
    @tool(name="transfer", ask=True, aliases=aliases)
    def transfer(order: str) -> str:
        """Pay."""
        done.append(order)
        return "paid"

    return Agent("desk", ScriptedModel(["done"]), tools=[transfer])


def asked_about_the_old_name() -> Any:
    @tool(ask=True)
    def pay(order: str) -> str:
        """Pay."""
        raise AssertionError("the new one runs")

    return interrupted(Agent("desk", by_turn(call("pay", ORDER)), tools=[pay]).execute_sync("go"))


def test_a_renamed_tool_continues_what_was_asked_under_its_alias() -> None:
    """I7: the approval was given for the name that it had."""
    done: list[str] = []
    asked = asked_about_the_old_name()
    agent = renamed(["pay"], done)
    outcome = completed(agent.resume_sync(reloaded(asked.state), asked.decide(approve())))
    assert done == ["17"]
    assert [part.content for part in results(outcome.state)] == ["paid"]
    assert [offered.name for offered in agent.definition.tools.values()] == ["transfer"]


def test_without_an_alias_the_approval_of_a_renamed_tool_is_refused_with_the_remedy() -> None:
    """I7, I5."""
    done: list[str] = []
    asked = asked_about_the_old_name()
    with pytest.raises(DecisionError, match=r"no tool 'pay' any more.*aliases=\['pay'\]"):
        renamed([], done).resume_sync(reloaded(asked.state), asked.decide(approve()))
    assert done == []

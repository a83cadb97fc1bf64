"""K1: the examples, killed at every point: what they do, they do once.

Each test fails where its idempotency is taken away: the control of `crash_points` makes sure of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from examples import expense_desk, payment_webhook, support_desk
from understudy import ScriptedModel, approve, call
from understudy.testing import Effects, FakePeople, Story, crash_points

pytestmark = pytest.mark.slow


class Counted(dict[str, Any]):
    """The books of an example: each new entry is an effect."""

    def __init__(self, effects: Effects) -> None:
        super().__init__()
        self._effects = effects

    def __setitem__(self, key: str, entry: Any) -> None:
        is_new = key not in self
        super().__setitem__(key, entry)
        if is_new:
            self._effects.add(str(entry), key=key)


@crash_points()
def test_the_support_desk_refunds_once(story: Story) -> None:
    shop = support_desk.Shop(refunds=Counted(story.effects))
    script = [
        call("lookup_order", {"order_id": "17"}),
        call("refund", {"order_id": "17", "amount": 20}),
        "It is refunded.",
    ]
    story.spawn(support_desk.support_agent(ScriptedModel(script)), deps=shop)
    story.say(support_desk.PROMPT)
    story.answer(approve())
    story.finish()
    assert len(story.effects) == 1
    story.effects.once()
    story.same_outcome()


class CountedBank(expense_desk.Bank):
    """The bank of the expense desk, which knows each payment by its key."""

    def __init__(self, effects: Effects) -> None:
        self.paid = Counted(effects)


@crash_points(rules=expense_desk.RULES, people=FakePeople(expense_desk.PEOPLE))
def test_the_expense_desk_pays_what_two_of_finance_agree_to_once(story: Story) -> None:
    story.spawn(expense_desk.expenses(), deps=CountedBank(story.effects))
    story.say(expense_desk.TRIPS["trip-17"], by="cy")
    story.vote("ann")
    story.vote("bob")
    story.finish()
    assert len(story.effects) == 1
    story.effects.once()


@crash_points()
def test_the_shop_creates_a_payment_once_though_its_tool_begins_anew(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = story.remote(verb="created")

    class Counting(payment_webhook.Provider):
        def create(self, order_id: str, callback: str) -> str:
            remote.send(order_id)
            return super().create(order_id, callback)

    monkeypatch.setattr(payment_webhook, "PROVIDER", Counting())
    story.spawn(payment_webhook.make_agent())
    story.say("17")
    story.wait("2 days")
    story.finish()
    story.effects.once("17")

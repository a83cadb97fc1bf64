"""Titles of requests: what may stand in them, and what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import by_turn, interrupted
from understudy import Agent, Interrupt, UsageError, call, tool
from understudy.middleware import AskUser, HumanInTheLoop


async def pay(amount: Any = None, to: Any = None) -> str:
    """Pay somebody."""
    return "paid"


@pytest.mark.parametrize(
    ("title", "culprit"),
    [
        ("Pay {sum}", "no argument 'sum'.*it has: amount, to"),
        ("Pay {amuont}", "did you mean 'amount'"),
        ("Pay {amount", "cannot be read"),
        ("Pay {}", "names no value"),
        ("Pay {amount!r}", "a name and a format alone"),
        ("Pay {amount:{to}}", "a name and a format alone"),
        ("Pay {to[0]}", "a name and a format alone"),
        ("  ", "not blank"),
        ("x" * 201, "1 to 200"),
        (7, "must be a text"),
    ],
)
def test_a_title_that_cannot_be_filled_is_refused_when_the_tool_is_made(
    title: Any, culprit: str
) -> None:
    with pytest.raises(UsageError, match=culprit):
        tool(ask={"title": title})(pay)
    with pytest.raises(UsageError, match=culprit):
        Agent(
            "desk", by_turn(), tools=[pay], middleware=[HumanInTheLoop({"pay": {"title": title}})]
        )


def test_a_title_of_questions_has_the_questions_alone() -> None:
    with pytest.raises(UsageError, match="no argument 'topic'"):
        AskUser(title="About {topic}")
    with pytest.raises(UsageError, match="cannot be read"):
        Interrupt({}, title="About {")


@pytest.mark.parametrize(
    ("title", "arguments", "shown"),
    [
        ("Pay {amount:.2f} to {to}", {"amount": 7, "to": "Ada"}, "Pay 7.00 to Ada"),
        ("Pay {amount:.2f} to {to}", {"amount": "•••", "to": None}, "Pay ••• to"),
        ("Pay {to.name}", {"to": {"name": "Ada"}}, "Pay Ada"),
        ("Pay {to.name}", {"to": "hidden"}, "Pay"),
        ("Pay {to}", {"to": ["Ada", "Grace"]}, "Pay Ada, Grace"),
        ("Pay {to}", {"to": {"n": 1}}, 'Pay {"n": 1}'),
        ("Pay {{{amount}}}", {"amount": 7}, "Pay {7}"),
        ("Pay {to}", {"to": "a\nb   c"}, "Pay a b c"),
        ("Pay {to}", {"to": "x" * 500}, "Pay " + "x" * 195 + "…"),
    ],
)
async def test_a_title_is_filled_with_what_is_shown(
    title: str, arguments: dict[str, Any], shown: str
) -> None:
    agent = Agent("desk", by_turn(call("pay", arguments)), tools=[tool(ask={"title": title})(pay)])
    (request,) = interrupted(await agent.execute("go")).requests
    assert request.title == shown


async def test_another_title_is_another_request() -> None:
    digests = set()
    for title in ("Pay {amount}", "Refund {amount}", None):
        asked = tool(ask={"title": title})(pay)
        agent = Agent("desk", by_turn(call("pay", {"amount": 7})), tools=[asked])
        (request,) = interrupted(await agent.execute("go")).requests
        assert request.title_format == (title or "")
        digests.add(request.digest)
    assert len(digests) == 3

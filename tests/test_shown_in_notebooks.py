"""What a notebook shows of outcomes, requests and states: it all, escaped, in its own colours.

Rules: U20.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.support.web_site import HOSTILE
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    StopAgent,
    Stopped,
    StopSignal,
    ToolContext,
    Waiting,
    call,
    tool,
)
from understudy.middleware import HumanInTheLoop

TAGS = {"b", "code", "details", "div", "span", "strong", "summary"} | {
    *("table", "tbody", "td", "th", "tr"),
}


class Read(HTMLParser):
    """The elements and the text of some HTML, which has to be closed properly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@tool
def refund(order_id: str, reason: str) -> str:
    """Pay money back."""
    return f"{order_id}: {reason}"


@tool
async def rest(ctx: ToolContext) -> str:
    """Wait for a day."""
    await ctx.sleep(HOSTILE, 86_400)
    return "rested"


@tool
def halt() -> str:
    """Stop the run."""
    raise StopAgent(StopSignal.error(HOSTILE))


@tool(timeout=0.01)
async def pay(reason: str) -> str:
    """Pay, and never answer."""
    await asyncio.Event().wait()
    return reason


def html_of(value: object) -> str:
    shown: Callable[[], str] = getattr(value, "_repr_html_")  # noqa: B009  # as notebooks do it
    return shown()


def interrupted(reason: str) -> Interrupted:
    gate = HumanInTheLoop({"refund": {"display": lambda arguments, ctx: arguments["reason"]}})
    model = ScriptedModel([call("refund", {"order_id": "17", "reason": reason})])
    desk = Agent("desk", model, tools=[refund], middleware=[gate])
    outcome = desk.execute_sync(reason, state=AgentState(values={"note": reason}))
    assert isinstance(outcome, Interrupted)
    return outcome


def outcomes() -> Iterator[Outcome]:
    """One of each kind, with what is hostile in each place for a text of others."""
    yield interrupted(HOSTILE)
    yield Agent("a", ScriptedModel([HOSTILE])).execute_sync(HOSTILE)
    yield Agent("a", ScriptedModel([ValueError(HOSTILE)])).execute_sync("Hello.")
    waits = ScriptedModel([call("rest", {})])
    yield Agent("a", waits, tools=[rest]).execute_sync("Hello.")
    calls = ScriptedModel([call("refund", {"order_id": "1", "reason": HOSTILE})])
    paused = Agent("a", calls, tools=[refund])
    yield paused.execute_sync("Hello.", pause_when=lambda: HOSTILE)
    yield Agent("a", ScriptedModel([call("halt", {})]), tools=[halt]).execute_sync("Hello.")


def test_each_outcome_is_shown_and_what_is_hostile_is_text_and_marked() -> None:
    """U20."""
    shown = list(outcomes())
    kinds = {Completed, Failed, Interrupted, Paused, Stopped, Waiting}
    assert {type(outcome) for outcome in shown} == kinds
    for outcome in shown:
        read = Read(html_of(outcome))
        assert read.attributes <= {"style", "class", "title"}
        assert "<script>alert(1)</script>" in read.text, type(outcome)
        assert "U+202E" in read.text or "\\u202e" in read.text, type(outcome)
        assert "\u202e" not in read.text, type(outcome)
        assert read.text.startswith(type(outcome).__name__)


def test_a_request_shows_all_that_is_decided_and_cuts_nothing() -> None:
    """U20."""
    reason = "\n".join(f"line {number} {'x' * 100}" for number in range(2000))
    (request,) = interrupted(reason).requests
    read = Read(html_of(request))
    assert read.text.count(reason) == 2  # of the gate's display, and as an argument
    for fact in ("refund", "order_id", "17", request.id, "approve, edit, reject, respond"):
        assert fact in read.text
    assert html_of(request).count("<details>") == 2


def test_a_state_shows_its_values_what_is_open_and_the_end_of_its_conversation() -> None:
    read = Read(html_of(interrupted(HOSTILE).state))
    assert "waits for a person" in read.text
    assert read.text.count("<script>alert(1)</script>") == 5  # values, request twice, conversation
    assert "no run" in Read(html_of(AgentState())).text


def test_of_a_long_conversation_the_last_messages_are_shown() -> None:
    state = AgentState()
    agent = Agent("a", ScriptedModel([f"answer {number}" for number in range(30)]))
    for number in range(30):
        state = agent.execute_sync(f"question {number}", state=state).state
    text = Read(html_of(state)).text
    assert "60 messages" in text
    assert "The last 20 messages" in text
    assert "answer 29" in text
    assert "question 20" in text
    assert "answer 19" not in text


def test_a_call_in_doubt_is_shown_with_the_outcome_and_with_the_state() -> None:
    model = ScriptedModel([call("pay", {"reason": HOSTILE}), "Nobody knows."])
    outcome = Agent("a", model, tools=[pay]).execute_sync("Pay.")
    assert "'pay' is in doubt since" in Read(html_of(outcome)).text
    assert "'pay' is in doubt since" in Read(html_of(outcome.state)).text


def test_what_a_runtime_lists_is_shown_with_its_agent() -> None:
    doubtful = ScriptedModel([call("pay", {"reason": HOSTILE}), "Nobody knows."])
    asking = ScriptedModel([call("refund", {"order_id": "17", "reason": HOSTILE})])
    agents = [
        Agent("payer", doubtful, tools=[pay]),
        Agent("desk", asking, tools=[refund], interrupt_on={"refund": True}),
    ]
    with Runtime(agents) as runtime:
        runtime.spawn("payer", id="pays").run("Pay.").get(timeout=60)
        runtime.spawn("desk", id="ticket-42").run("Refund it.").get(timeout=60)
        (asked,) = runtime.pending().get(timeout=60)
        (doubt,) = runtime.doubts().get(timeout=60)
    assert "ticket-42 desk" in Read(html_of(asked)).text
    text = Read(html_of(doubt)).text
    assert "pay in doubt: " in text
    assert "pays" in text
    assert "<script>alert(1)</script>" in text


@pytest.mark.parametrize("value", [interrupted("broken"), interrupted("broken").state])
def test_the_colours_of_the_notebook_stay(value: Any) -> None:
    """U20."""
    styles = re.findall(r'style="([^"]*)"', html_of(value))
    assert styles, "nothing is checked"
    for style in styles:
        assert "background" not in style
        assert re.findall(r"(?<!-)color:(?!inherit)", style) == []

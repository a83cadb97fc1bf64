"""An approval beside an equal call in doubt, and doubts that are answered in their list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.agents import by_turn
from tests.support.web_server import served
from tests.support.web_site import logged_in
from understudy import Agent, Runtime, call, tool
from understudy.middleware import HumanInTheLoop
from understudy.web import ui

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 60_000
PHONE = {"width": 390, "height": 844}


@contextmanager
def paying() -> Iterator[tuple[str, Runtime, list[int]]]:
    """An agent that asks to pay what it may have paid already."""
    runs: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        runs.append(amount)
        if len(runs) == 1:
            raise ConnectionError("the line is dead")
        return "paid"

    turns = [call("pay", {"amount": 5}), "I do not know.", call("pay", {"amount": 5}), "Done."]
    gate = HumanInTheLoop({"pay": {"when": lambda arguments, context: bool(runs)}})
    agent = Agent("payer", by_turn(*turns), tools=[pay], middleware=[gate])
    with Runtime([agent], feed=True) as runtime:
        ref = runtime.spawn("payer", id="a")
        ref.run("Pay.").get(timeout=60)
        ref.run("Again.").get(timeout=60)
        with served(ui(runtime, auth=logged_in("ann"))) as url:
            yield url, runtime, runs


@pytest.mark.parametrize("has_script", [True, False])
def test_approve_asks_once_more_beside_an_equal_call_in_doubt(
    browser: Browser, has_script: bool
) -> None:
    with paying() as (url, runtime, runs):
        (asked,) = runtime.pending().get(timeout=60)
        context = browser.new_context(viewport=PHONE, java_script_enabled=has_script)
        context.set_default_timeout(SECONDS)
        page = context.new_page()
        page.goto(f"{url}/agents/a/requests/{asked.request.id}")
        page.get_by_role("heading", name="An equal call is in doubt").wait_for()
        page.locator("#decision textarea[name=note]").fill("I called the bank.")
        page.get_by_role("button", name="Approve", exact=True).click()
        page.get_by_text("Nothing is decided yet.").wait_for()
        assert runs == [5]
        # Nobody decides twice in a moment: a second press on the same place is none.
        if has_script:
            page.locator("html[data-script]:not([data-held])").wait_for(state="attached")
        page.get_by_role("button", name="Approve: it may happen twice").click()
        page.get_by_text("ann approved it").wait_for()
        (decided,) = runtime.decided().get(timeout=60)
        assert decided.decision is not None
        assert decided.decision.note == "I called the bank."
        runtime.get("a").outcome().get(timeout=60)
        assert runs == [5, 5]
        context.close()


def test_a_doubt_is_settled_by_the_keyboard_alone_from_the_page_of_what_needs_a_person(
    browser: Browser,
) -> None:
    with paying() as (url, runtime, _):
        context = browser.new_context(viewport=PHONE)
        context.set_default_timeout(SECONDS)
        page = context.new_page()
        page.goto(f"{url}/attention")
        settle = page.get_by_role("link", name="Settle the doubt about pay of a")
        settle.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/doubts#d-*")
        opener = page.locator("summary", has_text="What became of it")
        opener.focus()
        page.keyboard.press("Enter")
        page.get_by_label("What it did").focus()
        page.keyboard.type("The bank has not paid.")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_text("The doubt is settled.").wait_for()
        assert runtime.doubts().get(timeout=60) == []
        context.close()

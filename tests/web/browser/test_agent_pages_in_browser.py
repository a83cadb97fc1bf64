"""The pages of an agent in a real browser: what is followed, local times, and an edit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browser_waits import wait_until
from tests.support.web_server import served
from tests.support.web_site import ORDER, Done, desk, logged_in
from understudy import Agent, Runtime, ScriptedModel, call
from understudy.web import ui

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 60_000
TEXT = "A line of what was said.\n\n" * 6
BOX = "document.getElementById('conversation')"


@contextmanager
def talk(turns: int = 12) -> Iterator[tuple[str, Runtime]]:
    """An agent with a long conversation, and the address of its page."""
    agent = Agent("talker", ScriptedModel(lambda _: TEXT))
    with Runtime([agent], feed=True) as runtime:
        ref = runtime.spawn("talker", id="t1")
        for number in range(turns):
            ref.run(f"Question {number}").get(timeout=60)
        with served(ui(runtime, auth=logged_in("ann"))) as url:
            yield f"{url}/agents/t1", runtime


def from_end(page: Page) -> float:
    """How many pixels are below what is seen of the conversation."""
    found: float = page.evaluate(f"-{BOX}.scrollTop")
    return found


def test_a_conversation_opens_at_its_end_and_follows_it(page: Page) -> None:
    with talk() as (url, runtime):
        page.goto(url)
        page.get_by_text("Question 11").wait_for()
        assert page.evaluate(f"{BOX}.scrollHeight > {BOX}.clientHeight + 300")
        assert from_end(page) == 0
        runtime.get("t1").run("And now?").get(timeout=60)
        page.get_by_text("And now?").wait_for()
        assert from_end(page) == 0
        assert not page.get_by_role("link", name="New below").is_visible()


def test_who_reads_above_is_not_moved_and_is_told_of_what_is_new_below(page: Page) -> None:
    with talk() as (url, runtime):
        page.goto(url)
        early = page.get_by_text("Question 5", exact=True)
        early.scroll_into_view_if_needed()
        wait_until(page, f"{BOX}.scrollTop < -200")
        place = early.bounding_box()
        runtime.get("t1").run("And now?").get(timeout=60)
        button = page.get_by_role("link", name="New below")
        button.wait_for()
        after = early.bounding_box()
        assert place is not None
        assert after is not None
        assert abs(place["y"] - after["y"]) < 2
        button.click()
        wait_until(page, f"{BOX}.scrollTop === 0")
        assert not button.is_visible()
        runtime.get("t1").run("Once more?").get(timeout=60)
        page.get_by_text("Once more?").wait_for()
        assert from_end(page) == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_without_a_script_it_opens_at_its_end_too(browser: Browser, width: int) -> None:
    context = browser.new_context(
        java_script_enabled=False, viewport={"width": width, "height": 800}
    )
    page = context.new_page()
    with talk() as (url, _):
        page.goto(url)
        box = page.locator("#conversation").bounding_box()
        last = page.locator("#conversation .row").last.bounding_box()
        assert box is not None
        assert last is not None
        assert last["y"] + last["height"] <= box["y"] + box["height"] + 1
        page.get_by_role("link", name="To the end").click()
        assert page.url.endswith("#end")
        assert page.locator("time").first.inner_text()
    context.close()


def test_on_a_phone_the_end_of_the_conversation_is_in_the_window(browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 780})
    page = context.new_page()
    with talk() as (url, _):
        page.goto(url)
        last = page.locator("#conversation .row").last.bounding_box()
        assert last is not None
        assert last["y"] + last["height"] <= 780
        assert page.get_by_role("link", name="Timeline").is_visible()
    context.close()


def test_an_entry_of_the_timeline_leads_to_its_row(page: Page) -> None:
    turns = [call("question"), "Thanks.", *["ok"] * 12]
    with Runtime([desk(Done(), *turns)], feed=True) as runtime:
        ref = runtime.spawn("desk", id="a1")
        ref.run("go").get(timeout=60)
        (request,) = ref.state().get(timeout=60).requests
        ref.resume({request.id: {"type": "respond", "value": "A"}}).get(timeout=60)
        for number in range(12):
            ref.run(f"{TEXT}{number}").get(timeout=60)
        with served(ui(runtime, auth=logged_in("ann"))) as url:
            page.goto(f"{url}/agents/a1/timeline")
            first = page.locator("details.run").last
            first.locator("summary").first.click()
            first.get_by_role("link", name="question", exact=True).last.click()
            found = page.locator(".row.found")
            found.wait_for()
            assert "question" in found.inner_text()
            page.wait_for_load_state()  # the styles move what is shown before
            box, row = page.locator("#conversation").bounding_box(), found.bounding_box()
            assert box is not None
            assert row is not None
            assert box["y"] <= row["y"] <= box["y"] + box["height"]


def test_times_are_those_of_who_reads_them(browser: Browser) -> None:
    context = browser.new_context(timezone_id="Asia/Kolkata")
    page = context.new_page()
    with talk(1) as (url, runtime):
        runtime.schedule(
            "t1", "report", cron="30 9 * * *", timezone="Europe/Berlin", input="Go."
        ).get(timeout=60)
        page.goto(f"{url}/schedules")
        full = page.locator("time[data-as=full]").first
        assert re.fullmatch(r"\d{4}-\d\d-\d\d 1[34]:00:00 (GMT\+5:30|IST)", full.inner_text())
        assert re.fullmatch(r"\d{4}-\d\d-\d\d 0[78]:30:00 UTC", full.get_attribute("title") or "")
        page.get_by_text(re.compile(r"09:30")).wait_for()
        ago = page.locator("time[data-as=relative]").first
        assert re.search(r"GMT\+5:30|IST", ago.get_attribute("title") or "")
        # What is put in place live is, too.
        runtime.schedule("t1", "other", cron="0 9 * * *", timezone="UTC", input="Go.").get(
            timeout=60
        )
        page.get_by_role("heading", name="other").wait_for()
        for time in page.locator("time[data-as=full]").all():
            assert "UTC" not in time.inner_text()
    context.close()


def test_what_an_edit_changes_is_shown_as_it_is_typed_where_the_arguments_stand(
    page: Page,
) -> None:
    with edited_desk() as (url, done):
        page.goto(url)
        page.get_by_role("link", name="order", exact=True).click()
        table = page.locator(".proposed")
        table.wait_for()
        page.wait_for_load_state()  # the styles move what is shown before
        place = table.bounding_box()
        page.get_by_text("Edit, then run").click()
        fields = page.locator("#edit .fields")
        assert not table.is_visible()
        there = fields.bounding_box()
        assert place is not None
        assert there is not None
        assert abs(place["y"] - there["y"]) < 20
        page.locator("#edit").get_by_label("count", exact=True).last.fill("7")
        page.locator("#changes ins").wait_for()
        assert page.locator("#changes ins").inner_text() == "7"
        assert page.locator("#changes del").inner_text() == "3"
        page.locator("#edit").get_by_label("count", exact=True).last.fill("3")
        page.get_by_text("Nothing that is shown here is different.").wait_for()
        page.locator("#edit").get_by_label("note").first.fill("Ring twice.")
        page.locator("#changes ins", has_text="Ring twice.").wait_for()
        assert done.calls == []


def test_what_an_edit_changes_is_shown_without_a_script(browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(SECONDS)
    page = context.new_page()
    with edited_desk() as (url, done):
        page.goto(url)
        page.get_by_role("link", name="order", exact=True).click()
        page.get_by_text("Edit, then run").click()
        page.locator("#edit").get_by_label("count", exact=True).last.fill("7")
        page.get_by_role("button", name="Show the changes").click()
        assert page.locator("#changes ins").inner_text() == "7"
        assert page.locator("#edit").get_by_label("count", exact=True).last.input_value() == "7"
        assert done.calls == []
        page.locator("#edit").get_by_label("then the next").uncheck()
        page.get_by_role("button", name="Run with these arguments").click()
        page.get_by_text("What was changed:").wait_for()
        assert page.locator(".changes ins").first.inner_text() == "7"
    context.close()


@contextmanager
def edited_desk() -> Iterator[tuple[str, Done]]:
    """A desk that has asked for an order."""
    done = Done()
    with Runtime([desk(done, call("order", ORDER), "ok")], feed=True) as runtime:
        runtime.spawn("desk", id="a1").run("go").get(timeout=60)
        with served(ui(runtime, auth=logged_in("ann"))) as url:
            yield url, done


def test_a_run_that_failed_goes_on_from_where_its_failure_is_told(page: Page) -> None:
    replies: list[Any] = [ConnectionError("down"), "cured"]
    with Runtime([Agent("desk", ScriptedModel(replies))], feed=True) as runtime:
        runtime.spawn("desk", id="a1").run("hi").get(timeout=60)
        with served(ui(runtime, auth=logged_in("ann"))) as url:
            page.goto(f"{url}/agents/a1")
            page.get_by_role("button", name="Again from here").click()
            page.locator(".row", has_text="cured").wait_for()
            assert not page.get_by_role("button", name="Again from here").is_visible()

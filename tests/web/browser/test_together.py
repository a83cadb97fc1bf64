"""Two people on the pages at once, in a real browser: by mouse, by keyboard, and without script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.web_server import served
from tests.support.web_site import ORDER, Done, desk, refund
from understudy import Runtime, call, reject
from understudy.web import User, ui

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
pytestmark = [pytest.mark.browser, pytest.mark.slow]
SECONDS = 60_000


def by_cookie(request: Any) -> User:
    """Who it is, as the browser says."""
    return User(request.cookies["who"], may=frozenset({"read", "decide"}))


@contextmanager
def two_people(
    browser: Browser, *turns: Any, agents: int = 1, **options: Any
) -> Iterator[tuple[str, Runtime, Page, Page]]:
    """A desk on which agents have asked, and the windows of ann and bob."""
    with Runtime([desk(Done(), *(turns or (refund(), "ok")))], feed=True) as runtime:
        for number in range(1, agents + 1):
            runtime.spawn("desk", id=f"a{number}").run("go").get(timeout=60)
        with served(ui(runtime, auth=by_cookie)) as url:
            windows, wrong = [], list[str]()
            for name in ("ann", "bob"):
                given: Any = {"viewport": {"width": 1440, "height": 900}, **options}
                context = browser.new_context(**given)
                context.set_default_timeout(SECONDS)
                context.add_cookies([{"name": "who", "value": name, "url": url}])
                window = context.new_page()
                window.on("pageerror", lambda error: wrong.append(str(error)))
                window.on(
                    "console",
                    lambda said: wrong.append(said.text) if "Content Secu" in said.text else None,
                )
                windows.append(window)
            ann, bob = windows
            yield url, runtime, ann, bob
            for window in windows:
                window.context.close()
            assert wrong == []


def is_live(page: Page) -> None:
    page.locator("html[data-live=on]").wait_for(state="attached")


@pytest.mark.parametrize("width", [1440, 390])
def test_two_people_see_each_other_and_who_has_it(browser: Browser, width: int) -> None:
    with two_people(browser, viewport={"width": width, "height": 900}) as (url, _, ann, bob):
        for page in (ann, bob):
            page.goto(url)
            page.get_by_role("link", name="refund").click()
            is_live(page)
        ann.get_by_text("bob looks at this request now.").wait_for()
        bob.get_by_text("ann looks at this request now.").wait_for()
        ann.get_by_role("button", name="I take it").click()
        ann.get_by_text("You have it").wait_for()
        bob.get_by_text("ann has it").wait_for()
        bob.get_by_text("Comment, assign or snooze").click()
        bob.get_by_label("Comment").fill("Half a com")
        ann.get_by_text("Comment, assign or snooze").click()
        ann.get_by_label("Comment").fill("I call her first.")
        ann.get_by_role("button", name="Write the comment").click()
        bob.get_by_text("I call her first.").wait_for()
        assert bob.get_by_label("Comment").input_value() == "Half a com"
        bob.get_by_role("button", name="Take it over").click()
        ann.get_by_text("and has taken it over from you").wait_for()
        wide = "document.documentElement.scrollWidth <= innerWidth"
        assert ann.evaluate(wide)
        bob.goto("about:blank")
        ann.get_by_text("bob looks at this request now.").wait_for(state="detached")


def test_the_slower_of_two_sees_the_decision_in_place_of_the_form_and_keeps_the_text(
    browser: Browser,
) -> None:
    with two_people(browser, call("order", ORDER), "ok") as (url, runtime, ann, _):
        ann.goto(url)
        ann.get_by_role("link", name="order", exact=True).click()
        is_live(ann)
        ann.locator("form.decide").get_by_label("Note for the audit").fill("She is right.")
        ann.get_by_text("Edit, then run").click()
        ann.locator("#edit").get_by_label("count", exact=True).last.fill("7")
        [pending] = runtime.pending().get(timeout=60)
        runtime.get("a1").decide({pending.request.id: reject(by="bob")}).get(timeout=60)
        cover = ann.locator(".covered")
        cover.get_by_text("bob rejected it.").wait_for()
        assert ann.get_by_role("button", name="Approve").count() == 0
        kept = {
            label: cover.get_by_label(label, exact=True).input_value()
            for label in ("Note for the audit", "count")
        }
        assert kept == {"Note for the audit": "She is right.", "count": "7"}
        assert ann.evaluate("document.activeElement.className") == "note bad covered"
        assert cover.get_by_label("count").get_attribute("readonly") is not None


def test_without_script_the_slower_of_two_gets_the_text_back(browser: Browser) -> None:
    options: dict[str, Any] = {"java_script_enabled": False}
    with two_people(browser, **options) as (url, runtime, ann, _):
        ann.goto(url)
        ann.get_by_role("link", name="refund").click()
        ann.get_by_text("Comment, assign or snooze").click()
        ann.get_by_label("Comment").fill("I look.")
        ann.get_by_role("button", name="Write the comment").click()
        ann.get_by_text("I look.").wait_for()
        ann.get_by_role("button", name="I take it").click()
        ann.get_by_text("You have it").wait_for()
        ann.locator("form.decide").get_by_label("Note for the audit").fill("She is right.")
        [pending] = runtime.pending().get(timeout=60)
        runtime.get("a1").decide({pending.request.id: reject(by="bob")}).get(timeout=60)
        ann.get_by_role("button", name="Approve").click()
        ann.get_by_text("Your answer changed nothing").wait_for()
        ann.get_by_text("bob rejected it.").wait_for()
        assert ann.get_by_label("Note for the audit").input_value() == "She is right."


def decided(runtime: Runtime, agent: str) -> None:
    """Somebody else decides on what an agent asks."""
    found = runtime.pending().get(timeout=60)
    [pending] = [each for each in found if each.agent_id == agent]
    runtime.get(agent).decide({pending.request.id: reject(by="bob")}).get(timeout=60)


def test_rows_do_not_move_under_the_pointer(browser: Browser) -> None:
    with two_people(browser, agents=4) as (url, runtime, ann, _):
        ann.goto(url)
        is_live(ann)
        row = ann.locator("article.ask", has=ann.get_by_role("link", name="a3"))
        row.hover()
        before = row.bounding_box()
        decided(runtime, "a1")
        runtime.spawn("desk", id="a5").run("go").get(timeout=60)
        ann.get_by_role("button", name="1 new, 1 gone: show").wait_for()
        ended = ann.locator("[data-ended='bob rejected it.']")
        ended.wait_for()
        assert ended.get_by_role("link", name="a1").count() == 1
        assert ended.get_by_role("checkbox").is_disabled()
        assert ann.get_by_role("link", name="a5").count() == 0
        assert row.bounding_box() == before
        ann.mouse.move(5, 5)
        ann.get_by_role("link", name="a5").wait_for()
        ann.get_by_role("link", name="a1").wait_for(state="detached")
        assert ann.locator("[data-ended]").count() == 0
        assert ann.locator(".arrived").is_hidden()
        decided(runtime, "a2")  # and it is live again
        ann.get_by_role("link", name="a2").wait_for(state="detached")


def test_rows_do_not_move_while_the_focus_is_among_them(browser: Browser) -> None:
    with two_people(browser, agents=2) as (url, runtime, ann, _):
        ann.goto(url)
        is_live(ann)
        ann.mouse.move(5, 5)
        ann.get_by_role("link", name="a2").focus()
        decided(runtime, "a1")
        ann.get_by_role("button", name="1 gone: show").wait_for()
        for _ in range(20):
            ann.keyboard.press("Shift+Tab")
            if ann.evaluate("!!document.activeElement.closest('.arrived')"):
                break
        assert ann.get_by_role("link", name="a1").count() == 1, "the way there is within the list"
        ann.keyboard.press("Enter")
        ann.get_by_role("link", name="a1").wait_for(state="detached")
        assert ann.get_by_role("link", name="a2").count() == 1


def test_what_is_chosen_stays_chosen_when_the_list_goes_on(browser: Browser) -> None:
    with two_people(browser, agents=3) as (url, runtime, ann, _):
        ann.goto(url)
        is_live(ann)
        box = ann.locator("article.ask", has=ann.get_by_role("link", name="a2")).get_by_role(
            "checkbox"
        )
        box.check()
        decided(runtime, "a1")
        ann.locator("[data-ended='bob rejected it.']").wait_for()
        ann.locator("h1").click()  # the pointer and the focus leave the list
        ann.get_by_role("link", name="a1").wait_for(state="detached")
        assert box.is_checked()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_written_is_readable_for_everybody(browser: Browser, scheme: str) -> None:
    with two_people(browser, agents=2, color_scheme=scheme) as (url, runtime, ann, bob):
        for pending in runtime.pending().get(timeout=60):
            of = pending.agent_id, pending.request.id
            runtime.take(*of, by="ann").get(timeout=60)
            runtime.assign(*of, to="bob", by="ann").get(timeout=60)
            runtime.comment(*of, "I call her first.", by="bob").get(timeout=60)

        def check(page: Page) -> None:
            page.evaluate(AXE.read_text(encoding="utf-8"))
            found = page.evaluate("axe.run()")["violations"]
            assert found == [], [(each["id"], each["nodes"][0]["html"]) for each in found]

        ann.goto(url)
        is_live(ann)
        ann.locator("article.ask").last.hover()
        decided(runtime, "a1")
        ann.locator("[data-ended='bob rejected it.']").wait_for()
        bob.goto(url)
        bob.get_by_role("link", name="refund").click()
        bob.get_by_text("Comment, assign or snooze").click()
        is_live(bob)
        for page in (ann, bob):
            check(page)
        bob.locator("form.decide").get_by_label("Note for the audit").fill("Fine.")
        decided(runtime, "a2")
        bob.locator(".covered").wait_for()
        check(bob)

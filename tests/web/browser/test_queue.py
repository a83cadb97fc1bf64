"""A queue of requests in a real browser: keys, what was seen, the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.queue_story import DESKTOP, PHONE, decide_all, in_view
from tests.support.web_queue import fill, hundred, queue_agents
from tests.support.web_server import served
from tests.support.web_site import logged_in
from understudy import Agent, Runtime, ScriptedModel, call, tool
from understudy.models import ScriptedRequest
from understudy.web import ui

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
SECONDS = 60


class Desk:
    """A desk with requests, and its pages."""

    def __init__(self, runtime: Runtime, url: str, done: list[tuple[str, Any]]) -> None:
        self.runtime = runtime
        self.url = url
        self.done = done

    def waiting(self) -> list[Any]:
        return list(self.runtime.pending().get(timeout=SECONDS))

    def fill(self, count: int) -> None:
        with ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, fill(self.runtime, count)).result(SECONDS)


@pytest.fixture
def desk() -> Iterator[Desk]:
    done: list[tuple[str, Any]] = []
    with (
        Runtime(queue_agents(done), feed=True) as runtime,
        served(ui(runtime, auth=logged_in("ann"), title="Support desk")) as url,
    ):
        yield Desk(runtime, url, done)


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport=request.param)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert errors == []


def until_free(page: Page) -> None:
    """Until a button counts again after the last one: nobody decides twice in a moment."""
    page.locator("html[data-script]:not([data-held])").wait_for(state="attached")


def first(page: Page, desk: Desk, tool: str = "") -> None:
    page.goto(f"{desk.url}/{'?tool=' + tool if tool else ''}")
    page.locator("#live .ask h2 a").first.click()
    page.wait_for_url("**/requests/*")


def test_a_hundred_mixed_requests_take_a_load_each_and_a_key_or_two(desk: Desk, page: Page) -> None:
    desk.fill(100)
    first(page, desk)
    found = decide_all(page, [tool for _, tool, _ in hundred()])
    assert page.url.startswith(f"{desk.url}/?last=")
    assert (found.decisions, found.loads, found.scrolls, found.in_view) == (100, 100, 0, 100), found
    assert max(what.count("+") for what in found.keys) == 1, "two keys at the most"
    assert found.keys["refund by a"] == 68, "one key for what fits into the window"
    assert desk.waiting() == []
    assert "Nothing waits for an answer" in page.inner_text("main")


def test_approve_is_off_until_all_was_on_the_screen_and_the_record_says_how(
    desk: Desk, page: Page
) -> None:
    """I17."""
    desk.fill(4)
    first(page, desk, "send_letter")
    approve = page.locator('.decision [data-key="a"]')
    assert approve.is_disabled()
    page.keyboard.press("a")
    assert len(desk.waiting()) == 4
    for button in page.get_by_role("button", name="Show all of it").all():
        button.click()
    assert approve.is_disabled(), "its end was not on the screen"
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    approve.click(trial=True)
    with page.expect_navigation():
        page.keyboard.press("a")
    refund = desk.waiting()[0]
    page.goto(f"{desk.url}/agents/{refund.agent_id}/requests/{refund.request.id}")
    until_free(page)
    with page.expect_navigation():
        page.keyboard.press("a")
    (letter,) = desk.runtime.get("letters-00003").decisions().get(timeout=SECONDS)
    assert letter.decision.seen == "unfolded"
    (paid,) = desk.runtime.get(refund.agent_id).decisions().get(timeout=SECONDS)
    assert paid.decision.seen == "at_once"


def test_who_presses_twice_decides_once(desk: Desk, page: Page) -> None:
    """The second press was on the next page, and approved what nobody had seen."""
    desk.fill(3)
    # The clock of the page stands still: both presses are in one moment, however slow the machine.
    page.clock.install()
    first(page, desk, "refund")
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    with page.expect_navigation():
        page.keyboard.press("a")
    assert page.locator(".place .number").inner_text() == "1 of 2"
    page.keyboard.press("a")
    page.locator('.decision button[value="approve"]').click()
    page.locator('.decision button[value="reject"]').click()
    assert len(desk.waiting()) == 2
    page.clock.run_for(400)
    with page.expect_navigation():
        page.keyboard.press("a")
    assert len(desk.waiting()) == 1


def test_the_filter_is_kept_and_the_next_page_says_what_came_of_the_last_request(
    desk: Desk, page: Page
) -> None:
    desk.fill(12)
    first(page, desk, "refund")
    with page.expect_navigation():
        page.keyboard.press("j")
    assert page.locator(".place .number").inner_text() == "2 of 9"
    with page.expect_navigation():
        page.keyboard.press("k")
    with page.expect_navigation():
        page.keyboard.press("a")
    assert "tool=refund" in page.url
    assert (
        page.locator(".last").inner_text() == "Refund 20.00 EUR to Ada Lovelace: ann approved it."
    )
    assert page.locator("h1").inner_text().startswith("Refund 21.37 EUR to Grace Hopper")
    page.locator("#queue").click()
    page.wait_for_url("**/?tool=refund")
    assert page.locator("#live .ask").count() == 8


def test_keys_act_on_the_focused_request_of_the_list_alone(desk: Desk, page: Page) -> None:
    desk.fill(3)
    page.goto(desk.url)
    page.keyboard.press("a")
    page.keyboard.press("x")
    assert page.url == f"{desk.url}/", "no request has the focus"
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert page.locator('input[name="chosen"]:checked').count() == 1
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    page.locator("#search").focus()
    page.keyboard.type("ada")
    assert page.locator("#search").input_value() == "ada"
    page.keyboard.press("Enter")
    page.wait_for_url("**/?search=ada*")
    assert page.locator("#live .ask").count() == 1


def test_an_edit_opens_by_its_button_and_the_next_request_begins_closed_at_its_top(
    desk: Desk, page: Page
) -> None:
    desk.fill(12)
    first(page, desk, "refund")
    page.locator('.decision [data-key="e"]').click()
    focused = page.locator("#edit .fields input:focus")
    focused.wait_for()
    assert page.locator('.decision [data-key="a"]').is_hidden(), "it would run what was asked"
    focused.press("Escape")
    page.keyboard.press("a")
    assert len(desk.waiting()) == 12
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    with page.expect_navigation():
        page.get_by_role("button", name="Run with these arguments").click()
    assert page.evaluate("window.scrollY") == 0
    assert page.locator("#edit").get_attribute("open") is None
    page.goto(f"{desk.url}/?tool=refund")
    page.keyboard.press("j")
    with page.expect_navigation():
        page.keyboard.press("e")
    focused.wait_for()


def test_a_row_shows_its_title_and_nothing_lies_over_the_heading_of_a_request(
    desk: Desk, page: Page
) -> None:
    desk.fill(4)
    page.goto(f"{desk.url}/?tool=refund")
    title = page.locator("#live .ask h2").first
    assert title.evaluate("each => each.scrollWidth <= each.clientWidth"), "it is cut"
    title.get_by_role("link").click()
    page.wait_for_url("**/requests/*")
    covered = page.locator("#asks").evaluate(
        """heading => {
            const range = document.createRange();
            range.selectNodeContents(heading);
            const text = range.getBoundingClientRect();
            const button = document.querySelector("#edit > summary");
            const edge = button.getBoundingClientRect();
            return button.checkVisibility() && edge.left < text.right && edge.top < text.bottom;
        }"""
    )
    assert not covered


def test_without_script_nothing_is_folded_and_the_bar_stands_below_all_that_is_shown(
    desk: Desk, browser: Browser
) -> None:
    """I17."""
    desk.fill(4)
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    plain = context.new_page()
    letter = next(each for each in desk.waiting() if each.request.tool_name == "send_letter")
    plain.goto(f"{desk.url}/agents/{letter.agent_id}/requests/{letter.request.id}")
    bar, end = (plain.locator(each).bounding_box() for each in (".decision", ".shown >> nth=0"))
    assert bar is not None
    assert end is not None
    assert end["y"] < bar["y"]
    assert end["y"] > 3000, "all 60 paragraphs are there"
    plain.get_by_role("button", name="Approve").click()
    (decided,) = desk.runtime.get(letter.agent_id).decisions().get(timeout=SECONDS)
    assert decided.decision.seen is None
    assert "Letter to Barbara Liskov: Parcel 3" in plain.locator(".last").inner_text()
    context.close()


def test_many_are_decided_as_a_table_where_what_stands_out_is_not_chosen(
    desk: Desk, page: Page
) -> None:
    desk.fill(60)
    page.goto(f"{desk.url}/?tool=refund")
    page.get_by_role("link", name="as a table").click()
    page.wait_for_url("**/bulk*")
    refunds = len([each for each in desk.waiting() if each.request.tool_name == "refund"])
    assert page.locator('input[name="chosen"]').count() == refunds
    assert page.locator(".odd-row").count() == 1
    assert page.locator(".odd-row input").is_checked() is False
    assert in_view(page, ".decision")
    assert page.locator(".decision .good").is_disabled()
    page.keyboard.press("x")
    with page.expect_navigation():
        page.keyboard.press("a")
    assert page.locator("h1").inner_text() == f"{refunds - 1} recorded, 0 refused"
    (left,) = [each for each in desk.waiting() if each.request.tool_name == "refund"]
    assert left.request.arguments["amount"] == 4900.0


def test_a_table_that_is_wider_than_the_screen_is_seen_to_its_last_column(browser: Browser) -> None:
    """I17."""

    @tool(ask=True)
    def transfer(
        creditor: str, iban: str, bank: str, reference: str, purpose: str, currency: str, cents: int
    ) -> None:
        """Transfer money."""

    def reply(asked: ScriptedRequest) -> Any:
        at = asked.prompt
        texts = {
            name: f"{name}-of-the-{at}-transfer"
            for name in ("creditor", "iban", "bank", "reference", "purpose", "currency")
        }
        return call("transfer", {**texts, "cents": len(at)})

    with (
        Runtime([Agent("payer", ScriptedModel(reply), tools=[transfer])]) as runtime,
        served(ui(runtime, auth=logged_in("ann"))) as url,
    ):
        for number in ("first", "second"):
            runtime.spawn("payer").run(number).get(timeout=SECONDS)
        page = browser.new_page(viewport=PHONE)
        page.goto(f"{url}/bulk")
        box, approve = page.locator(".scroll"), page.locator(".decision .good")
        assert box.evaluate("box => box.scrollWidth > box.clientWidth + 100")
        page.mouse.wheel(0, 10_000)
        page.locator(".shown").scroll_into_view_if_needed()
        assert approve.is_disabled(), "its last columns were not on the screen"
        box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        approve.click(trial=True)
        page.reload()
        assert approve.is_disabled()
        page.keyboard.press("x")
        with page.expect_navigation():
            page.keyboard.press("a")
        assert page.locator("h1").inner_text() == "2 recorded, 0 refused"
        page.close()
        for agent_id in [each.id for each in runtime.agents().get(timeout=SECONDS)]:
            (decided,) = runtime.get(agent_id).decisions().get(timeout=SECONDS)
            assert decided.decision.seen == "scrolled"

"""The chat page of `examples/ag_ui_app.py` in a real browser: a phone, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from examples.ag_ui_app import make_app
from tests.support.web_server import held_port, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
SECONDS = 60_000
ASKED = "May I call refund?"


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as held:
        yield held


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_a_refund_is_asked_for_edited_and_approved_after_a_restart(
    browser: Browser, tmp_path: Path, port: int, width: int, scheme: Literal["dark", "light"]
) -> None:
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, bypass_csp=True
    )
    context.set_default_timeout(SECONDS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with served(make_app(store=store), port) as url:
        page.goto(url)
        page.get_by_label("Your message").fill("Refund order 17, please.")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name=ASKED).wait_for()
        page.get_by_text("Waiting for your answer.").wait_for()
        wrong += faults(page, "asked")
        page.get_by_label("amount").press("Enter")
        page.reload()
        page.get_by_role("heading", name=ASKED).wait_for()
    page.get_by_role("button", name="Approve").click()
    error = page.locator("#status.error")
    error.wait_for()
    assert error.inner_text()
    with served(make_app(store=store), port):
        page.reload()
        page.get_by_label("amount").fill("40")
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("refunded 40.00 for order 17").wait_for()
        page.get_by_text("That is all for order 17.").wait_for()
        page.get_by_role("heading", name=ASKED).wait_for(state="detached")
        assert page.get_by_text("Refund order 17, please.").count() == 1
        wrong += faults(page, "done")
    context.close()
    assert not wrong, "\n".join(wrong)


def test_a_refused_answer_keeps_what_was_typed_and_shows_what_has_become_of_the_request(
    browser: Browser, tmp_path: Path, port: int
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.set_default_timeout(SECONDS)
    page = context.new_page()
    with served(make_app(store=f"sqlite:///{tmp_path / 'desk.db'}"), port) as url:
        page.goto(url)
        page.get_by_label("Your message").fill("Refund order 17, please.")
        page.keyboard.press("Enter")
        page.get_by_label("amount").fill("forty")
        page.get_by_role("button", name="Approve").click()
        page.locator("#status.error", has_text="valid number").wait_for()
        assert page.get_by_label("amount").input_value() == "forty"

        other = context.new_page()
        other.goto(page.url)
        other.get_by_role("button", name="Reject").click()
        other.get_by_text("That is all for order 17.").wait_for()
        page.get_by_label("amount").fill("40")
        page.get_by_role("button", name="Approve").click()
        page.locator("#status.error", has_text="answered").wait_for()
        page.get_by_text("That is all for order 17.").wait_for()
        assert page.get_by_role("heading", name=ASKED).count() == 0
        assert page.get_by_label("Your message").is_enabled()
    context.close()


def faults(page: Page, what: str) -> list[str]:
    """What axe-core finds wrong, and what is wider than the window."""
    found = []
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append(f"{what}: it is wider than the window")
    page.add_script_tag(path=AXE)
    for broken in page.evaluate("axe.run()")["violations"]:
        found.append(f"{what}: {broken['help']}: {broken['nodes'][0]['html'][:160]}")
    return found

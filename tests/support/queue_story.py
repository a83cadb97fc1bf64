"""A person decides on mixed requests by the keyboard, and what it took them.

`python -m tests.support.queue_story` prints the figures of a hundred requests, at a desk and on a
phone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.web_queue import fill, hundred, queue_agents
from tests.support.web_server import served
from tests.support.web_site import logged_in
from understudy import Runtime
from understudy.web import ui

if TYPE_CHECKING:
    from playwright.sync_api import Page

DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
SECONDS = 60


@dataclass
class Figures:
    """What some decisions took."""

    keys: dict[str, int] = field(default_factory=dict)
    """By tool and number of keys for one decision: how many decisions took so many."""
    loads: int = 0
    scrolls: int = 0
    """Requests that had to be scrolled by hand: no bar in view, or `x` did not show the rest."""
    in_view: int = 0
    """Requests whose decision bar was in view when the page had loaded."""
    seconds: list[float] = field(default_factory=list)
    """Of each decision: from its first key until the next page is there."""

    @property
    def decisions(self) -> int:
        return len(self.seconds)

    def __str__(self) -> str:
        ordered = sorted(self.seconds)
        keys = sum(count * (what.count("+") + 1) for what, count in self.keys.items())
        taken = ", ".join(f"{count} × {what}" for what, count in sorted(self.keys.items()))
        return (
            f"{self.decisions} decisions, {self.loads} loads, {keys} keys, {self.scrolls} scrolls, "
            f"the bar in view on {self.in_view}; {taken}; {sum(ordered):.1f} s, "
            f"{1000 * ordered[len(ordered) // 2]:.0f} ms a decision (median), "
            f"{1000 * ordered[-1]:.0f} ms the slowest"
        )


def in_view(page: Page, selector: str) -> bool:
    """Whether all of it is on the screen."""
    box, size = page.locator(selector).bounding_box(), page.viewport_size
    assert box is not None
    assert size is not None
    return bool(box["y"] >= 0 and box["y"] + box["height"] <= size["height"])


def keys_for(page: Page, tool: str) -> list[str]:
    """What a person presses: approve; show the rest, and approve; or reject what is no approval."""
    if tool in ("which_account", "book"):
        return ["r", "Enter"]
    return ["x", "a"] if page.locator('.decision [data-key="a"]').is_disabled() else ["a"]


def decide_all(page: Page, tools: list[str]) -> Figures:
    """Decide on the request of the page, and on those that follow it, which have these tools."""
    found = Figures()

    def loaded(_: object) -> None:
        found.loads += 1

    page.on("domcontentloaded", loaded)
    for at, tool in enumerate(tools):
        assert page.locator(".place .number").inner_text() == f"1 of {len(tools) - at}"
        is_in_view = in_view(page, ".decision")
        found.in_view += is_in_view
        # A press right after the last decision does not count: nobody decides twice in a moment.
        page.locator("html[data-script]:not([data-held])").wait_for(state="attached")
        pressed = keys_for(page, tool)
        start = time.perf_counter()
        for key in pressed[:-1]:
            page.keyboard.press(key)
        # What is rejected need not have been on the screen.
        is_approved = pressed[-1] == "a"
        needs_more = is_approved and page.locator("[data-approves]:disabled").count() > 0
        found.scrolls += needs_more or not is_in_view
        if needs_more:
            page.mouse.wheel(0, 100_000)
            page.locator("[data-approves]").first.click(trial=True)
        with page.expect_navigation():
            page.keyboard.press(pressed[-1])
        found.seconds.append(time.perf_counter() - start)
        what = f"{tool} by {'+'.join(pressed)}"
        found.keys[what] = found.keys.get(what, 0) + 1
    page.remove_listener("domcontentloaded", loaded)
    return found


def main(count: int = 100) -> None:
    """Print the figures."""
    from playwright.sync_api import sync_playwright

    tools = [tool for _, tool, _ in hundred(count)]
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    done: list[tuple[str, Any]] = []
    for name, size in (("1440 px", DESKTOP), ("390 px", PHONE)):
        with (
            Runtime(queue_agents(done), feed=True) as runtime,
            served(ui(runtime, auth=logged_in("ann"))) as url,
            sync_playwright() as playwright,
        ):
            with ThreadPoolExecutor() as pool:
                pool.submit(asyncio.run, fill(runtime, count)).result(SECONDS)
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport=size)
            page.goto(url)
            page.locator("#live .ask h2 a").first.click()
            page.wait_for_url("**/requests/*")
            print(f"{name}: {decide_all(page, tools)}")  # noqa: T201
            browser.close()


if __name__ == "__main__":
    main()

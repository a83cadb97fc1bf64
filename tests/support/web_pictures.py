"""The pictures of the pages in the docs: `python -m tests.support.web_pictures docs/pictures`."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from examples.expense_desk import desk_runtime, hand_in
from tests.support.web_demo import agents, filled
from tests.support.web_server import served
from tests.support.web_site import Done, logged_in
from understudy import Runtime, approve
from understudy.web import ui

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

SIZES = {"": (1280, 860), "-phone": (390, 780)}


def pages_of(runtime: Runtime) -> dict[str, str]:
    """What is shown, by the name of the picture."""
    asks = {found.agent_id: found for found in runtime.pending().get(timeout=60)}

    def request(agent_id: str) -> str:
        return f"/agents/{agent_id}/requests/{asks[agent_id].request.id}"

    return {
        "inbox": "/",
        "request": request("ticket-2041"),
        "edit": request("ticket-2043"),
        "doubt": request("ticket-2049"),
        "doubts": "/doubts",
        "agents": "/agents",
        "conversation": "/agents/ticket-2041",
        "timeline": "/agents/ticket-2041/timeline",
    }


def main(folder: Path) -> None:
    """Draw all of them, light and dark; the lists and a request on a phone as well."""
    with Runtime(agents(Done()), feed=True) as runtime:
        in_thread(filled(runtime))
        draw(folder, runtime, pages_of(runtime), "ann", "Support desk")
    with desk_runtime() as runtime:
        in_thread(hand_in(runtime))
        runtime.get("trip-17").resume(approve(by="ann")).get(timeout=60)
        asks = {found.agent_id: found for found in runtime.pending().get(timeout=60)}
        for trip in range(30, 36):  # a budget of which four fifths are used
            runtime.spawn("expenses", "taxis").run(f"Trip {trip} was 24 euros.").get(timeout=60)
        page = {
            "votes": f"/agents/trip-17/requests/{asks['trip-17'].request.id}",
            "budgets": "/budgets",
        }
        draw(folder, runtime, page, "bob", "Expenses")


def in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Do what waits for answers of a runtime in a thread of its own."""
    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, work).result(60)


def launched(playwright: Playwright) -> Browser:
    """The Chromium of this machine."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    return playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


def draw(folder: Path, runtime: Runtime, pages: dict[str, str], who: str, title: str) -> None:
    """Draw these pages as this person sees them."""
    site = ui(runtime, auth=logged_in(who), title=title)
    with served(site) as url, sync_playwright() as playwright:
        browser = launched(playwright)
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                page = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                )
                for name, path in pages.items():
                    if size and name not in ("inbox", "request", "doubts"):
                        continue
                    page.goto(url + path)
                    if name == "edit":
                        page.locator("#edit > summary").click()
                        page.locator("#edit").scroll_into_view_if_needed()
                        page.evaluate("document.querySelector('#edit').scrollIntoView()")
                    page.screenshot(path=folder / f"web-{name}{size}-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

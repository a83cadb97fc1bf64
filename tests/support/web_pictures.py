"""The pictures of the pages in the docs: `python -m tests.support.web_pictures docs/pictures`."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.support.web_demo import agents, filled
from tests.support.web_server import served
from tests.support.web_site import Done, logged_in
from understudy import Runtime
from understudy.web import ui

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
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with Runtime(agents(Done()), feed=True) as runtime:
        with ThreadPoolExecutor() as pool:
            pool.submit(asyncio.run, filled(runtime)).result(60)
        site = ui(runtime, auth=logged_in("ann"), title="Support desk")
        with served(site) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for size, (width, height) in SIZES.items():
                for scheme in ("light", "dark"):
                    page = browser.new_page(
                        viewport={"width": width, "height": height},
                        color_scheme="dark" if scheme == "dark" else "light",
                    )
                    for name, path in pages_of(runtime).items():
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

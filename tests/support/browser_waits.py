"""Waiting for a page of the library, whose policy lets no script evaluate a text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

SECONDS = 60


def wait_until(page: Page, expression: str) -> None:
    """Until a JavaScript expression is true there.

    Playwright's `wait_for_function` fails on such a page unless it is true at the first look.
    """
    end = time.monotonic() + SECONDS
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"it does not come true: {expression}"
        page.wait_for_timeout(20)

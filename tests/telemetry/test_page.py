"""`docs/telemetry.md` shows what two processes have really exported (O2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.telemetry_story import NAME, as_text, played

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"


@pytest.mark.slow
def test_the_trace_on_the_page_is_what_two_processes_export() -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = re.search(rf"<!-- python -m {NAME} -->\n```text\n(.*?)```", page, re.DOTALL)

    assert shown is not None
    assert shown[1] == as_text(played())

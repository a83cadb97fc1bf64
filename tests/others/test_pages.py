"""Pages with code of other libraries: both sides run, and do the same."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs import PAGES

pytestmark = [pytest.mark.others, pytest.mark.filterwarnings("ignore")]
BLOCK = re.compile(
    r"^```(?P<kind>py|python)\n(?P<code>.*?)^```\n(?:\n```text\n(?P<prints>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
"""As of `tests.support.docs`; what is marked `py` is of another library."""
WITH_OTHERS = [page for page in PAGES if "```py\n" in page.read_text(encoding="utf-8")]
MOVING = [page for page in WITH_OTHERS if page.stem.startswith("from_")]


def ran(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[tuple[str, dict[str, Any]]]:
    """The kind of each block that has run, in order, and what is defined after it."""
    text = page.read_text(encoding="utf-8")
    module = types.ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = []
    for block in BLOCK.finditer(text):
        above = "\n" * (text.count("\n", 0, block.start()) + 1)
        exec(compile(above + block["code"], str(page), "exec"), module.__dict__)
        line = len(above)
        assert capsys.readouterr().out == (block["prints"] or ""), f"{page.name}:{line}"
        found.append((block["kind"], dict(module.__dict__)))
    return found


@pytest.mark.parametrize("page", WITH_OTHERS, ids=lambda page: page.stem)
def test_every_block_of_a_page_with_other_libraries_prints_what_the_page_says(
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ran(page, monkeypatch, capsys)
    if page in MOVING:
        (before, there), (after, here) = done
        assert (before, after) == ("py", "python")
        assert there["refunded"] == here["refunded"] == {"17": 20.0}


def test_three_pages_tell_what_an_agent_was_before() -> None:
    assert {page.stem for page in MOVING} == {"from_adk", "from_langgraph", "from_openai_agents"}

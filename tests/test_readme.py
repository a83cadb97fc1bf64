"""Every Python block of the README and of `docs/` really runs, and prints what it says.

The convention: the blocks of a page run in reading order in one namespace, as a reader would type
them. A `text` block right after a Python block is what that block prints.
"""

import logging
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs import BLOCK, PAGES, ROOT


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """What a page sets up for logging ends with the page."""
    loggers = [logging.getLogger(name) for name in (None, "understudy", "pykka", "desk")]
    before = [(logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate = propagate


@pytest.mark.slow
@pytest.mark.usefixtures("logging_restored")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_python_block_of_a_page_runs_and_prints_what_the_page_says(
    page: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python"), "a block is not closed"
    module = types.ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        above = "\n" * (text.count("\n", 0, block.start()) + 1)  # so that a traceback fits the page
        exec(compile(above + block["code"], str(page), "exec"), module.__dict__)
        printed = capsys.readouterr().out
        line = len(above)
        assert printed == (block["prints"] or ""), f"{page.name}:{line} prints something else"


def test_every_link_of_a_page_to_a_file_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_no_two_pages_of_the_tutorial_share_a_store() -> None:
    """Who types all pages in one folder would meet the agent of a page before."""
    pages = sorted((ROOT / "docs/tutorial").glob("*.md"))
    stores = [set(re.findall(r"sqlite:///[\w.]+", page.read_text("utf-8"))) for page in pages]
    named = sorted(store for of_page in stores for store in of_page)
    assert len(named) >= 3
    assert len(set(named)) == len(named), f"some of these are of two pages: {named}"

"""The pages of the documentation, and the Python blocks of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<prints>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
"""A Python block, and a text block right behind it, which says what the first one prints."""


def blocks_of(text: str) -> Iterator[tuple[int, str]]:
    """The Python blocks of a page, each with the number of its first line of code."""
    for block in BLOCK.finditer(text):
        yield text.count("\n", 0, block.start()) + 2, block["code"]

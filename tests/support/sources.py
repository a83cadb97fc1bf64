"""Our own code, for the tests that read it: each file is parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "parsed", "sources"]

ROOT = Path(__file__).parents[2]


def sources(*folders: str) -> Iterator[Path]:
    """The Python files in these folders of the project, and in theirs."""
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """What the file says."""
    return ast.parse(path.read_text(encoding="utf-8"))

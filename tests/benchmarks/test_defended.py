"""`benchmarks.defended` lists what is written for speed or memory, and the code says why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.defended import DEFENDED, Defended
from tests.support.sources import ROOT, parsed, sources

PACKAGE = ROOT / "understudy"
MEASURED = re.compile(
    r"\b(takes?|took) (\d[\d.]*( to \d[\d.]*)? (times|KB|bytes|µs)|twice)"
    r"|times as long|twice as long|half of the time"
)
"""How a comment or a docstring says what plain code would take."""
REASON = re.compile(f"{MEASURED.pattern}|takes as long as")
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def scopes(node: ast.AST) -> Iterator[Scope]:
    """The functions and classes of a module or of one of them, without those inside of these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Scope):
            yield child
        else:
            yield from scopes(child)


def place_of(path: Path, line: int) -> str:
    """The innermost function or class that has this line, or else the module."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    inner: Scope | None = None
    node: ast.AST = parsed(path)
    while True:
        for inner in scopes(node):
            first = min(each.lineno for each in (inner, *inner.decorator_list))
            if first <= line <= (inner.end_lineno or 0):
                parts.append(inner.name)
                node = inner
                break
        else:
            return ".".join(parts)


def lines_of(where: str) -> str:
    """The source of a module, function or class that is listed."""
    parts = where.split(".")
    path = PACKAGE
    while (path / parts[0]).is_dir():
        path /= parts.pop(0)
    path /= f"{parts.pop(0)}.py"
    node: ast.AST = parsed(path)
    text = path.read_text(encoding="utf-8")
    for name in parts:
        found = {each.name: each for each in scopes(node)}
        assert name in found, f"{where}: there is no {name!r}"
        node = found[name]
        assert isinstance(node, Scope), "`scopes` gives no other"
        first = min(each.lineno for each in (node, *node.decorator_list))
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(lines[first - 1 : node.end_lineno])
    return text


def test_whatever_is_written_for_speed_or_memory_is_listed() -> None:
    found = {
        place_of(path, number): f"{path.name}:{number}: {line.strip()}"
        for path in sources("understudy")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if MEASURED.search(line)
    }
    listed = {each.where for each in DEFENDED}
    missing = {where: line for where, line in found.items() if where not in listed}
    assert not missing, f"not in benchmarks/defended.py: {missing}"


@pytest.mark.parametrize("entry", DEFENDED, ids=lambda entry: entry.where)
def test_what_is_listed_is_there_and_says_why(entry: Defended) -> None:
    assert REASON.search(lines_of(entry.where)), "no comment of it says what plain code takes"


def test_each_place_is_listed_once() -> None:
    places = [each.where for each in DEFENDED]
    assert sorted(places) == sorted(set(places))

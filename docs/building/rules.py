"""The tests of each rule, for the site: those that cite its id."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RULE = re.compile(
    r"^### <a id=\"(?P<anchor>\w+)\"></a>(?P<heading>[^\n]+) \((?P<id>[A-Z]\d+)\)\n"
    r"(?P<text>.*?)(?=^##|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A rule of `docs/rules.md`: its heading, and the text below it."""
ID = re.compile(r"\b[RUTMISPWAJOVK]\d{1,2}\b")
ABOVE = re.compile(r"^ *# ([A-Z]\d{1,2}(?:, [A-Z]\d{1,2})*)$", re.MULTILINE)
"""A comment of ids alone, as in the contracts, whose docstrings are the library's."""
NAMED = 6
"""How many tests, and how many files, are named below a rule."""


class Cited(NamedTuple):
    """A place that cites a rule: a test, or a file or class of tests, which has no name."""

    place: int
    ids: int
    file: str
    line: int
    name: str | None


def guards_of_rules(root: Path) -> dict[str, list[Cited]]:
    """By the id of a rule what cites it; first the tests that are about this rule alone."""
    found = defaultdict[str, list[Cited]](list)
    for path, file in _files(root):
        source = path.read_text(encoding="utf-8")
        if ID.search(source) is None:
            continue  # a third of the files: none of these is parsed
        lines = source.splitlines()
        for node in _cited_in(ast.parse(source)):
            ids = ID.findall(ast.get_docstring(node) or "")
            name, line = None, 0
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith("test_"):
                    continue
                name, line = node.name, node.lineno
                inside = "\n".join(lines[node.lineno : node.end_lineno])
                ids += [each for comment in ABOVE.findall(inside) for each in ID.findall(comment)]
            for place, each in enumerate(dict.fromkeys(ids)):
                found[each].append(Cited(place, len(ids), file, line, name))
    return {rule: sorted(cited, key=lambda each: each[:4]) for rule, cited in found.items()}


def _cited_in(
    node: ast.Module | ast.ClassDef,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The module or class itself, and the functions and classes that it defines."""
    yield node
    for each in node.body:
        if isinstance(each, ast.ClassDef):
            yield from _cited_in(each)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    """The files of tests, and what each is called below a rule."""
    for folder in ("tests", "understudy/testing/contracts"):
        for path in sorted((root / folder).rglob("*.py")):
            if folder != "tests":
                yield path, path.relative_to(root).as_posix()
            elif path.name.startswith("test_"):
                yield path, path.relative_to(root / folder).as_posix()


def with_tests(text: str, tests: dict[str, list[Cited]]) -> str:
    """The page of the rules with the tests of each rule, folded below it."""

    def folded(rule: re.Match[str]) -> str:
        cited = tests.get(rule["id"], [])
        names = list(dict.fromkeys(each.name for each in cited if each.name))[:NAMED]
        more = list(dict.fromkeys(each.file for each in cited if each.name not in names))
        said = ", ".join(f"`{name}`" for name in names)
        if more:
            others = f" and {len(more) - NAMED} other files" if len(more) > NAMED else ""
            said += f"; more in {', '.join(f'`{file}`' for file in more[:NAMED])}{others}"
        fold = f'<details class="tests" markdown>\n<summary>Tests</summary>\n\n{said}\n\n</details>'
        return f"{rule[0].rstrip()}\n\n{fold}\n\n"

    return RULE.sub(folded, text)

"""Each test is run by exactly one target of `.ci/run`, whatever marks it has."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
APART = {"ray", "others", "browser", "node"}
"""Each needs what others do not: no test has two of these marks."""


def marks() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    return [line.split(":")[0] for line in settings["markers"]]


def recipe(target: str) -> str:
    """The lines by which it is made."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, target
    return found[1]


def chosen(target: str) -> str | None:
    """Which tests it runs, as an expression of marks; None if it runs something else."""
    found = re.search(r"-m (?:'([^']+)'|(?!pytest\b)(\w+)(?= |$))", recipe(target), re.MULTILINE)
    return found and (found[1] or found[2])


def of_ci() -> dict[str, str]:
    targets = re.findall(r"^\s*make (test[\w-]*)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert len(targets) == len(set(targets))
    return {target: marks for target in targets if (marks := chosen(target)) is not None}


def combinations() -> Iterator[dict[str, bool]]:
    names = marks()
    for has in itertools.product([False, True], repeat=len(names)):
        given = dict(zip(names, has, strict=True))
        if sum(given[name] for name in APART) <= 1:
            yield given


def selects(expression: str, given: dict[str, bool]) -> bool:
    return bool(eval(expression, {"__builtins__": {}}, given))  # the words of pytest's are Python's


def test_whatever_marks_a_test_has_exactly_one_target_of_ci_runs_it() -> None:
    targets = of_ci()
    assert {"test", "test-slow", "test-faults", "test-ray"} <= targets.keys()
    for given in combinations():
        by = [target for target, expression in targets.items() if selects(expression, given)]
        assert len(by) == 1, (by, [name for name, has in given.items() if has])


def test_ci_checks_lint_and_types_first_and_a_target_of_tests_runs_tests_alone() -> None:
    made = re.findall(r"^\s*make (\S+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert made[0] == "check"
    assert re.search(r"^check: lint types\b", MAKEFILE, re.MULTILINE)
    for target in of_ci():
        assert re.search(rf"^{target}: \$\(VENV\)/\.\w+  ##", MAKEFILE, re.MULTILINE), target
        (line,) = recipe(target).splitlines()
        begins = (
            "\t$(TESTS) ",
            "\t$(BIN)/python -m pytest -m ",
            "\t$(VENV)/others/bin/python -m pytest -m ",
        )
        assert line.startswith(begins), target


def test_what_the_fast_target_runs_is_part_of_what_make_test_runs() -> None:
    fast, whole = chosen("test-fast"), chosen("test")
    assert fast is not None
    assert whole is not None
    for given in combinations():
        assert selects(whole, given) or not selects(fast, given), given


@pytest.mark.parametrize("mark", ["others", "browser", "node"])
def test_a_target_that_reads_one_folder_misses_no_test_elsewhere(mark: str) -> None:
    folder = recipe(f"test-{mark}").split()[-1]
    marked = [
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("test_*.py")
        if f"pytest.mark.{mark}" in path.read_text() and path != Path(__file__)
    ]
    assert marked
    assert [path for path in marked if not path.is_relative_to(folder)] == []

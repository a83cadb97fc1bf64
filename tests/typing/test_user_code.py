"""What mypy and pyright say of code that uses the library: `cases` holds it.

Each line of it that has a comment `# error: ...` must be an error for both, and no other line may
be. Types are compared by `assert_type`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkers import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CASES = Path(__file__).parent / "cases"

Errors = dict[str, dict[int, str]]
"""What is wrong, by file name and line."""


def marked() -> dict[str, set[int]]:
    """The lines that must be errors, by file name."""
    return {
        file.name: {
            number
            for number, line in enumerate(file.read_text().splitlines(), 1)
            if re.search(r"# error: \w", line)
        }
        for file in sorted(CASES.glob("*.py"))
    }


def mypy() -> Errors:
    # With the options of the project, thus with the cache that `make check` has just filled: that
    # takes a tenth of the time. Each file by its name, for the project excludes the folder.
    output = run("mypy", "--output=json", *map(str, sorted(CASES.glob("*.py"))))
    found: Errors = {}
    for line in output.splitlines():
        note = json.loads(line)
        if note["severity"] == "error":
            assert note["file"].startswith("tests/typing/cases/"), note
            found.setdefault(Path(note["file"]).name, {})[note["line"]] = note["message"]
    return found


def pyright() -> Errors:
    config = CASES / "pyrightconfig.json"
    output = run("pyright", "--outputjson", "-p", str(config))
    report: Mapping[str, Any] = json.loads(output)
    assert report["summary"]["filesAnalyzed"] == len(list(CASES.glob("*.py")))
    found: Errors = {}
    for note in report["generalDiagnostics"]:
        if note["severity"] == "error":
            line = note["range"]["start"]["line"] + 1
            found.setdefault(Path(note["file"]).name, {})[line] = note["message"]
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_each_marked_line_is_an_error_and_no_other(checker: Callable[[], Errors]) -> None:
    found, expected = checker(), marked()
    assert sum(map(len, expected.values())) > 50
    wrong = [
        f"{file}:{line}: {found[file][line]}"
        for file in found
        for line in sorted(found[file].keys() - expected[file])
    ]
    missed = [
        f"{file}:{line}: no error"
        for file in expected
        for line in sorted(expected[file] - found.get(file, {}).keys())
    ]
    assert wrong + missed == []


def test_everything_public_has_a_known_type() -> None:
    output = run("pyright", "--verifytypes", "understudy", "--ignoreexternal", "--outputjson")
    completeness = json.loads(output)["typeCompleteness"]
    incomplete = [
        f"{symbol['name']}: {'; '.join(note['message'] for note in symbol['diagnostics'])}"
        for symbol in completeness["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
    ]
    assert incomplete == []
    assert completeness["completenessScore"] == 1

"""What mypy and pyright say of the Python blocks of the README and of `docs/`.

All blocks of a page are one file, at the lines of the page. A line that is wrong on purpose has the
comment `# types refuse it`, and must be an error for both.

What is known only when a page runs is not asked of its types: which outcome it is, whether there is
a value, what a part of a message holds. The pages show these values, and are run by another test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkers import ROOT, run
from tests.support.docs import PAGES, blocks_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ON_PURPOSE = "# types refuse it"
WRONG = f"from understudy import Runtime\n\nRuntime(store=17)  {ON_PURPOSE}\n"
"""Must be found, so that a checker which finds nothing is noticed."""
MYPY = [
    "--config-file=",
    "--check-untyped-defs",
    "--no-strict-optional",
    "--ignore-missing-imports",
    "--disable-error-code=union-attr",
    "--disable-error-code=index",
    "--disable-error-code=literal-required",
]
PYRIGHT = {
    "pythonVersion": "3.11",
    "typeCheckingMode": "standard",
    "reportAttributeAccessIssue": False,
    "reportGeneralTypeIssues": False,
    "reportIndexIssue": False,
    "reportMissingImports": False,
    "reportOptionalIterable": False,
    "reportOptionalMemberAccess": False,
    "reportOptionalOperand": False,
    "reportOptionalSubscript": False,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file for each page, and one that is wrong on purpose."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "wrong.py").write_text(WRONG, encoding="utf-8")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = ""
        for line, block in blocks_of(text):
            code += "\n" * (line - 1 - code.count("\n")) + block
        if code:
            name = "_".join(page.relative_to(ROOT).with_suffix("").parts)
            (folder / f"page_{name.lower()}.py").write_text(code, encoding="utf-8")
    return folder


def mypy(folder: Path) -> set[tuple[str, int, str]]:
    cache = ROOT / ".mypy_cache" / "docs"
    output = run("mypy", "--output=json", f"--cache-dir={cache}", *MYPY, str(folder))
    notes = map(json.loads, output.splitlines())
    return {
        (Path(note["file"]).name, note["line"], note["message"])
        for note in notes
        if note["severity"] == "error"
    }


def pyright(folder: Path) -> set[tuple[str, int, str]]:
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({**PYRIGHT, "include": ["."], "extraPaths": [str(ROOT)]}))
    report = json.loads(run("pyright", "--outputjson", "-p", str(config)))
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py")))
    return {
        (Path(note["file"]).name, note["range"]["start"]["line"] + 1, note["message"])
        for note in report["generalDiagnostics"]
        if note["severity"] == "error"
    }


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_the_blocks_of_the_docs_have_no_other_error_than_those_on_purpose(
    checker: Callable[[Path], set[tuple[str, int, str]]], pages: Path
) -> None:
    expected = {
        (file.name, line)
        for file in pages.glob("*.py")
        for line, text in enumerate(file.read_text(encoding="utf-8").split("\n"), 1)
        if ON_PURPOSE in text
    }
    found = checker(pages)
    wrong = sorted(f"{f}:{line}: {said}" for f, line, said in found if (f, line) not in expected)
    assert not wrong, "\n".join(wrong)
    assert expected <= {(file, line) for file, line, _ in found}

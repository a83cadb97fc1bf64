"""The public names and their signatures change only on purpose, as `docs/versions.md` promises."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from docs.building.reference import public_modules
from tests.support.public_names import MODULES, PACKAGES, ROOT, public_names

LIST = Path(__file__).parent / "data" / "public_names.txt"


@pytest.mark.slow
def test_public_names_and_signatures_are_those_of_the_list() -> None:
    then = LIST.read_text(encoding="utf-8").splitlines()
    now = "\n".join(public_names()).splitlines()
    changes = list(difflib.unified_diff(then, now, "promised", "now", lineterm="", n=1))
    assert changes == [], (
        "A user's program may break by what is gone or changed: say so in CHANGELOG.md. Then:\n"
        "python -m tests.support.public_names tests/data/public_names.txt\n" + "\n".join(changes)
    )


def test_the_page_of_versions_lists_the_modules_that_are_public() -> None:
    page = (Path(__file__).parents[1] / "docs" / "versions.md").read_text(encoding="utf-8")
    section = page.partition("## Modules\n")[2].partition("\n\n`understudy.journal.contracts`")[0]
    assert re.findall(r"`([\w.]+)`", section) == sorted({*PACKAGES, *MODULES})


def test_what_the_pages_and_the_examples_import_is_public() -> None:
    """The page of votes imported from a module that no list of public modules had."""
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.py")]
    imported = {
        module
        for page in pages
        for module in re.findall(
            r"^ *(?:from|import) (understudy(?:\.\w+)*)", page.read_text(encoding="utf-8"), re.M
        )
    }
    assert {"understudy", "understudy.middleware", "understudy.trust"} <= imported
    assert sorted(imported - set(public_modules(ROOT))) == []

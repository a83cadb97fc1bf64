"""The public names and their signatures change only on purpose, as `docs/versions.md` promises."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from tests.support.public_names import MODULES, PACKAGES, public_names

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

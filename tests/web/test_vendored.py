"""What is vendored is what it says, and nothing is fetched from anywhere else."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import understudy.web

STATIC = Path(understudy.web.__file__).parent / "static"
ROW = re.compile(r"^\| `([^`]+)` \| .* \| `([0-9a-f]{64})` \|$", re.MULTILINE)


AXE = Path(__file__).parent / "browser" / "vendor"


@pytest.mark.parametrize(
    ("list_of", "folder"),
    [(STATIC / "VENDORED.md", STATIC / "vendor"), (AXE / "VENDORED.md", AXE)],
    ids=["pages", "tests"],
)
def test_vendored_files_are_those_that_are_listed_byte_for_byte(
    list_of: Path, folder: Path
) -> None:
    listed = dict(ROW.findall(list_of.read_text()))
    there = {path.name: path for path in folder.glob("*.js")}
    assert set(listed) == set(there)
    for name, path in there.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed[name], name


def test_our_own_files_name_no_address_elsewhere() -> None:
    templates = STATIC.parent / "templates"
    ours = [*STATIC.glob("*.css"), *STATIC.glob("*.js"), *templates.rglob("*.html")]
    assert len(ours) > 15
    for path in ours:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|url\([^#]|@import|\son\w+=|style=|<style", text), path

"""Each extra of the package is checked by `make test-installs`."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.support.installs import EXTRAS, NOT_INSTALLED, SILENT, TOOLS
from tests.support.pythons import floors

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def test_each_extra_is_installed_by_itself_and_used() -> None:
    declared = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    assert set(declared["optional-dependencies"]) == {*EXTRAS, *NOT_INSTALLED, *TOOLS}
    assert set(EXTRAS) > SILENT


def test_each_package_has_the_same_floor_wherever_it_is_named() -> None:
    """`make test-lowest` installs just one version of it."""
    found = floors([*EXTRAS, *NOT_INSTALLED])
    assert {name: lowest for name, lowest in found.items() if len(lowest) != 1} == {}

"""Builds that get a term of an approval wrong are found out, so the stories prove something."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.terms import BROKEN, STORIES, Story


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_the_terms_hold(story: Story, tmp_path: Path) -> None:
    """V30, V31, V32, V33, V34, V35, V36, V37."""
    assert await story(tmp_path) == ""


@pytest.mark.parametrize("name", BROKEN)
async def test_a_build_without_a_term_is_found_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V30, V31, V32, V33, V34, V35, V36, V37."""
    story, make = BROKEN[name]
    make(monkeypatch)
    assert await story(tmp_path) != ""

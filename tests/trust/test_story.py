"""Whatever happens, each call that starts was agreed to by the persons whom the rules of then ask.

People gain and lose roles, rules change, hosts are killed, agents move; roles are delegated, grants
are given and revoked, terms run out, rules get versions. `tests.support.trust.story` tells it, and
`tests.support.trust.judge` judges it by the records alone. Each build with one rule left out must
be found out, or the story proves nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.postgres import Hosts
from tests.support.trust.broken import OF_MORE, OF_STORY, built
from tests.support.trust.story import AMONG, MORE, acts_of, shortened, told

SHORT, LONG, OF_CONTROLS, OF_MORE_CONTROLS = 12, 72, 72, 75
"""Rounds."""
STORIES = int(os.environ.get("SOAK_STORIES", "2"))
"""Long stories of each kind; `make soak` tells more of them."""
COUNTED = range(3, 6)
"""The seeds of the stories that must have something of all kinds to judge. Others may lack one."""


async def counts_of(folder: Path, seed: int, rounds: int) -> dict[str, int]:
    """How often there was something to judge in a story in which nothing is wrong."""
    acts = acts_of(seed, rounds)
    story = await told(folder, seed, acts)
    if story.violations:
        pytest.fail(await shortened(folder, seed, acts[: story.acts]))
    return story.counts


@pytest.mark.slow
async def test_each_call_that_starts_was_agreed_to_and_each_that_waits_lacks_something(
    tmp_path: Path,
) -> None:
    """V1, V2, V3, V4, V5, V6, V7."""
    counts = await counts_of(tmp_path, 1, SHORT)
    for what in ("entered", "entered after votes", "at rest", "at rest with votes"):
        assert counts[what] >= 5, what


@pytest.mark.slow
async def test_a_seed_tells_the_same_story_each_time(tmp_path: Path) -> None:
    stories = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        stories.append(await told(folder, 2, acts_of(2, 4)))
    assert stories[0] == stories[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 3 + STORIES))
async def test_so_it_is_in_a_long_story(tmp_path: Path, seed: int) -> None:
    """V1, V2, V3, V4, V5, V6, V7."""
    counts = await counts_of(tmp_path, seed, LONG)
    assert counts["entered after votes"] >= 40
    assert seed not in COUNTED or counts["decided: reject"] >= 1


@pytest.mark.faults
@pytest.mark.parametrize("seed", [5, 6])
async def test_so_it_is_on_two_hosts_that_have_other_rules(hosts: Hosts, seed: int) -> None:
    """V1, V2, V3, V4, V5, V6, V7."""
    story = await told(hosts, seed, acts_of(seed, 40))
    assert story.violations == [], "\n".join(story.lines[-50:])
    assert story.counts["entered after votes"] >= 15


@pytest.mark.faults
@pytest.mark.parametrize("broken", OF_STORY)
async def test_a_build_with_one_rule_left_out_is_found_out(tmp_path: Path, broken: str) -> None:
    """V1, V2, V3, V4, V5, V6, V7: else the stories above would prove nothing."""
    with built(broken):
        story = await told(tmp_path, 1, acts_of(1, OF_CONTROLS))
    assert story.violations


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 4 + STORIES))
async def test_so_it_is_with_delegations_terms_grants_and_versions_of_rules(
    tmp_path: Path, seed: int
) -> None:
    """V9, V10, V20, V21, V22, V23, V24, V30, V31, V32, V33, V34, V35, V44, V46."""
    acts = acts_of(seed, LONG, MORE, AMONG)
    story = await told(tmp_path, seed, acts)
    assert story.violations == [], "\n".join(story.lines[-50:])
    for what in MORE_TO_JUDGE:
        assert seed not in COUNTED or story.counts.get(what, 0) >= 2, what


MORE_TO_JUDGE = (
    "entered by a vote for another",
    "entered by a grant",
    "entered by rules of a version",
    "within its time",
    "cooled off",
    "started soon",
    "broken glass",
    "reviews closed",
)


@pytest.mark.faults
async def test_so_it_is_with_these_on_two_hosts(hosts: Hosts) -> None:
    """V9, V10, V20, V21, V22, V23, V24, V30, V31, V32, V33, V34, V35, V44."""
    story = await told(hosts, 7, acts_of(7, 24, MORE, AMONG))
    assert story.violations == [], "\n".join(story.lines[-50:])
    assert story.counts["entered after votes"] >= 15


@pytest.mark.faults
@pytest.mark.parametrize("broken", OF_MORE)
async def test_a_build_that_gets_one_of_these_wrong_is_found_out(
    tmp_path: Path, broken: str
) -> None:
    """V2, V9, V10, V20, V21, V22, V23, V24, V30, V31, V32, V33, V34, V35, V44, V46.

    Else the stories above would prove nothing.
    """
    with built(broken):
        story = await told(tmp_path, 1, acts_of(1, OF_MORE_CONTROLS, MORE, AMONG))
    assert story.violations


@pytest.mark.slow
async def test_a_story_in_which_something_is_wrong_is_told_with_few_acts(tmp_path: Path) -> None:
    with built("who has asked may vote"):
        acts = acts_of(3, SHORT)
        story = await told(tmp_path, 3, acts)
        text = await shortened(tmp_path, 3, acts[: story.acts])
    assert text.startswith("seed 3:\nbegin")
    assert "must agree, and of persons who count" in text
    assert text.count("\nbegin") == 1

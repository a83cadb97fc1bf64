"""A build with one rule left out fails the test that guards it: else that would prove nothing.

These rules are about what is recorded, indexed and cached; no process has to die to show them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.actors import test_feed as feeds
from tests.actors import test_lists as lists
from tests.actors import test_run_ends as ends
from tests.actors import test_waits as waits
from tests.journal import test_checkpoints as caches
from tests.modes.steps import test_tool_retry as retries
from tests.support.plans import Desk
from understudy import SimulatedClock
from understudy.journal import agent_journal, asks, checkpoints, feed
from understudy.journal.sqlite import writer
from understudy.modes.steps.tool_call import body
from understudy.run.waits import points
from understudy.state import fold
from understudy.state import records as r
from understudy.state.agent_state import AgentState

pytestmark = pytest.mark.slow
Patch = pytest.MonkeyPatch


def _pause_is_forgotten(patch: Patch) -> None:
    patch.setitem(fold._APPLY, r.PauseRequested, lambda *_: None)


def _end_is_forgotten(patch: Patch) -> None:
    inner = fold._APPLY[r.RunStarted]
    patch.setitem(
        fold._APPLY, r.RunStarted, lambda state, record: inner(state, replace(record, ends_at=None))
    )


def _done_is_forgotten(patch: Patch) -> None:
    patch.setattr(points.Points, "_come_to_once", lambda *_: None)


def _compaction_forgets_what_is_done(patch: Patch) -> None:
    inner = AgentState.to_dict

    def to_dict(state: AgentState) -> dict[str, Any]:
        data = inner(state)
        for call in data["run"]["turn"]["calls"].values():
            kept = [(name, each) for name, each in call["points"].items() if each["kind"] != "once"]
            call["points"] = dict(kept)
        return data

    patch.setattr(AgentState, "to_dict", to_dict)


def _nothing_is_retried(patch: Patch) -> None:
    patch.setattr(body, "with_retries", lambda _run, _call, _policy, body, _: body())


def _answered_rows_stay(patch: Patch) -> None:
    inner = asks.changes
    patch.setattr(writer, "changes", lambda *given: inner(*given)._replace(gone=[]))


def _decisions_are_not_told(patch: Patch) -> None:
    inner = feed.feed_row

    def row(agent: str, seq: int, record: Any, encoded: Any) -> Any:
        return None if record.kind == "decided" else inner(agent, seq, record, encoded)

    patch.setattr(agent_journal, "feed_row", row)


def _heads_are_believed(patch: Patch) -> None:
    patch.setattr(checkpoints, "_head_crc", lambda *_: 0)


LEFT_OUT: dict[str, tuple[Callable[[Patch], None], Callable[[Path], Any]]] = {
    "J27: a requested pause is not kept": (
        _pause_is_forgotten,
        lambda _: ends.test_a_pause_in_the_middle_of_a_run_survives_a_crash(SimulatedClock()),
    ),
    "J27: a run does not know when it ends": (
        _end_is_forgotten,
        lambda _: (
            ends.test_a_run_that_waits_for_a_person_ends_at_its_time_while_the_agent_is_passive(
                Desk(), SimulatedClock(), "memory:"
            )
        ),
    ),
    "T11: what was done once is forgotten": (
        _done_is_forgotten,
        waits.test_fifty_deploys_in_the_middle_of_one_run_lose_and_double_nothing,
    ),
    "J17: a compaction forgets what was done once": (
        _compaction_forgets_what_is_done,
        waits.test_fifty_deploys_in_the_middle_of_one_run_lose_and_double_nothing,
    ),
    "J28: no call is retried": (
        _nothing_is_retried,
        lambda _: retries.test_without_a_runtime_the_caller_goes_on(),
    ),
    "J30: what is answered stays in the index": (
        _answered_rows_stay,
        lambda folder: lists.test_a_crash_at_any_commit_leaves_the_index_right(folder, 13, False),
    ),
    "J31: the feed leaves decisions out": (
        _decisions_are_not_told,
        lambda folder: feeds.test_after_a_crash_at_any_commit_the_feed_tells_what_is_recorded(
            folder, 13, True
        ),
    ),
    "J32: a damaged head is believed": (
        _heads_are_believed,
        lambda _: caches.test_no_bit_of_a_checkpoint_can_flip_unnoticed(),
    ),
}
"""How each rule is left out, and the test that guards it."""


async def _guarded(guard: Callable[[Path], Any], folder: Path) -> None:
    guarding = guard(folder)
    if inspect.isawaitable(guarding):
        await guarding


@pytest.mark.parametrize("broken", LEFT_OUT)
async def test_a_rule_that_is_left_out_fails_the_test_that_guards_it(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out, guard = LEFT_OUT[broken]
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    await _guarded(guard, tmp_path / "whole")
    leave_out(monkeypatch)
    with pytest.raises(AssertionError):
        await _guarded(guard, tmp_path / "broken")

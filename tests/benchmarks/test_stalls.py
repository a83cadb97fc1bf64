"""The benchmark of stalls measures each call that is meant to stop nobody (A13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stalls import CASES, measured
from tests.support.loops import soon
from understudy.journal import MemoryStore

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_each_call_lets_others_have_their_turn(tmp_path: Path, kind: str) -> None:
    steps = 400
    store = MemoryStore() if kind == "memory" else f"sqlite:///{tmp_path}/a.db"
    found = await soon(measured(steps, store))
    assert list(found) == [name for name, _, _ in CASES]
    for name in ("display()", "export()", "events(0), all of them"):
        assert found[name].rounds > 2 * steps // 100, name

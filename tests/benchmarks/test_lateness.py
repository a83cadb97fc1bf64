"""The benchmark of lateness runs and brings its numbers; how late anything is, no test asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.lateness import measure, stores


@pytest.mark.slow
def test_dues_are_counted_on_sqlite_and_none_is_lost_or_doubled(tmp_path: Path) -> None:
    [(name, store)] = stores(str(tmp_path), None)
    assert name == "SQLite"
    found = asyncio.run(measure(store, per_second=20, seconds=0.5))
    assert (found.lost, found.doubled) == (0, 0)
    assert 0 <= found.p50 <= found.p99 <= found.worst

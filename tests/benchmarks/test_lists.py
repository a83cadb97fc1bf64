"""The benchmark of lists runs and brings its numbers; how fast anything is, no test asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.lists import measure, stores


@pytest.mark.slow
def test_each_store_is_filled_and_brings_its_numbers(tmp_path: Path) -> None:
    names = []
    for name, store in stores(150, str(tmp_path), None):
        names.append(name)
        found = dict(asyncio.run(measure(store, 150)))
        assert {"pending(limit=100)", "count()", "its memory, MB"} <= set(found)
        assert all(value > 0 for value in found.values())
    assert names == ["memory", "SQLite"]

"""The benchmark of the inbox runs and brings its numbers; how fast anything is, no test asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.inbox import PAGES, measure, stores


@pytest.mark.slow
def test_the_pages_of_a_filled_inbox_are_loaded_and_measured(tmp_path: Path) -> None:
    ((name, store),) = stores(60, str(tmp_path), None)
    assert name == "SQLite"
    found = asyncio.run(measure(store, times=2))
    assert tuple(found) == PAGES
    assert all(cpu > 0 and seconds > 0 and size > 0 for cpu, seconds, size in found.values())

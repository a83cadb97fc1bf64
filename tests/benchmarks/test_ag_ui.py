"""The benchmark of the endpoints follows whole runs, and compares them."""

from __future__ import annotations

import asyncio

from benchmarks.ag_ui import measure, table


def test_each_way_follows_a_whole_run() -> None:
    taken = asyncio.run(measure(pieces=3, rounds=1))
    assert list(taken) == ["subscription", "AG-UI", "Vercel"]
    assert all(0 < first <= whole for ((first, whole),) in taken.values())


def test_the_table_has_ratios_to_a_plain_subscription() -> None:
    taken = {"subscription": [(0.001, 0.01)], "AG-UI": [(0.002, 0.03)]}
    assert "2.00x" in table(taken, 10)
    assert "3.00x" in table(taken, 10)

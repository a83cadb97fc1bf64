"""The benchmark of budgets runs and brings its numbers; how fast anything is, no test asks."""

from __future__ import annotations

import psycopg
import pytest

from benchmarks.budgets import HOSTS, STEPS, WARM, measure
from tests.support.loops import soon

pytestmark = pytest.mark.slow


async def test_all_hosts_spend_of_one_counter(postgres_url: str) -> None:
    kinds = ["none", "both"]
    found = await soon(measure(postgres_url, "budgets", kinds, runs=HOSTS, rounds=1))
    assert list(found) == kinds
    assert all(each.hosts > 0 and len(each.rounds) == 1 for each in found.values())
    with psycopg.connect(postgres_url) as connection:
        used = connection.execute(
            "SELECT b.amount FROM budgets_both.counters c JOIN budgets_both.buckets b"
            " ON b.counter = c.id WHERE c.budget LIKE 'calls#%'"
        ).fetchall()
    assert used == [(HOSTS * (STEPS - 1) * (WARM + 1),)]

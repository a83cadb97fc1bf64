"""Three hosts spend of the same budgets, and are killed: the counters are exact."""

from __future__ import annotations

import os

import pytest

from tests.support.durability.forks import Forks
from tests.support.durability.spent import BROKEN
from tests.support.postgres import Hosts

pytestmark = [pytest.mark.slow, pytest.mark.faults]
SEED = int(os.environ.get("SPENDING_SEED", "1"))
RUNS = int(os.environ.get("SPENT_RUNS", "50"))
KILLS = int(os.environ.get("SPENT_KILLS", "25"))


def test_what_hosts_spend_together_is_counted_exactly_while_they_are_killed(
    forks: Forks, hosts: Hosts
) -> None:
    """V60, V64, V67: known <= counter <= known + what was cut off."""
    where = {"url": hosts.url, "schema": hosts.schema}
    found = forks.play("spent", **where, seed=SEED, runs=RUNS, kills=KILLS, limit=RUNS * 15)
    print(found)  # noqa: T201  # the figures of `make spending`
    assert found["violations"] == []
    assert found["figures"]["killed"] == KILLS


@pytest.mark.parametrize("broken", BROKEN)
def test_a_build_that_counts_wrong_is_found_out(forks: Forks, hosts: Hosts, broken: str) -> None:
    """Else the test above would prove nothing."""
    where = {"url": hosts.url, "schema": hosts.schema}
    found = forks.play("spent", **where, seed=SEED, runs=32, kills=26, limit=1200, broken=broken)
    assert found["violations"]

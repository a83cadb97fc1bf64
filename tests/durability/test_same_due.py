"""Two hosts of one database that both see what is due: it is recorded once, whichever host is
first.

Rules: J21.
"""

from __future__ import annotations

import pytest

from tests.support.durability.same_due import BROKEN, FACTS, ORDERS, Order, same_due
from tests.support.postgres import Hosts

pytestmark = [pytest.mark.slow, pytest.mark.faults]


@pytest.mark.parametrize("order", ORDERS)
async def test_what_two_hosts_see_due_is_recorded_once(hosts: Hosts, order: Order) -> None:
    """A sleep, an expiry, a reminder, an occurrence of a schedule and a timed message."""
    assert await same_due(hosts, order) == []


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_build_that_records_a_due_twice_is_found_out(
    hosts: Hosts, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above would prove nothing."""
    order, break_ = BROKEN[broken]
    break_(monkeypatch, hosts)
    found = await same_due(hosts, order)
    for name, fact in FACTS.items():
        assert f"{fact} of {name} is recorded 2 times" in found

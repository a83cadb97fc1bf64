"""Two hosts of one database with the same order: it is done once, wherever one is cut off."""

from __future__ import annotations

import pytest

from tests.support.durability.same_key import BROKEN, POINTS, Point, same_key
from tests.support.postgres import Hosts

pytestmark = [pytest.mark.slow, pytest.mark.faults]


@pytest.mark.parametrize("point", POINTS)
async def test_equal_calls_at_two_hosts_run_once_wherever_one_is_cut_off(
    hosts: Hosts, point: Point
) -> None:
    """T14, J85."""
    assert await same_key(hosts, point) == []


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_build_with_a_hole_in_its_keys_is_found_out(
    hosts: Hosts, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above would prove nothing."""
    point, break_ = BROKEN[broken]
    break_(monkeypatch, hosts)
    assert any("have paid" in wrong for wrong in await same_key(hosts, point))

"""Three hosts on one PostgreSQL: each call at a random one, while they stop at aimed points."""

from __future__ import annotations

import os

import pytest

from tests.support.durability.aimed import CONTROLS, found_out, points_of
from tests.support.durability.forks import Forks
from tests.support.durability.rounds import ROUNDS
from tests.support.postgres import Hosts

pytestmark = [pytest.mark.slow, pytest.mark.faults]
SEED = int(os.environ.get("CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "3"))
POINTS = int(SECONDS) * 2


def test_every_call_at_a_random_host_is_done_once_while_hosts_stop_and_die(
    forks: Forks, hosts: Hosts
) -> None:
    """J5, J6, J14, J16, J70: nothing is lost, nothing is done twice, and no call hangs."""
    found = forks.play("any_host", url=hosts.url, schema=hosts.schema, seed=SEED, seconds=SECONDS)
    print(found)  # noqa: T201  # the figures of `make chaos`
    assert found["violations"] == []
    assert found["figures"]["killed"] + found["figures"]["stopped"] > 0


def test_every_call_at_a_random_process_is_done_once_by_sockets(forks: Forks, hosts: Hosts) -> None:
    """J76, J70: the same of processes that call each other, while they stop and die."""
    found = forks.play(
        "any_host", url=hosts.url, schema=hosts.schema, seed=SEED, seconds=SECONDS, by_socket=True
    )
    print(found)  # noqa: T201  # the figures of `make chaos`
    assert found["violations"] == []
    assert found["figures"]["killed"] + found["figures"]["stopped"] > 0


def test_no_call_is_cut_off_or_lost_while_hosts_drain_one_after_the_other(
    forks: Forks, hosts: Hosts
) -> None:
    """J53: a rolling deploy under load. No host is away, so nothing is in doubt or made twice."""
    found = forks.play(
        "any_host",
        url=hosts.url,
        schema=hosts.schema,
        seed=SEED,
        seconds=SECONDS,
        drains_alone=True,
    )
    print(found)  # noqa: T201  # the figures of `make chaos`
    assert found["violations"] == []
    assert found["figures"]["drained"] > 0


def test_a_call_is_done_once_wherever_its_asker_or_its_owner_stops(
    forks: Forks, hosts: Hosts
) -> None:
    """J14, J70: they are killed, or suspended below and past the lease."""
    points = points_of(POINTS, SEED)
    found = forks.play("any_host", url=hosts.url, schema=hosts.schema, seed=SEED, points=points)
    print(found)  # noqa: T201  # the figures of `make chaos`
    assert found["violations"] == []
    assert found["figures"]["killed"] + found["figures"]["stopped"] > POINTS // 3


@pytest.mark.parametrize("named", ROUNDS)
def test_hosts_that_answer_for_each_other_lose_nothing_where_it_matters(
    forks: Forks, hosts: Hosts, named: str
) -> None:
    """J6, J21, J70."""
    found = forks.play("any_host", url=hosts.url, schema=hosts.schema, seed=SEED, named=named)
    assert found["violations"] == []


@pytest.mark.parametrize("broken", CONTROLS)
def test_a_build_in_which_hosts_leave_something_out_is_found_at_once(
    forks: Forks, postgres_url: str, broken: str
) -> None:
    """The controls of the test above."""
    assert found_out(forks, postgres_url, broken, SEED)

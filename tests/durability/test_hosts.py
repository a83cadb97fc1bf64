"""Two hosts on one PostgreSQL: one owner at a time, nothing stale is kept, nobody is stranded."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import asdict

import pytest

from tests.support.durability import suspensions
from tests.support.durability.forks import Died, Forks
from tests.support.durability.suspended import rounds_of
from tests.support.postgres import Hosts, Server
from understudy import Agent, Completed, Runtime, ScriptedModel, tool
from understudy.journal import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend

pytestmark = [pytest.mark.slow, pytest.mark.faults]
FIGHTS = 5
"""Who wins a race is chance: so often is the broken build tried before it counts as unnoticed."""
SOON = 60.0
"""Seconds after which what is waited for does not come."""
SECONDS = float(os.environ.get("CHAOS_SECONDS", "6"))


def test_two_hosts_that_fight_for_agents_lose_nothing_and_own_one_at_a_time(
    forks: Forks, hosts: Hosts
) -> None:
    """J6, J7, J8: one of them is stopped past its lease, again and again, and woken."""
    found = forks.play("fight", url=hosts.url, schema=hosts.schema, seconds=SECONDS)
    print(found)  # noqa: T201  # the figures of `make chaos`
    assert found["violations"] == []
    assert found["frozen"] > 1
    assert found["acked"] > 20
    assert found["refused"], "they never met"


def test_hosts_that_do_not_look_at_epoch_and_lease_are_found_out(
    forks: Forks, hosts: Hosts
) -> None:
    """The control of the test above."""
    broken = "J7: on PostgreSQL, neither epoch nor lease is checked"
    forks.play("breaks", broken=broken)
    for _ in range(FIGHTS):
        try:
            found = forks.play(
                "fight", url=hosts.url, schema=hosts.schema, seconds=4, broken=broken
            )
        except Died as died:
            assert "StoreDamaged" in str(died), "two owners wrote over each other"  # noqa: PT017
            return
        if found["violations"]:
            return
    raise AssertionError(f"{FIGHTS} fights without a rule, and nobody noticed")


def test_an_owner_that_is_suspended_past_its_lease_enters_no_tool_and_writes_nothing(
    forks: Forks, hosts: Hosts
) -> None:
    """J6, J7, J8: wherever it is stopped; the other host takes over in time."""
    found = forks.play(
        "suspended",
        url=hosts.url,
        schema=hosts.schema,
        rounds=[asdict(round) for round in rounds_of(6, 1)],
        lease=0.6,
    )
    assert found["violations"] == []
    assert found["figures"]["takeovers"] > 0


@pytest.mark.parametrize("broken", suspensions.CONTROLS)
def test_rounds_of_suspended_owners_find_a_build_that_does_not_look(
    forks: Forks, postgres_url: str, broken: str
) -> None:
    """The control of the test above."""
    assert suspensions.found_out(forks, postgres_url, broken)


def test_a_server_that_stops_in_the_middle_of_a_recovery_strands_nobody(
    forks: Forks, postgres_server: Server, hosts: Hosts
) -> None:
    """J16: once it is back, every agent comes to its end."""
    left = forks.play("left_open", url=postgres_server.url, schema=hosts.schema, agents=20)
    hosts.end_lease("first")  # that of the host that was killed
    recovered, crashed = threading.Event(), threading.Event()
    asked: list[object] = []

    @tool(idempotent=True)
    async def note(what: str) -> str:
        return what

    async def reply(request: object) -> str:
        asked.append(request)
        first = len(asked) == 1
        assert await asyncio.to_thread(recovered.wait, SOON)
        if first:
            await asyncio.to_thread(postgres_server.crash)
            crashed.set()
        return "ok"

    poster = Agent("poster", ScriptedModel(reply), tools=[note])
    backend = PostgresBackend(postgres_server.url, host="next", schema=hosts.schema)
    store = DatabaseStore(backend)
    with Runtime([poster], store=store, deps_for=lambda _: "any", sweep=None) as runtime:
        refs = runtime.recover().get(timeout=SOON)
        assert sorted(ref.id for ref in refs) == sorted(left["agents"])
        recovered.set()
        assert crashed.wait(SOON)
        postgres_server.start()
        end = time.monotonic() + SOON
        for ref in refs:
            outcome = None
            while not isinstance(outcome, Completed) and time.monotonic() < end:
                outcome = ref.outcome().get(timeout=SOON)
            assert isinstance(outcome, Completed), f"{ref} is stranded: {outcome}"

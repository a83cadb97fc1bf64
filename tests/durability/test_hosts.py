"""Two hosts on one PostgreSQL: one owner at a time, nothing stale is kept, nobody is stranded."""

from __future__ import annotations

import os
import time

from tests.support.durability.forks import Died, Forks
from tests.support.postgres import Hosts, Server
from understudy import Agent, Completed, Runtime, ScriptedModel, tool
from understudy.journal import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend

FIGHTS = 5
"""Who wins a race is chance: so often is the broken build tried before it counts as unnoticed."""
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


def test_a_server_that_stops_in_the_middle_of_a_recovery_strands_nobody(
    forks: Forks, postgres_server: Server, hosts: Hosts
) -> None:
    """J16: 10 seconds after it is back, every agent has come to its end."""
    left = forks.play("left_open", url=postgres_server.url, schema=hosts.schema, agents=20)
    answered: list[str] = []

    @tool(idempotent=True)
    async def note(what: str) -> str:
        return what

    def reply(request: object) -> str:
        if not answered:
            postgres_server.crash()
        answered.append("")
        return "ok"

    poster = Agent("poster", ScriptedModel(reply), tools=[note])
    backend = PostgresBackend(postgres_server.url, host="next", lease=5, schema=hosts.schema)
    time.sleep(1.2)  # the lease of the host that was killed
    with Runtime([poster], store=DatabaseStore(backend), deps_for=lambda _: "any") as runtime:
        refs = runtime.recover().get(timeout=10)
        assert sorted(ref.id for ref in refs) == sorted(left["agents"])
        while not answered:
            time.sleep(0.01)
        postgres_server.start()
        end = time.monotonic() + 10
        for ref in refs:
            outcome = None
            while not isinstance(outcome, Completed) and time.monotonic() < end:
                outcome = ref.outcome().get(timeout=10)
            assert isinstance(outcome, Completed), f"{ref} is stranded: {outcome}"

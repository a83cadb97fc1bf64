"""A host of the version before, which goes on while newer ones are there: a rolling deploy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone

import pytest

from tests.support.agents import by_turn, completed, interrupted
from tests.support.frozen.older_host import OlderHost
from tests.support.frozen.places import PostgresPlace
from tests.support.loops import soon
from tests.support.postgres import Hosts
from understudy import Agent, OwnedElsewhere, Runtime, approve, call, tool
from understudy.journal import StoredAgent
from understudy.journal.database_store import DatabaseStore
from understudy.state.records import StatusNoted

NOTED = StatusNoted(status="idle", at=datetime(2026, 1, 1, tzinfo=timezone.utc))


@pytest.fixture
def hosts(postgres_url: str) -> Iterator[Hosts]:
    """Of tables that the version before makes."""
    with closing(Hosts(postgres_url)) as hosts:
        yield hosts


def desk() -> Agent:
    @tool
    async def pay() -> str:
        return "paid"

    return Agent("desk", by_turn(call("pay"), "Done."), tools=[pay], interrupt_on={"pay": True})


def newer(hosts: Hosts) -> Runtime:
    store = DatabaseStore(hosts.new("new"))
    return Runtime([desk()], store=store, idle_timeout=None, sweep=None, stop_timeout=0.001)


async def test_an_older_host_goes_on_while_a_newer_one_upgrades_the_tables(hosts: Hosts) -> None:
    """J51: it keeps what it owns; the two refuse each other's calls, and post nothing."""
    PostgresPlace(hosts, "v1")
    with OlderHost(hosts) as old:
        owned = old.claim("theirs")
        assert owned is not None
        owned = old.append(owned, NOTED)
        async with newer(hosts) as new:
            assert hosts.sql("SELECT version > 1 FROM schema_version") == [(True,)]
            assert old.renew()
            assert owned is not None
            assert old.append(owned, NOTED) is not None
            assert old.claim("another") is not None
            assert (await soon(new.get("theirs").state())).status == "idle"
            with pytest.raises(OwnedElsewhere, match="'old'"):
                await soon(new.get("theirs").run("go"))
            interrupted(await soon(new.spawn("desk", "ours").run("go")))
            assert old.claim("ours") is None
            assert hosts.sql("SELECT * FROM inbox") == []


async def test_what_an_older_host_leaves_goes_on_at_a_newer_one(hosts: Hosts) -> None:
    """J6, J7, J30: the index says less than the records then, and it is fenced."""
    async with newer(hosts) as new:
        asked = interrupted(await soon(new.spawn("desk", "t").run("go")))
    with OlderHost(hosts) as old:
        claimed = old.claim("t")
        assert claimed is not None
        owned = old.append(
            claimed, StatusNoted(status="interrupted", at=NOTED.at), standing="waits"
        )
        assert owned is not None
        hosts.end_lease("old")
        async with newer(hosts) as new:
            assert [found.agent_id for found in await soon(new.pending())] == ["t"]
            outcome = await soon(new.get("t").resume(asked.decide(approve())))
            assert completed(outcome).text == "Done."
            assert old.append(owned, NOTED) is None
            assert not old.renew()


async def test_what_an_older_host_deletes_is_gone_with_what_it_does_not_know(hosts: Hosts) -> None:
    """J7, J30: it removes neither what is asked nor a checkpoint."""
    async with newer(hosts) as new:
        interrupted(await soon(new.spawn("desk", "t").run("go")))
        await soon(new.get("t").stop(block=False))
    assert hosts.sql("SELECT count(*) FROM asks") == [(1,)]
    with OlderHost(hosts) as old:
        owned = old.claim("t")
        assert owned is not None
        old.delete(owned)
        async with newer(hosts) as new:
            assert await soon(new.pending()) == []
            asked = interrupted(await soon(new.spawn("desk", "t").run("again")))
            assert len(asked.state.messages) == 2
            (found,) = await soon(new.pending())
            assert found.request.id == asked.requests[0].id
            outcome = await soon(new.get("t").resume(asked.decide(approve())))
            assert completed(outcome).text == "Done."
        assert hosts.sql("SELECT count(*) FROM asks") == [(0,)]


async def test_agents_are_looked_at_only_while_a_host_of_an_older_version_may_write(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J30: what it wrote is indexed, also if it came and went between two looks."""
    backend, looks = hosts.new("new"), list[str]()
    inner = backend.unindexed

    def unindexed(after_id: str, limit: int) -> list[StoredAgent]:
        looks.append(after_id)
        return inner(after_id, limit)

    async def looked() -> int:
        before = looks.count("")
        await soon(store.index_agents())
        return looks.count("") - before

    monkeypatch.setattr(backend, "unindexed", unindexed)
    store = DatabaseStore(backend)
    assert store.shared is not None
    store.shared.listen(lambda _: None)
    await store.open(lambda: None)
    try:
        assert [await looked() for _ in range(4)] == [1, 1, 0, 0]
        with OlderHost(hosts) as old:
            assert [await looked() for _ in range(4)] == [1, 1, 1, 1]
            owned = old.claim("a")
            assert owned is not None
            assert old.append(owned, NOTED) is not None
        hosts.sql("DELETE FROM hosts WHERE name = 'old'")
        assert [await looked() for _ in range(4)] == [1, 1, 0, 0]
        assert hosts.sql("SELECT indexed_seq = last_seq FROM agents") == [(True,)]
        with OlderHost(hosts) as old:
            owned = old.claim("a")
            assert owned is not None
            assert old.append(owned, NOTED) is not None
            hosts.sql("DELETE FROM hosts WHERE name = 'old'")
        assert [await looked() for _ in range(3)] == [1, 1, 0]
        assert hosts.sql("SELECT indexed_seq = last_seq FROM agents") == [(True,)]
    finally:
        await store.close()

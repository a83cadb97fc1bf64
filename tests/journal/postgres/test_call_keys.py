"""Keys of calls where hosts share a store: no host waits for another one (J85)."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.support.batches import append, claim, commit
from tests.support.kept_keys import NOON, taking
from tests.support.loops import SECONDS, soon
from tests.support.postgres import Hosts
from understudy.errors import StoreUnavailable
from understudy.journal.contracts import Owned
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend

HASH = taking("one").key_hash


def owner(hosts: Hosts, name: str) -> tuple[PostgresBackend, Owned]:
    """A host, and an agent of it of the same name."""
    backend = hosts.open(name)
    owned = claim(backend, name)
    append(backend, owned, "x")
    return backend, replace(owned, last_seq=1)


@pytest.mark.quick
def test_of_two_hosts_that_take_a_key_at_once_one_gets_it(hosts: Hosts) -> None:
    """J85: the second one hears at once that it is to try again, and then who has it."""
    (first, a), (second, b) = owner(hosts, "a"), owner(hosts, "b")
    first.begin()
    assert first.take_key(a, taking("one")) == []
    with commit(second):
        assert second.take_key(b, taking("two")) is None
    first.commit()
    with commit(second):
        found = second.take_key(b, taking("two"))
    assert found is not None
    assert [use.call for use in found] == [("a", "one")]


def test_a_key_that_another_host_rolls_back_is_free(hosts: Hosts) -> None:
    (first, a), (second, b) = owner(hosts, "a"), owner(hosts, "b")
    first.begin()
    assert first.take_key(a, taking("one")) == []
    first.rollback()
    with commit(second):
        assert second.take_key(b, taking("two")) == []


def test_a_host_that_stands_still_while_it_takes_a_key_stops_no_other(hosts: Hosts) -> None:
    """J85: others take other keys, look at this one, and record what they do, at once."""
    (first, a), (second, b) = owner(hosts, "a"), owner(hosts, "b")
    first.begin()
    assert first.take_key(a, taking("one")) == []
    with commit(second):
        assert second.key_uses(HASH, NOON) == []
        assert second.take_key(b, taking("two")) is None
        assert second.take_key(b, taking("two", "refund:18")) == []
    append(second, b, "y", "z")
    first.rollback()


def test_whichever_hosts_take_a_key_at_once_one_gets_it(hosts: Hosts) -> None:
    owners = [owner(hosts, name) for name in "abcd"]
    start = threading.Barrier(len(owners), timeout=SECONDS)

    def take(of: tuple[PostgresBackend, Owned], key: str) -> bool:
        backend, owned = of
        wanted = taking(f"{owned.agent_id}/{key}", key)
        start.wait()
        while True:
            with commit(backend):
                found = backend.take_key(owned, wanted)
            if found is not None:
                return not found

    with ThreadPoolExecutor(len(owners)) as threads:
        for number in range(20):
            keys = [f"refund:{number}"] * len(owners)
            assert sum(threads.map(take, owners, keys)) == 1


class Journalled:
    """An agent of a store, with its journal."""

    def __init__(self, backend: PostgresBackend, patience: float) -> None:
        self.store = DatabaseStore(backend, patience=patience)

    async def journal(self, agent_id: str) -> Any:
        from understudy.journal import FoldedAgent
        from understudy.state.agent_state import AgentState

        await self.store.open(lambda: None)
        owned = await self.store.claim(agent_id, "support")
        assert owned is not None
        return self.store.journal(owned, FoldedAgent(AgentState()))


async def test_who_takes_a_key_that_another_host_is_taking_waits_for_it(hosts: Hosts) -> None:
    first, a = owner(hosts, "a")
    second = Journalled(hosts.new("b"), patience=SECONDS)
    journal = await second.journal("b")
    first.begin()
    assert first.take_key(a, taking("one")) == []
    waiting = asyncio.ensure_future(journal.call_keys.take_key(taking("two")))
    for _ in range(3):  # it has tried, and other changes are made meanwhile
        await soon(second.store.delete_old_keys(NOON))
    await soon(journal.call_keys.key_uses(HASH, NOON))
    assert not waiting.done()
    first.commit()
    assert [use.call for use in await soon(waiting)] == [("a", "one")]
    await second.store.close()


async def test_who_takes_a_key_that_another_host_is_taking_for_ever_gives_up(hosts: Hosts) -> None:
    first, a = owner(hosts, "a")
    second = Journalled(hosts.new("b"), patience=0.01)
    journal = await second.journal("b")
    first.begin()
    assert first.take_key(a, taking("one")) == []
    with pytest.raises(StoreUnavailable, match="another host is about to take the key"):
        await soon(journal.call_keys.take_key(taking("two")))
    first.rollback()
    await second.store.close()

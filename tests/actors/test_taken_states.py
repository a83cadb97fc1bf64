"""A host that takes an agent back continues from the state that it had (J6, J32).

What the other host has recorded meanwhile is read and folded; nothing before that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from tests.support.agents import completed, desk
from tests.support.hosts import opened
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import AgentRef, AgentState, Status
from understudy.errors import Fenced, SchemaVersionError, StoreBroken
from understudy.journal import (
    DatabaseStore,
    IndexEntry,
    JournalledAgent,
    Loaded,
    index_entry_of,
    replay,
    shared_store,
    taken_states,
)
from understudy.journal.checkpoints import WokenState
from understudy.journal.contracts import Owned
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.taken_states import TakenState, TakenStates
from understudy.state import records as r

TURNS = tuple("abcdefghijklmnop")


class Reads:
    """How a host reads agents."""

    def __init__(self, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        self.whole: list[str] = []
        """The agents that were read from their checkpoints or from their first records on."""
        self.behind: list[int] = []
        """How many records each of the other reads brought."""
        self.claimed: list[int] = []
        """The same of those that were part of a claim."""
        latest = backend.load_latest

        def load_latest(agent_id: str) -> Any:
            self.whole.append(agent_id)
            return latest(agent_id)

        def counted(
            counts: list[int], load: Callable[[str, int], Any], agent_id: str, after: int
        ) -> Any:
            found = load(agent_id, after)
            counts.append(0 if found is None else len(found[1].records))
            return found

        monkeypatch.setattr(backend, "load_latest", load_latest)
        for counts, name in ((self.behind, "load_behind"), (self.claimed, "load_claimed")):
            monkeypatch.setattr(backend, name, partial(counted, counts, getattr(backend, name)))


@asynccontextmanager
async def host(hosts: Hosts, name: str, *, every: int = 256) -> AsyncIterator[DatabaseStore]:
    """A host that others may take agents from."""
    store = DatabaseStore(hosts.new(name), checkpoint_every=every)
    assert store.shared is not None
    listens = asyncio.Event()
    store.shared.listen(lambda _: listens.set())
    await store.open(lambda: None)
    try:
        await soon(listens.wait())
        yield store
    finally:
        await store.close()


async def run_there(there: AgentRef, text: str, here: AgentRef) -> None:
    """It runs at another host, which takes it; this one hears of that."""
    await soon(here.info())  # its rest is in the store: else the call is posted to this host
    assert completed(await soon(there.run("go"))).text == text
    await until(lambda: here.status() is Status.PASSIVE)


async def found(store: DatabaseStore, id: str = "t") -> Loaded:
    """What the agent wakes from, which is what all its records fold to."""
    latest, all_of_it = await soon(store.load_latest(id)), await soon(store.load(id))
    assert latest is not None
    assert all_of_it is not None
    # More may have been recorded between the two reads.
    same = all_of_it.records[: latest.agent.last_seq - all_of_it.first_seq + 1]
    assert latest.folded().to_dict() == replay(same).to_dict()
    return latest


@pytest.mark.parametrize("few", [64, 1])
@pytest.mark.quick
async def test_an_agent_that_is_taken_back_is_read_from_where_it_was_left(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """With the claim, if few records are to be read: many would hold up the commits of others."""
    monkeypatch.setattr(shared_store, "FEW_RECORDS", few)
    backend = hosts.new("first")
    async with (
        opened(DatabaseStore(backend), desk(*TURNS)) as first,
        opened(DatabaseStore(hosts.new("second")), desk(*TURNS)) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        for text in "abc":
            assert completed(await soon(here.run("go"))).text == text
        before = (await soon(here.info())).last_seq
        await run_there(there, "d", here)
        recorded = (await soon(there.info())).last_seq - before
        reads = Reads(backend, monkeypatch)
        assert completed(await soon(here.run("go"))).text == "e"
        assert reads.whole == []
        brought = reads.claimed if few == 64 else reads.behind
        assert brought == reads.claimed + reads.behind
        assert brought == [1 + recorded], "its last record is compared"


async def test_a_read_that_breaks_a_claim_is_not_made_with_the_next_one(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is that of others, too."""
    backend = hosts.new("first")
    async with (
        opened(DatabaseStore(backend), desk(*TURNS)) as first,
        opened(DatabaseStore(hosts.new("second")), desk(*TURNS)) as second,
    ):
        here = first.spawn("desk", "t")
        assert completed(await soon(here.run("go"))).text == "a"
        there = second.get("t")
        await run_there(there, "b", here)
        await soon(there.info())  # its rest is in the store

        def broken(agent_id: str, after: int) -> Any:
            raise StoreBroken(cause="a page is damaged", remedy="Restore it.")

        monkeypatch.setattr(backend, "load_claimed", broken)
        with pytest.raises(StoreBroken):
            await soon(here.run("go"))
        assert completed(await soon(here.run("go"))).text == "c"


async def test_records_of_a_later_version_break_no_commit_beside_the_claim(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J51: whoever asks for that agent is told, and nobody else."""
    first = DatabaseStore(hosts.new("first"))
    async with (
        opened(first, desk(*TURNS)) as runtime,
        opened(DatabaseStore(hosts.new("second")), desk(*TURNS)) as second,
    ):
        here = runtime.spawn("desk", "t")
        assert completed(await soon(here.run("go"))).text == "a"
        there = second.get("t")
        await run_there(there, "b", here)
        await soon(there.info())  # its rest is in the store
        hosts.sql("UPDATE records SET version = 999 WHERE seq > 2")
        broken: list[Exception | None] = []
        first.tell_commits(lambda _, error: broken.append(error))
        with pytest.raises(SchemaVersionError):
            await soon(here.run("go"))
        assert [error for error in broken if error is not None] == []


async def test_states_go_on_from_host_to_host_with_their_checkpoints(hosts: Hosts) -> None:
    """The checkpoint of another host takes the place of the state that is older than it."""
    stores = [DatabaseStore(hosts.new(name), checkpoint_every=15) for name in ("first", "second")]
    async with (
        opened(stores[0], desk(*TURNS)) as first,
        opened(stores[1], desk(*TURNS)) as second,
        host(hosts, "third") as third,
    ):
        refs = [first.spawn("desk", "t"), second.get("t")]
        assert completed(await soon(refs[0].run("go"))).text == "a"
        seqs: list[int] = []
        for turn, text in enumerate(TURNS[1:12], start=1):
            await run_there(refs[turn % 2], text, refs[1 - turn % 2])
            for store in stores:
                await found(store)
            checkpoint = (await found(third)).checkpoint
            seqs.append(0 if checkpoint is None else checkpoint.seq)
        assert seqs == sorted(seqs), "whoever writes one knows of those before: none is damaged"
        assert len(set(seqs)) > 3


async def test_the_checkpoint_of_another_host_takes_the_place_of_the_state(hosts: Hosts) -> None:
    """Its segments are not those that the state was told of."""
    async with host(hosts, "a", every=4) as a, host(hosts, "b", every=4) as b:
        first = await Writer.of(a)
        await first.record("one", "two")
        second = await Writer.of(b)
        first.lose()
        checkpoint = (await found(a, "x")).checkpoint
        assert checkpoint is not None, "the store has none: it is the state that was left"
        assert (checkpoint.seq, checkpoint.kept) == (2, None)
        await second.record("three", "four")
        checkpoint = (await found(a, "x")).checkpoint
        assert checkpoint is not None
        assert (checkpoint.seq, checkpoint.kept is None) == (4, False)


async def test_records_count_until_the_next_checkpoint_wherever_they_are_made(
    hosts: Hosts,
) -> None:
    """However short the stay at each host: else a third one would have to read all of them."""
    async with host(hosts, "a", every=8) as a, host(hosts, "b", every=8) as b:
        writer = await Writer.of(a)
        for store in (b, a, b, a, b):
            await writer.record("one", "two")
            following = await Writer.of(store)
            writer.lose()
            writer = following
        await writer.record("one")
        checkpoint = (await found(a, "x")).checkpoint
        assert checkpoint is not None
        assert checkpoint.since == 8, "the store has one"


async def test_the_state_of_an_agent_that_was_deleted_meanwhile_is_not_used(hosts: Hosts) -> None:
    async with (
        opened(DatabaseStore(hosts.new("first")), desk(*TURNS)) as first,
        opened(DatabaseStore(hosts.new("second")), desk(*TURNS)) as second,
    ):
        here = first.spawn("desk", "t")
        assert completed(await soon(here.run("go"))).text == "a"
        await run_there(second.get("t"), "b", here)
        assert await soon(second.delete("t")) is True
        anew = second.spawn("desk", "t")
        for text in "abc":
            assert completed(await soon(anew.run("go"))).text == text
        assert completed(await soon(first.spawn("desk", "t").run("go"))).text == "d"


async def test_the_state_of_an_agent_that_was_compacted_meanwhile_is_not_used(
    hosts: Hosts,
) -> None:
    store = DatabaseStore(hosts.new("first"))
    async with (
        opened(store, desk(*TURNS)) as first,
        opened(DatabaseStore(hosts.new("second")), desk(*TURNS)) as second,
    ):
        here, there = first.spawn("desk", "t"), second.get("t")
        assert completed(await soon(here.run("go"))).text == "a"
        await run_there(there, "b", here)
        await soon(there.compact())
        assert (await found(store)).checkpoint is None
        assert completed(await soon(here.run("go"))).text == "c"


async def test_a_state_is_not_used_where_the_store_has_other_records_by_now(hosts: Hosts) -> None:
    """A standby takes over that lacks the last commits, and others get their numbers and epochs."""
    async with host(hosts, "a") as a, host(hosts, "b") as b:
        first = await Writer.of(a)
        await first.record("lost", "lost")
        taken = await Writer.of(b)
        first.lose()
        hosts.sql("DELETE FROM records")
        hosts.sql("UPDATE agents SET last_seq = 0")
        again = Writer(b, replace(taken.owned, last_seq=0), None)
        await again.record("kept", "kept", "kept")
        latest = await found(a, "x")
        assert latest.checkpoint is None
        assert latest.folded().values == {"kept": 1}


async def test_a_state_that_is_ahead_of_the_store_is_not_kept(hosts: Hosts) -> None:
    """What it appended last was refused: it had lost the agent by then."""
    async with host(hosts, "a") as a, host(hosts, "b") as b:
        first = await Writer.of(a)
        await first.record("one")
        second = await Writer.of(b)
        with pytest.raises(Fenced):
            await first.record("refused")
        first.lose()
        await second.record("two", "three")
        assert (await found(a, "x")).checkpoint is None


async def test_a_state_of_which_no_checkpoint_can_be_written_is_not_kept(hosts: Hosts) -> None:
    """A hook has put an object into what it was given to read: no record has it."""
    async with host(hosts, "a", every=2) as a, host(hosts, "b") as b:
        first = await Writer.of(a)
        given: list[Any] = []
        await first.keep({"given": given})
        given.append(object())
        await first.record("one")
        second = await Writer.of(b)
        first.lose()
        await second.record("three")
        assert (await found(a, "x")).checkpoint is None


async def test_of_an_agent_that_is_in_memory_again_no_other_state_is_kept(hosts: Hosts) -> None:
    async with host(hosts, "a") as a, host(hosts, "b") as b:
        first = await Writer.of(a)
        await first.record("one")
        second = await Writer.of(b)
        first.lose()
        await second.record("two")
        assert (await found(a, "x")).checkpoint is not None
        await Writer.of(a)
        assert (await found(a, "x")).checkpoint is None


async def test_so_many_states_are_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken_states, "MOST", 2)
    kept = TakenStates()
    for id in ("one", "two", "one", "three"):
        kept.keep(state_of(id))
    assert [kept.find(id) is not None for id in ("one", "two", "three")] == [True, False, True]
    kept.clear()
    assert kept.find("one") is None


async def test_a_state_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each at its own time: the second one is not kept for as long as others come."""
    kept = TakenStates()
    monkeypatch.setattr(taken_states, "SECONDS", 0.0)
    kept.keep(state_of("soon"))
    monkeypatch.setattr(taken_states, "SECONDS", 3600.0)
    kept.keep(state_of("later"))
    await until(lambda: kept.find("soon") is None)
    assert kept.find("later") is not None
    kept.clear()


def state_of(id: str) -> TakenState:
    woken = WokenState(AgentState(), 1, None, 0)
    return TakenState(agent_id=id, incarnation=1, at=datetime.now(UTC), in_store=0, woken=woken)


class Writer(JournalledAgent):
    """An owner that records into a store, as an agent's actor does."""

    def __init__(self, store: DatabaseStore, owned: Owned, loaded: Loaded | None) -> None:
        self.store, self.owned = store, owned
        self.state = AgentState() if loaded is None else loaded.folded()
        self.journal = store.journal(owned, self)
        self.journal.write_checkpoints(loaded)

    def ledger_state(self) -> AgentState:
        return self.state

    def index_entry(self) -> IndexEntry:
        return index_entry_of(self.state)._replace(takeable=True)

    @classmethod
    async def of(cls, store: DatabaseStore) -> Writer:
        """Of an agent that is taken, or is new."""
        assert store.shared is not None
        taken = await soon(store.shared.take("x", "support"))
        assert taken is not None
        loaded = await soon(store.load_latest("x")) if taken.owned.last_seq else None
        return cls(store, taken.owned, loaded)

    async def record(self, *values: str) -> None:
        await self.keep(*({value: 1} for value in values))

    async def keep(self, *deltas: dict[str, Any]) -> None:
        for delta in deltas:
            record = r.ValuesMerged(delta=delta, source="test", at=datetime.now(UTC))
            self.journal.append([record])
            self.state = replay([record], self.state)
        await soon(self.journal.durable())

    def lose(self) -> None:
        """Another host has taken the agent, and this one hears of it."""
        self.journal.fence("it was taken")
        assert self.store.shared is not None
        self.store.shared.keep_left(self.journal)

"""A store in a database, at the moments when its lease or its life ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from tests.support.frozen.samples import request
from tests.support.held_commits import turns
from tests.support.kept_keys import DAY, NOON, taking
from understudy.errors import Fenced, StoreBroken
from understudy.journal import (
    DatabaseStore,
    FoldedAgent,
    MemoryStore,
    Owned,
    OwnedJournal,
)
from understudy.journal.asks import Ask
from understudy.journal.backend import Backend
from understudy.journal.contracts import IndexEntry, IndexStatus
from understudy.journal.lists import AskQuery
from understudy.journal.memory import MOST_DELETED
from understudy.journal.notices import STATES, Outbox
from understudy.journal.sqlite import SqliteBackend
from understudy.state.agent_state import AgentState
from understudy.state.held_keys import HeldKey
from understudy.state.records import Once


class ClaimsWhileTheLeaseEnds:
    """A database whose answer to a claim comes when the next lease has begun."""

    host = "here"
    keeps = ()

    def __init__(self) -> None:
        self._claiming = threading.Event()
        self._next_lease = threading.Event()
        self._renewals = 0

    def renew(self) -> float:
        self._renewals += 1
        if self._renewals == 2:
            assert self._claiming.wait(60)
            raise Fenced(agent_id="*", why="the test says so")
        if self._renewals == 3:
            self._next_lease.set()
        return 0.04

    def claim(self, agent_id: str, agent: str | None) -> Owned:
        self._claiming.set()
        assert self._next_lease.wait(60)
        return Owned(agent_id=agent_id, agent="desk", incarnation=1, epoch=1, last_seq=0)

    def open(self) -> None: ...
    def close(self) -> None: ...
    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


async def test_a_lease_that_ends_while_a_claim_is_under_way_takes_the_claim_with_it() -> None:
    store = DatabaseStore(cast("Backend", ClaimsWhileTheLeaseEnds()))
    await store.open(lambda: None)
    try:
        async with asyncio.timeout(60):
            owned = await store.claim("t", "desk")
        assert owned is not None
        journal = store.journal(owned, FoldedAgent(AgentState()))
        with pytest.raises(Fenced):
            journal.check_owner()
    finally:
        await store.close()


class LostBeforeItIsKnown(ClaimsWhileTheLeaseEnds):
    """A database that refuses a claim because the lease is lost, before the heartbeat knows."""

    def renew(self) -> float:
        self._renewals += 1
        if self._renewals == 2:
            assert self._claiming.wait(60)
            raise Fenced(agent_id="*", why="the test says so")
        return 60.0

    def claim(self, agent_id: str, agent: str | None) -> Owned:
        self._claiming.set()
        if self._renewals < 3:
            raise Fenced(agent_id=agent_id, why="the test says so")
        return Owned(agent_id=agent_id, agent="desk", incarnation=1, epoch=1, last_seq=0)


async def test_a_claim_that_finds_the_lease_lost_is_made_under_the_next_one() -> None:
    """J6: nothing of an agent is lost that this host did not have."""
    store = DatabaseStore(cast("Backend", LostBeforeItIsKnown()))
    await store.open(lambda: None)
    try:
        async with asyncio.timeout(60):
            owned = await store.claim("t", "desk")
        assert owned is not None
        store.journal(owned, FoldedAgent(AgentState())).check_owner()
    finally:
        await store.close()


class LostAndNotBegunAgain(ClaimsWhileTheLeaseEnds):
    """A database that this host is told to have lost, while its next lease has not begun."""

    def __init__(self) -> None:
        super().__init__()
        self.may_begin = threading.Event()
        self._holds = True

    def renew(self) -> float:
        self._renewals += 1
        if self._renewals == 2:
            self._holds = False
            raise Fenced(agent_id="*", why="the test says so")
        if self._renewals == 3:
            assert self.may_begin.wait(60)
            self._holds = True
        return 0.04

    def claim(self, agent_id: str, agent: str | None) -> Owned:
        if not self._holds:
            raise Fenced(agent_id=agent_id, why="the test says so")
        return Owned(agent_id=agent_id, agent="desk", incarnation=1, epoch=1, last_seq=0)


async def test_a_claim_between_two_leases_is_made_under_the_next_one() -> None:
    """J6: who is told of the loss claims at once, and does not wait for one more."""
    backend, lost = LostAndNotBegunAgain(), asyncio.Event()
    store = DatabaseStore(cast("Backend", backend))
    await store.open(lost.set)
    try:
        async with asyncio.timeout(60):
            await lost.wait()
            claim = asyncio.ensure_future(store.claim("t", "desk"))
            await turns()
            backend.may_begin.set()
            owned = await claim
        assert owned is not None
    finally:
        backend.may_begin.set()
        await store.close()


async def test_a_change_of_a_store_that_is_closed_is_refused_and_does_not_wait(
    tmp_path: Path,
) -> None:
    store = DatabaseStore(SqliteBackend(str(tmp_path / "store.db"), host="here"))
    await store.open(lambda: None)
    await store.close()
    async with asyncio.timeout(60):
        with pytest.raises(StoreBroken, match="closed"):
            await store.delete("t")


async def _live_and_die(store: MemoryStore, agent_id: str) -> tuple[Owned, OwnedJournal]:
    owned = await store.claim(agent_id, "support")
    assert owned is not None
    journal = store.journal(owned, FoldedAgent(AgentState()))
    journal.append([Once(key="k", value="x")])
    assert await store.delete(agent_id)
    return owned, journal


@pytest.mark.slow
async def test_deleted_agents_in_memory_take_no_more_room_however_many_there_are() -> None:
    """J7."""
    store = MemoryStore()
    tracemalloc.start()
    try:
        sizes = []
        for number in range(4 * MOST_DELETED):
            await _live_and_die(store, f"agent {number}")
            if number % MOST_DELETED == MOST_DELETED - 1:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[3] - sizes[1] < 20 * MOST_DELETED, sizes


async def test_no_incarnation_in_memory_comes_twice_also_after_a_thousand_deletions() -> None:
    """J6, J7: nor an epoch, and who has claimed a deleted agent writes nothing more."""
    store, seen = MemoryStore(), set[tuple[int, int]]()
    for _ in range(3):
        owned, journal = await _live_and_die(store, "a")
        assert all(owned.incarnation > each[0] and owned.epoch > each[1] for each in seen)
        seen.add((owned.incarnation, owned.epoch))
        for number in range(MOST_DELETED):
            await _live_and_die(store, f"{number}")
        again = await store.claim("a", "support")
        assert again is not None
        assert again.incarnation > owned.incarnation
        assert again.epoch > owned.epoch
        with pytest.raises(Fenced):
            journal.append([Once(key="k", value="late")])
        assert await store.release(owned)
        await store.delete("a")
        with pytest.raises(Fenced):
            await store.compact(owned, Once(key="k", value="x"), IndexEntry(IndexStatus.REST))


class Untold(FoldedAgent):
    """An agent of which the index can be told nothing."""

    def index_entry(self) -> IndexEntry:
        raise LookupError("the test says so")


async def test_what_an_agent_cannot_tell_the_index_fails_no_other_agent(tmp_path: Path) -> None:
    failures: list[BaseException | None] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context.get("exception")))
    path = str(tmp_path / "store.db")
    store = DatabaseStore(SqliteBackend(path, durability="off", host="here"))
    await store.open(lambda: None)
    try:
        agents = {
            "x": Untold(AgentState()),
            "y": FoldedAgent(AgentState()),
            "z": FoldedAgent(AgentState()),
        }
        journals = {}
        for id, agent in agents.items():
            owned = await store.claim(id, "desk")
            assert owned is not None
            journals[id] = store.journal(owned, agent)
        for journal in journals.values():
            journal.append([Once(key="k", value=1, at=NOON)])
        await journals["z"].durable()
        assert [type(each) for each in failures] == [LookupError]
        assert not journals["y"].has_unflushed
        assert journals["x"].has_unflushed
    finally:
        loop.set_exception_handler(None)
        await store.close()


async def test_who_takes_a_key_finds_what_other_agents_gave_back_last(tmp_path: Path) -> None:
    """J85: also where their records wait for nobody yet."""
    path = str(tmp_path / "store.db")
    store = DatabaseStore(SqliteBackend(path, durability="off", host="here"))
    await store.open(lambda: None)
    try:
        states, journals = {"x": AgentState(), "y": AgentState()}, []
        for id, state in states.items():
            owned = await store.claim(id, "desk")
            assert owned is not None
            journals.append(store.journal(owned, FoldedAgent(state)))
        x, y = journals
        assert x.call_keys is not None
        assert y.call_keys is not None
        hash = await x.call_keys.key_hash("refund:17")
        wanted = replace(taking("call 1"), key_hash=hash)
        assert list(await x.call_keys.take_key(wanted)) == []
        states["x"].held_keys = {
            "call 1": HeldKey(key_hash=hash, tool_name="refund", tool_call_id="c")
        }
        x.append([Once(key="k", value=1, at=NOON)])
        await x.durable()
        states["x"].held_keys = {}
        x.append([Once(key="k", value=2, at=NOON)])  # the call is over, and nothing happened
        await asyncio.sleep(0)
        assert list(await y.call_keys.key_uses(hash, NOON)) == []
        assert list(await y.call_keys.take_key(replace(wanted, call_key="call 2"))) == []
    finally:
        await store.close()


class Asks(FoldedAgent):
    """An agent that asks a person."""

    def index_entry(self) -> IndexEntry:
        asked = request("q", "call 1")
        return IndexEntry(
            IndexStatus.WAITS, asks=(Ask(id="q", tool="t", asked_at=NOON, asked=asked),)
        )


async def test_a_request_that_is_listed_while_a_store_in_memory_is_closed_is_told() -> None:
    store, later = MemoryStore(), NOON + DAY
    await store.open(lambda: None)
    assert await store.change_outbox(lambda outbox: outbox.turn(True))
    owned = await store.claim("x", "desk")
    assert owned is not None
    store.journal(owned, Asks(AgentState())).append([Once(key="k", value=1, at=NOON)])
    await store.close()
    assert [each.agent_id for each in await store.list_asks(AskQuery(), None, 9)] == ["x"]
    await store.open(lambda: None)
    found = await store.change_outbox(lambda outbox: outbox.claim(later, later + DAY, "here", 9))
    assert [(each.agent_id, each.request_id, each.what) for each in found] == [("x", "q", "asked")]
    await store.close()


async def test_an_outbox_in_memory_forgets_the_agents_of_which_nothing_is_told() -> None:
    store, later = MemoryStore(), NOON + DAY
    await store.open(lambda: None)
    sizes = []
    for number in range(400):
        await store.change_outbox(lambda outbox: outbox.turn(True))
        owned = await store.claim(f"{number}" * 50, "desk")
        assert owned is not None
        store.journal(owned, Asks(AgentState())).append([Once(key="k", value=1, at=NOON)])
        for row in await store.change_outbox(lambda outbox: outbox.claim(later, later, "here", 9)):
            await store.change_outbox(partial(Outbox.settle, no=row.no, state="done", at=NOON))
        assert await store.delete(owned.agent_id)
        for row in await store.change_outbox(lambda outbox: outbox.claim(later, later, "here", 9)):
            await store.change_outbox(partial(Outbox.settle, no=row.no, state="done", at=NOON))
        await store.change_outbox(lambda outbox: outbox.clean(later))
        assert list(await store.notices(STATES, None, 9)) == []
        if number in (199, 399):
            await store.close()
            sizes.append(len(store._notices or b""))
            await store.open(lambda: None)
    assert sizes[0] == sizes[1]
    await store.close()

"""The writer of an agent, and the fate of its records."""

from __future__ import annotations

from understudy import AgentState
from understudy.errors import Fenced, StoreConflict
from understudy.journal import IndexEntry, IndexStatus
from understudy.state.records import Snapshot
from understudy.testing.contracts.contract import on_a_loop, raised
from understudy.testing.contracts.stores.store_tests import (
    Standing,
    StoreTests,
    begin,
    claim,
    ids,
    loaded,
    record,
    stored,
    values,
    write,
)


def snapshot() -> Snapshot:
    return Snapshot(state=AgentState().to_dict())


class Journals(StoreTests):
    """The writer of an agent, and the fate of its records."""

    @on_a_loop
    async def test_an_agent_begins_with_its_first_claim(self) -> None:
        async with self._opened() as store:
            owned = await claim(store, "a", "desk")
            assert (owned.agent_id, owned.agent, owned.last_seq) == ("a", "desk", 0)
            agent = await stored(store)
            assert (agent.agent, agent.incarnation, agent.epoch) == (
                "desk",
                owned.incarnation,
                owned.epoch,
            )
            assert (agent.last_seq, agent.floor) == (0, 0)

    @on_a_loop
    async def test_an_unknown_agent_is_not_claimed_without_the_name_of_a_definition(self) -> None:
        async with self._opened() as store:
            assert await store.claim("a", None) is None
            assert await store.load("a") is None
            assert await ids(store) == []

    @on_a_loop
    async def test_an_agent_keeps_the_name_of_its_first_definition(self) -> None:
        async with self._opened() as store:
            await claim(store, "a", "desk")
            assert (await claim(store, "a", "sales")).agent == "desk"

    @on_a_loop
    async def test_each_claim_of_an_agent_has_a_higher_epoch(self) -> None:
        async with self._opened() as store:
            first = await begin(store, "a", "one", "two")
            again = await claim(store, "a", None)
            assert again.epoch > first.owned.epoch
            assert (again.incarnation, again.last_seq) == (first.owned.incarnation, 2)
            assert await values(store) == ["one", "two"]

    @on_a_loop
    async def test_records_come_back_in_order_and_numbered(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a", "one", "two")
            await write(journal, "three")
            found = await loaded(store)
            assert await values(store) == ["one", "two", "three"]
            assert (found.first_seq, found.agent.last_seq, journal.owned.last_seq) == (1, 3, 3)
            assert found.records[0] == record("one")

    @on_a_loop
    async def test_what_was_waited_for_is_durable(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a", "one")
            for number in range(20):
                journal.append([record(f"{number}")])
            await journal.durable()
            assert not journal.has_unflushed
            assert await values(store) == ["one", *map(str, range(20))]

    @on_a_loop
    async def test_what_is_durable_is_there_for_the_next_process(self) -> None:
        async with self._opened() as store:
            await begin(store, "a", "one", "two")
            await begin(store, "b", "of b")
        async with self._opened() as store:
            assert await ids(store) == ["a", "b"]
            assert (await values(store, "a"), await values(store, "b")) == (
                ["one", "two"],
                ["of b"],
            )
            again = await claim(store, "a", None)
            assert again.last_seq == 2
            await write(store.journal(again, Standing()), "three")
            assert await values(store) == ["one", "two", "three"]

    @on_a_loop
    async def test_an_epoch_is_higher_in_the_next_process(self) -> None:
        async with self._opened() as store:
            first = (await begin(store, "a", "one")).owned
        async with self._opened() as store:
            assert (await claim(store)).epoch > first.epoch

    @on_a_loop
    async def test_who_claimed_an_agent_before_writes_nothing_more(self) -> None:
        async with self._opened() as store:
            first = await begin(store, "a", "one")
            second = await begin(store, "a")
            with raised(Fenced):
                first.append([record("late")])
                await first.durable()
            await write(second, "two")
            assert await values(store) == ["one", "two"]

    @on_a_loop
    async def test_a_journal_that_is_fenced_writes_nothing_more(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a", "one")
            journal.fence("the test says so")
            with raised(Fenced):
                journal.append([record("late")])
                await journal.durable()
            assert await values(store) == ["one"]

    @on_a_loop
    async def test_agents_have_records_of_their_own(self) -> None:
        async with self._opened() as store:
            a, b = await begin(store, "a"), await begin(store, "b")
            a.append([record("of a")])
            b.append([record("of b")])
            await b.durable()
            await a.durable()
            assert (await values(store, "a"), await values(store, "b")) == (["of a"], ["of b"])

    @on_a_loop
    async def test_a_released_agent_can_be_claimed_by_anybody(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a", "one")
            assert await store.release(journal.owned)
            if store.shared is not None:
                assert (await stored(store)).host is None
            again = await claim(store, "a", None)
            assert again.epoch > journal.owned.epoch

    @on_a_loop
    async def test_a_release_in_an_older_epoch_lets_nothing_go(self) -> None:
        async with self._opened() as store:
            first = await begin(store, "a", "one")
            standing = Standing()
            second = await begin(store, "a", standing=standing)
            await store.release(first.owned)
            standing.entry = IndexEntry(IndexStatus.WAITS)
            await write(second, "two")
            assert await values(store) == ["one", "two"]
            assert (await stored(store)).index_status is IndexStatus.WAITS

    # ------------------------------------------------------------------- compaction

    @on_a_loop
    async def test_a_snapshot_takes_the_place_of_the_records_before_it(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a", "one", "two")
            owned = await store.compact(journal.owned, snapshot(), IndexEntry(IndexStatus.REST))
            assert owned.last_seq == 3
            found = await loaded(store)
            assert (found.first_seq, found.records) == (3, (snapshot(),))
            assert (found.agent.floor, found.agent.last_seq) == (2, 3)
            await write(store.journal(owned, Standing()), "four")
            assert await values(store) == ["four"]
            assert (await loaded(store, after=1)).first_seq == 3, "from the snapshot on"

    @on_a_loop
    async def test_a_snapshot_of_an_older_epoch_deletes_nothing(self) -> None:
        async with self._opened() as store:
            first = await begin(store, "a", "one", "two")
            await claim(store)
            with raised(Fenced):
                await store.compact(first.owned, snapshot(), IndexEntry(IndexStatus.REST))
            assert await values(store) == ["one", "two"]

    @on_a_loop
    async def test_a_snapshot_that_is_not_the_next_record_deletes_nothing(self) -> None:
        async with self._opened() as store:
            owned = await claim(store)
            await write(store.journal(owned, Standing()), "one")
            with raised(StoreConflict):
                await store.compact(owned, snapshot(), IndexEntry(IndexStatus.REST))
            assert await values(store) == ["one"]

    # ------------------------------------------------------------------- deletion

    @on_a_loop
    async def test_a_deleted_agent_is_gone(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a", "one")
            await begin(store, "b", "of b")
            await store.release(journal.owned)
            assert await store.delete("a") is True
            assert await store.load("a") is None
            assert await store.claim("a", None) is None
            assert await ids(store) == ["b"]
            assert await store.delete("a") is False

    @on_a_loop
    async def test_the_next_agent_of_a_deleted_id_begins_anew(self) -> None:
        async with self._opened() as store:
            before = await begin(store, "a", "one")
            assert await store.delete("a")
            after = await begin(store, "a", "new")
            assert after.owned.incarnation > before.owned.incarnation
            assert after.owned.epoch > before.owned.epoch
            assert await values(store) == ["new"]
            with raised(Fenced):
                before.append([record("late")])
                await before.durable()
            assert await values(store) == ["new"]

    @on_a_loop
    async def test_a_deletion_is_remembered_by_the_next_process(self) -> None:
        async with self._opened() as store:
            before = (await begin(store, "a", "one")).owned
            assert await store.delete("a")
        async with self._opened() as store:
            assert await store.load("a") is None
            after = await claim(store)
            assert after.incarnation > before.incarnation
            assert after.epoch > before.epoch

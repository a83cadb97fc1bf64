"""Reads of the agents of a store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from understudy.journal import IndexEntry, IndexStatus
from understudy.state.records import Record, StatusNoted
from understudy.testing.contracts.contract import on_a_loop
from understudy.testing.contracts.stores.store_tests import (
    Standing,
    StoreTests,
    begin,
    ids,
    loaded,
    said,
    stored,
    values,
    write,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
FAR = datetime(9999, 12, 31, tzinfo=timezone.utc)


class Lookups(StoreTests):
    """Reads of the agents of a store."""

    @on_a_loop
    async def test_records_are_read_after_a_number(self) -> None:
        async with self._opened() as store:
            await begin(store, "a", "one", "two", "three")
            assert await values(store, after=1) == ["two", "three"]
            assert (await loaded(store, after=1)).first_seq == 2
            assert (await loaded(store, after=3)).records == ()
            assert (await loaded(store, after=9)).records == ()
            assert await store.load("nobody") is None

    @on_a_loop
    async def test_a_part_of_the_records_is_read_by_their_numbers(self) -> None:
        async with self._opened() as store:
            await begin(store, "a", *"1234567")
            for after in range(8):
                for limit in (1, 3, 7, 100):
                    part = await store.load_part("a", after, limit)
                    assert part is not None
                    assert said(part.records) == list("1234567")[after : after + limit]
                    assert part.first_seq == after + 1
            assert await store.load_part("nobody", 0, 3) is None

    @on_a_loop
    async def test_what_is_read_last_adds_up_to_all_records(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a")
            for number in range(40):
                status = "idle" if number % 2 else "running"
                journal.append([StatusNoted(at=NOON + timedelta(seconds=number), status=status)])
            await journal.durable()
            latest, whole = await store.load_latest("a"), await loaded(store)
            assert latest is not None
            assert latest.folded().to_dict() == whole.folded().to_dict()
            assert latest.agent == whole.agent
            assert await store.load_latest("nobody") is None

    @on_a_loop
    async def test_a_thousand_records_come_back_in_order(self) -> None:
        async with self._opened() as store:
            wanted = [f"{number}" for number in range(1_000)]
            journal = await begin(store, "a")
            for start in range(0, 1_000, 100):
                await write(journal, *wanted[start : start + 100])
            assert await values(store) == wanted

    @on_a_loop
    async def test_a_record_that_was_read_is_not_changed_by_what_follows(self) -> None:
        async with self._opened() as store:
            journal = await begin(store, "a", "one")
            before: tuple[Record, ...] = (await loaded(store)).records
            await write(journal, "two")
            assert said(before) == ["one"]

    @on_a_loop
    async def test_agents_come_by_their_ids(self) -> None:
        async with self._opened() as store:
            names = ["b", "a", "B", "ä", "10", "9", "a-b", "ab"]
            for name in names:
                await begin(store, name, "one")
            assert await ids(store) == sorted(names)

    @on_a_loop
    async def test_agents_are_found_by_how_they_stand(self) -> None:
        async with self._opened() as store:
            for status in IndexStatus:
                await begin(store, status.value, "one", standing=Standing(status))
            for status in IndexStatus:
                assert await ids(store, status) == [status.value]
                assert (await stored(store, status.value)).index_status is status
            both = [IndexStatus.OPEN, IndexStatus.WAITS]
            assert await ids(store, *both) == sorted(each.value for each in both)
            counts = await store.count_agents()
            assert sum(counts.values()) == len(IndexStatus), counts
            troubles = await store.count_troubles(NOON, NOON)
            assert (troubles.quarantined, troubles.doubts) == (1, 0)

    @on_a_loop
    async def test_the_index_says_how_an_agent_stands_after_its_last_records(self) -> None:
        async with self._opened() as store:
            standing = Standing(IndexStatus.OPEN)
            journal = await begin(store, "a", "one", standing=standing)
            standing.entry = IndexEntry(IndexStatus.WAITS)
            await write(journal, "two")
            assert (await ids(store, IndexStatus.OPEN), await ids(store, IndexStatus.WAITS)) == (
                [],
                ["a"],
            )
            await store.release(journal.owned)
            assert await ids(store, IndexStatus.WAITS) == ["a"]
        async with self._opened() as store:
            assert await ids(store, IndexStatus.WAITS) == ["a"]

    @on_a_loop
    async def test_agents_are_found_by_their_ids(self) -> None:
        async with self._opened() as store:
            for name in "abc":
                await begin(store, name, "one")
            found = await store.find_agents(["c", "nobody", "a"])
            assert sorted(agent.agent_id for agent in found) == ["a", "c"]
            assert await store.find_agent("nobody") is None
            one = await store.find_agent("b")
            assert one == await stored(store, "b")

    @on_a_loop
    async def test_agents_that_are_due_come_by_their_due_times(self) -> None:
        async with self._opened() as store:
            for name, after in (("a", 3), ("b", 1), ("c", 2)):
                standing = Standing(IndexStatus.WAITS, NOON + timedelta(seconds=after))
                await begin(store, name, "one", standing=standing)
            await begin(store, "d", "one")
            due = [(agent.agent_id, agent.due) async for agent in store.due(FAR)]
            assert due == [
                ("b", NOON + timedelta(seconds=1)),
                ("c", NOON + timedelta(seconds=2)),
                ("a", NOON + timedelta(seconds=3)),
            ]
            early = [agent.agent_id async for agent in store.due(NOON + timedelta(seconds=2))]
            assert early == ["b", "c"]

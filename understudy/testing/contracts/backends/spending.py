"""Reservations and spending of calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from understudy.errors import Fenced, UsageError
from understudy.journal import DatabaseStore
from understudy.journal.contracts import IndexEntry, IndexStatus
from understudy.journal.spending import BucketSum
from understudy.state.agent_state import AgentState
from understudy.state.records import Once, Snapshot
from understudy.testing.contracts.backends.backend_tests import BackendTests
from understudy.testing.contracts.backends.purses import Purse, line, money, spend
from understudy.testing.contracts.contract import on_a_loop, raised


class Spendings(BackendTests):
    """Reservations and spending of calls."""

    @asynccontextmanager
    async def _purse(self) -> AsyncIterator[Purse]:
        """The counters of a store. The test is skipped if there are none."""
        backend = self.new_backend("here")
        if "spending" not in backend.keeps:
            assert DatabaseStore(backend).spending is None
            with raised(UsageError, match="keeps no spending"):
                backend.load_spending()
            self.skip("it keeps no spending")
        purse = await Purse(DatabaseStore(backend)).open("a", "b")
        try:
            yield purse
        finally:
            await purse.store.close()

    @on_a_loop
    async def test_what_an_agent_reserves_and_spends_counts_for_all(self) -> None:
        # J97
        async with self._purse() as spending:
            assert await spending.makes("a", "one", line(60), line(1, budget="calls"))
            assert not await spending.makes("b", "two", line(50), line(1, budget="calls"))
            await spending.settle("a", "one", 40)
            assert await spending.makes("b", "two", line(60), line(1, budget="calls"))
            assert not await spending.makes("a", "three", line(1))
            assert await spending.sum_of("calls") == 2

    @on_a_loop
    async def test_what_is_reserved_and_spent_outlives_the_store_being_closed(self) -> None:
        # J97
        async with self._purse() as spending:
            await spending.reserve("a", "one", line(60, ref="17"))
            await spending.reserve("b", "two", line(20))
            await spending.settle("a", "one", 50)
            await spending.store.close()
            await spending.open("a", "b")
            assert await spending.sum_of() == 70
            assert [each.id.what for each in await spending.open_of("b")] == ["two"]
            await spending.settle("b", "two", 5, gives={("refunds", "17"): "10"})
            assert await spending.sum_of() == 45

    @on_a_loop
    async def test_a_batch_that_is_refused_settles_nothing(self) -> None:
        # J97
        async with self._purse() as spending:
            await spending.reserve("a", "one", line(60))
            stale = spending.journals["a"]
            await spending.begin("a")
            stale.append([Once(key="k", value="late")])
            stale.settle([spend(spending.id("a", "one"), 1)])
            with raised(Fenced):
                await stale.durable()
            assert await spending.sum_of() == 60
            assert len(await spending.open_of("a")) == 1

    @on_a_loop
    async def test_a_compaction_leaves_what_calls_spend(self) -> None:
        # J97
        async with self._purse() as spending:
            await spending.reserve("a", "one", line(60))
            await spending.reserve("a", "two", line(20, ref="17"))
            await spending.settle("a", "two")
            owned = spending.journals.pop("a").owned
            snapshot = Snapshot(state=AgentState().to_dict())
            await spending.store.compact(owned, snapshot, IndexEntry(IndexStatus.REST))
            await spending.begin("a")
            await spending.settle("a", "one", 50, gives={("refunds", "17"): None})
            assert await spending.sum_of() == 50

    @on_a_loop
    async def test_a_deletion_counts_what_was_open_in_full(self) -> None:
        # J97
        async with self._purse() as spending:
            await spending.reserve("a", "one", line(60))
            await spending.delete("a")
            await spending.begin("a")
            assert list(await spending.buckets()) == [BucketSum(0, money(60), money(0), money(60))]
            assert await spending.open_of("a") == []

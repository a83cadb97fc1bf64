"""Counters of each kind of store, and agents that reserve and spend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import count

from understudy.journal import FoldedAgent, OwnedJournal, Store
from understudy.journal.spending import (
    EXACT,
    BucketSum,
    CounterId,
    Line,
    OpenSpending,
    Reservation,
    Reserved,
    Settlement,
    SpendId,
    Spending,
)
from understudy.state.agent_state import AgentState
from understudy.state.records import Once

Gives = Mapping[tuple[str, str], str | None]


def money(amount: str | int) -> Decimal:
    return Decimal(amount)


def line(
    amount: str | int | Decimal,
    limit: str | int | None = 100,
    budget: str = "refunds",
    key: str = "",
    *,
    bucket: int = 0,
    since: int = 0,
    ref: str = "",
) -> Line:
    return Line(
        counter=CounterId(budget, key),
        bucket=bucket,
        since=since,
        amount=Decimal(amount),
        limit=None if limit is None else Decimal(limit),
        ref=ref,
    )


def spend(
    id: SpendId,
    amount: str | int | Decimal | None = None,
    *,
    budget: str = "refunds",
    unknown: bool = False,
    gives: Gives | None = None,
) -> Settlement:
    return Settlement(
        id=id,
        amounts=None if amount is None else {budget: Decimal(amount)},
        unknown=unknown,
        gives_back={
            of: None if back is None else Decimal(back) for of, back in (gives or {}).items()
        },
    )


class Purse:
    """The counters of one store, and agents of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.journals: dict[str, OwnedJournal] = {}
        self._records = count()

    @property
    def spending(self) -> Spending:
        found = self.store.spending
        assert found is not None, "it keeps spending"
        return found

    async def open(self, *agent_ids: str) -> Purse:
        await self.store.open(lambda: None)
        for agent_id in agent_ids:
            await self.begin(agent_id)
        return self

    async def begin(self, agent_id: str) -> None:
        """Begin an agent, or claim it anew. After a deletion the next agent of this id begins."""
        owned = await self.store.claim(agent_id, "desk")
        assert owned is not None
        self.journals[agent_id] = self.store.journal(owned, FoldedAgent(AgentState()))
        await self.record(agent_id)

    def id(self, agent_id: str, what: str) -> SpendId:
        return SpendId(agent_id, self.journals[agent_id].owned.incarnation, what)

    async def reserve(
        self,
        agent_id: str,
        what: str,
        *lines: Line,
        valid: tuple[int, int] | None = None,
        must_last: bool = False,
    ) -> Reserved:
        id = self.id(agent_id, what)
        return await self.spending.reserve(reservation(id, *lines, valid=valid, lasts=must_last))

    async def makes(self, agent_id: str, what: str, *lines: Line) -> bool:
        """Whether the reservation is made."""
        return not (await self.reserve(agent_id, what, *lines)).refused

    async def record(self, agent_id: str, *settlements: Settlement) -> None:
        """Record one more record, with what it settles. It is durable on return."""
        journal = self.journals[agent_id]
        journal.append([Once(key="k", value=next(self._records))])
        if settlements:
            journal.settle(settlements)
        await journal.durable()

    async def settle(
        self,
        agent_id: str,
        what: str,
        amount: str | int | None = None,
        *,
        unknown: bool = False,
        gives: Gives | None = None,
    ) -> None:
        id = self.id(agent_id, what)
        await self.record(agent_id, spend(id, amount, unknown=unknown, gives=gives))

    async def delete(self, agent_id: str) -> None:
        await self.store.release(self.journals.pop(agent_id).owned)
        assert await self.store.delete(agent_id)

    async def sum_of(self, budget: str = "refunds", key: str = "") -> Decimal:
        """The sum of a counter."""
        total = Decimal(0)
        for each in await self.buckets(budget, key):
            total = EXACT.add(total, each.amount)
        return total

    async def buckets(self, budget: str = "refunds", key: str = "") -> Sequence[BucketSum]:
        found = await self.spending.counters([budget])
        return [sum for each in found if each.counter.key == key for sum in each.buckets]

    async def open_of(self, agent_id: str) -> Sequence[OpenSpending]:
        return await self.spending.open_spending(agent_id)


def reservation(
    id: SpendId, *lines: Line, valid: tuple[int, int] | None = None, lasts: bool = False
) -> Reservation:
    if valid is None:
        return Reservation(id=id, lines=lines, must_last=lasts)
    return Reservation(
        id=id, lines=lines, valid_from=valid[0], valid_until=valid[1], must_last=lasts
    )

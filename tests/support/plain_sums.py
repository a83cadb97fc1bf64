"""A model of counters: a list of what calls have reserved and spent, added up each time."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal

from tests.support.purses import Purse, line, spend
from understudy.journal.spending import CounterId, Line, Settlement, SpendId

__all__ = ["PlainSums", "Story"]


@dataclass
class Entry:
    """What one call has on one counter."""

    id: SpendId
    line: Line
    amount: Decimal
    at: int
    is_open: bool = True
    is_unknown: bool = False
    is_given_back: bool = False


class PlainSums:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """In the order in which they may be given back."""
        self._now = 0

    def since(self, of: Line, without: SpendId | None = None) -> Decimal:
        counted = (
            each.amount
            for each in self.entries
            if each.line.counter == of.counter
            and each.line.bucket >= of.since
            and each.id != without
        )
        return sum(counted, Decimal(0))

    def reserve(self, id: SpendId, lines: list[Line]) -> set[CounterId]:
        """The counters without room; if there is none, it is made."""
        full = set()
        for each in lines:
            before, after = self.since(each), self.since(each, id) + each.amount
            if each.limit is not None and after > each.limit and after > before:
                full.add(each.counter)
        if not full:
            self._now += 1
            at = min((each.at for each in self.entries if each.id == id), default=self._now)
            self.entries = [each for each in self.entries if each.id != id]
            self.entries += [Entry(id, each, each.amount, at) for each in lines]
            self.entries.sort(key=lambda each: (each.at, each.id, each.line.counter))
        return full

    def settle(self, settlement: Settlement) -> None:
        for each in self.entries:
            if each.id == settlement.id and each.is_open:
                amounts = settlement.amounts or {}
                each.amount = amounts.get(each.line.counter.budget, each.amount)
                each.is_open, each.is_unknown = False, settlement.unknown
        for (budget, ref), amount in settlement.gives_back.items():
            for each in self.entries:
                is_of = (each.line.counter.budget, each.line.ref) == (budget, ref)
                if is_of and not each.is_open and not each.is_given_back:
                    each.amount -= each.amount if amount is None else min(amount, each.amount)
                    each.is_given_back = True
                    break

    def leave(self, agent_id: str) -> None:
        for each in self.entries:
            if each.id.agent_id == agent_id and each.is_open:
                each.is_open, each.is_unknown = False, True

    def sums(self) -> dict[tuple[CounterId, int], list[Decimal]]:
        """Of each counter and bucket: all of it, what is open, and what is unknown."""
        found: defaultdict[tuple[CounterId, int], list[Decimal]] = defaultdict(
            lambda: [Decimal(0)] * 3
        )
        for each in self.entries:
            sums = found[each.line.counter, each.line.bucket]
            sums[0] += each.amount
            sums[1] += each.amount if each.is_open else 0
            sums[2] += each.amount if each.is_unknown else 0
        return {of: sums for of, sums in found.items() if sums[0]}


class Story:
    """Random calls of two agents, in a store and in the model."""

    def __init__(self, purse: Purse, seed: int) -> None:
        self.purse, self.model = purse, PlainSums()
        self._rng = random.Random(f"story {seed}")
        self._open: list[tuple[str, str]] = []
        self._names = 0

    async def step(self) -> None:
        what = self._rng.choice(["new"] * 4 + ["again", "settle", "settle", "back", "delete"])
        if what == "delete" and self._rng.random() < 0.8:
            return
        await getattr(self, f"_{what}")()

    def _lines(self) -> list[Line]:
        of = [(budget, key) for budget in ("usd", "calls") for key in ("", "ada")]
        lines = []
        for budget, key in self._rng.sample(of, self._rng.randint(1, 3)):
            bucket = self._rng.randint(0, 3)
            lines.append(
                line(
                    Decimal(self._rng.randint(0, 400)) / 100,
                    self._rng.choice([10, 20, 40, None]),
                    budget,
                    key,
                    bucket=bucket,
                    since=self._rng.randint(0, bucket),
                    ref=self._rng.choice(["", "", "17", "18"]),
                )
            )
        return lines

    async def _reserve(self, agent_id: str, what: str) -> None:
        lines = self._lines()
        answer = await self.purse.reserve(agent_id, what, *lines)
        full = self.model.reserve(self.purse.id(agent_id, what), lines)
        assert set(answer.refused) == full
        assert answer.sums == {each.counter: self.model.since(each) for each in lines}
        if not full and (agent_id, what) not in self._open:
            self._open.append((agent_id, what))

    async def _new(self) -> None:
        self._names += 1
        await self._reserve(self._rng.choice("ab"), f"call {self._names}")

    async def _again(self) -> None:
        if self._open:
            await self._reserve(*self._rng.choice(self._open))

    async def _settle(self) -> None:
        if not self._open:
            return
        agent_id, what = self._open.pop(self._rng.randrange(len(self._open)))
        amount = self._rng.choice([None, Decimal(self._rng.randint(0, 600)) / 100])
        id, is_unknown = self.purse.id(agent_id, what), self._rng.random() < 0.2
        await self._record(agent_id, spend(id, amount, budget="usd", unknown=is_unknown))

    async def _back(self) -> None:
        agent_id = self._rng.choice("ab")
        of = self._rng.choice(["usd", "calls"]), self._rng.choice(["17", "18"])
        amount = self._rng.choice([None, "0.5", "2"])
        await self._record(agent_id, spend(self.purse.id(agent_id, "back"), gives={of: amount}))

    async def _record(self, agent_id: str, settlement: Settlement) -> None:
        await self.purse.record(agent_id, settlement)
        self.model.settle(settlement)

    async def _delete(self) -> None:
        agent_id = self._rng.choice("ab")
        await self.purse.delete(agent_id)
        await self.purse.begin(agent_id)
        self.model.leave(agent_id)
        self._open = [each for each in self._open if each[0] != agent_id]

    async def compare(self) -> None:
        found = {
            (of.counter, each.bucket): list(each[1:])
            for of in await self.purse.spending.counters()
            for each in of.buckets
        }
        assert found == self.model.sums()
        for agent_id in "ab":
            opened = {each.id.what for each in await self.purse.open_of(agent_id)}
            assert opened == {what for of, what in self._open if of == agent_id}

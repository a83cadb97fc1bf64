"""`Books`: the counters of a store in memory, and what is reserved on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from understudy.journal.spending import (
    EXACT,
    BucketSum,
    CounterId,
    CounterSums,
    OpenSpending,
    Reservation,
    Reserved,
    Settlement,
    SpendId,
    oldest_kept,
)

_NOTHING = Decimal(0)
MOST_SETTLED: int = 1000
"""The number of the calls settled last that are known, so that none is reserved again."""


class KeptLine(NamedTuple):
    """What a call has reserved of a counter, or has spent and may be given back."""

    id: SpendId
    counter: CounterId
    bucket: int
    amount: Decimal
    ref: str
    at: datetime
    is_open: bool
    is_unknown: bool


class KeptBucket(NamedTuple):
    """What is settled of a counter in a bucket, without what is in a `KeptLine`."""

    counter: CounterId
    bucket: int
    amount: Decimal
    unknown: Decimal


class KeptSpending(NamedTuple):
    """All that is kept of the counters of a store."""

    lines: Sequence[KeptLine] = ()
    """The lines, in the order in which they were reserved."""
    buckets: Sequence[KeptBucket] = ()


class Decision(NamedTuple):
    """What came of a reservation, and what is to be kept of it."""

    id: SpendId
    answer: Reserved
    lines: Sequence[KeptLine] | None = None
    """The lines that replace the lines that the call had before; None: nothing has changed."""
    pruned: Sequence[tuple[CounterId, int]] = ()
    """The counters of which all before a bucket goes, but what is open; each with the bucket."""


class _Counter:
    """The sums of a counter: of each bucket, and of those that counted when it was asked last."""

    __slots__ = ("_since", "_total", "amounts", "id", "lines", "unknown")

    def __init__(self, id: CounterId) -> None:
        self.id = id
        self.amounts: dict[int, Decimal] = {}
        self.unknown: dict[int, Decimal] = {}
        self.lines: dict[SpendId, KeptLine] = {}
        """The open lines, and the lines that may be given back, by call."""
        self._since = 0
        self._total = _NOTHING

    def add(self, bucket: int, amount: Decimal) -> None:
        self.amounts[bucket] = EXACT.add(self.amounts.get(bucket, _NOTHING), amount)
        if bucket >= self._since:
            self._total = EXACT.add(self._total, amount)

    def add_unknown(self, bucket: int, amount: Decimal) -> None:
        self.unknown[bucket] = EXACT.add(self.unknown.get(bucket, _NOTHING), amount)

    def take_off(self, bucket: int, amount: Decimal) -> None:
        self.add(bucket, amount.copy_negate())  # `-amount` would round it

    def sum_since(self, since: int) -> Decimal:
        if since != self._since:
            self._since, self._total = since, _NOTHING
            for bucket, amount in self.amounts.items():
                if bucket >= since:
                    self._total = EXACT.add(self._total, amount)
        return self._total

    def listed(self) -> CounterSums:
        open_sums: dict[int, Decimal] = {}
        for line in self.lines.values():
            if line.is_open:
                before = open_sums.get(line.bucket, _NOTHING)
                open_sums[line.bucket] = EXACT.add(before, line.amount)
        buckets = (
            BucketSum(
                bucket,
                self.amounts[bucket],
                open_sums.get(bucket, _NOTHING),
                self.unknown.get(bucket, _NOTHING),
            )
            for bucket in sorted(self.amounts)
            if self.amounts[bucket]
        )
        return CounterSums(counter=self.id, buckets=tuple(buckets))


class Books:
    """The counters of a store in memory: what is decided by them is decided at once.

    Args:
        kept: what a database has of them.

    """

    def __init__(self, kept: KeptSpending | None = None) -> None:
        self._counters: dict[CounterId, _Counter] = {}
        self._calls: dict[SpendId, dict[CounterId, KeptLine]] = {}
        """The lines of each call that has some: all of them are open, or none is."""
        self._open: dict[str, dict[SpendId, None]] = {}
        """The calls of each agent that are not settled."""
        self._refs: dict[tuple[str, str], list[KeptLine]] = {}
        """The lines that may be given back once they are settled, by budget and `ref`."""
        self._settled: dict[SpendId, None] = {}
        """The calls that were settled last, oldest first."""
        for each in kept.buckets if kept is not None else ():
            counter = self._counter(each.counter)
            counter.add(each.bucket, each.amount)
            if each.unknown:
                counter.add_unknown(each.bucket, each.unknown)
        for line in kept.lines if kept is not None else ():
            self._put(line)

    # ------------------------------------------------------------------- reservations

    def reserve(self, asked: Reservation, now: datetime) -> Decision:
        """Reserve on all counters, or on none; see `Spending.reserve`."""
        seconds, id, lines = int(now.timestamp()), asked.id, asked.lines
        is_late = not asked.valid_from <= seconds < asked.valid_until
        before = self._calls.get(id, {})
        is_settled = id in self._settled or (bool(before) and id not in self._opened(id))
        sums: dict[CounterId, Decimal] = {}
        made: dict[CounterId, Decimal] = {}
        refused: list[CounterId] = []
        for line in lines:
            counter = self._counters.get(line.counter)
            total = _NOTHING if counter is None else counter.sum_since(line.since)
            sums[line.counter] = total
            after = EXACT.add(total, line.amount)
            old = before.get(line.counter)
            if old is not None and old.bucket >= line.since:
                after = EXACT.subtract(after, old.amount)
            if line.limit is not None and after > line.limit and after > total:
                refused.append(line.counter)
            made[line.counter] = after
        if is_settled:
            return Decision(id, Reserved(now=seconds, sums=sums))
        if is_late or refused:
            full = () if is_late else tuple(refused)
            return Decision(id, Reserved(now=seconds, sums=sums, refused=full, is_late=is_late))
        return self._make(asked, now, Reserved(now=seconds, sums=made))

    def _make(self, asked: Reservation, now: datetime, answer: Reserved) -> Decision:
        before = self._calls.pop(asked.id, {})
        for old in before.values():
            now = old.at  # when it was made first
            self._remove(old)
            self._counters[old.counter].take_off(old.bucket, old.amount)
        if before:
            self._forget_open(asked.id)
        lines: list[KeptLine] = []
        pruned: list[tuple[CounterId, int]] = []
        for line in asked.lines:
            counter = self._counter(line.counter)
            if line.bucket not in counter.amounts and counter.amounts:
                below = oldest_kept(asked, line)
                if below and self._prune(counter, below):
                    pruned.append((line.counter, below))
            kept = KeptLine(
                asked.id, line.counter, line.bucket, line.amount, line.ref, now, True, False
            )
            self._put(kept)
            lines.append(kept)
        return Decision(asked.id, answer, lines, pruned)

    def _opened(self, id: SpendId) -> Collection[SpendId]:
        return self._open.get(id.agent_id, ())

    def _counter(self, id: CounterId) -> _Counter:
        counter = self._counters.get(id)
        if counter is None:
            counter = self._counters[id] = _Counter(id)
        return counter

    def _put(self, line: KeptLine) -> None:
        """Keep a line, and add it to its counter."""
        counter = self._counter(line.counter)
        counter.add(line.bucket, line.amount)
        if line.is_unknown:
            counter.add_unknown(line.bucket, line.amount)
        counter.lines[line.id] = self._calls.setdefault(line.id, {})[line.counter] = line
        if line.is_open:
            self._open.setdefault(line.id.agent_id, {})[line.id] = None
        if line.ref:
            self._refs.setdefault((line.counter.budget, line.ref), []).append(line)

    def _remove(self, line: KeptLine) -> None:
        """Forget a line, but not what it has added to its counter."""
        del self._counters[line.counter].lines[line.id]
        of_call = self._calls.get(line.id)
        if of_call is not None:
            of_call.pop(line.counter)
            if not of_call:
                del self._calls[line.id]
        if line.ref:
            of_ref = (line.counter.budget, line.ref)
            self._refs[of_ref].remove(line)
            if not self._refs[of_ref]:
                del self._refs[of_ref]

    def _prune(self, counter: _Counter, below: int) -> bool:
        """Forget what a counter has before a bucket, but what is open. Whether there was any."""
        old = {bucket for bucket in counter.amounts if bucket < below}
        if not old:
            return False
        for line in list(counter.lines.values()):
            if line.bucket in old and line.is_open:
                old.discard(line.bucket)
        for line in list(counter.lines.values()):
            if line.bucket in old:
                self._remove(line)
        for bucket in old:
            counter.take_off(bucket, counter.amounts[bucket])
            del counter.amounts[bucket]
            counter.unknown.pop(bucket, None)
        return bool(old)

    # ------------------------------------------------------------------- settlements

    def settle(self, settlements: Iterable[Settlement]) -> None:
        """Note what calls have spent, and then what they give back."""
        settled = list(settlements)
        for each in settled:
            self._settle(each)
        for each in settled:
            for of_ref, amount in each.gives_back.items():
                self._give_back(of_ref, amount)

    def _settle(self, settlement: Settlement) -> None:
        id = settlement.id
        if id not in self._opened(id):
            return
        self._forget_open(id)
        self._settled[id] = None
        if len(self._settled) > MOST_SETTLED:
            del self._settled[next(iter(self._settled))]
        for line in list(self._calls[id].values()):
            spent = settlement.spent(line.counter.budget, line.amount)
            settled = line._replace(amount=spent, is_open=False, is_unknown=settlement.unknown)
            self._remove(line)
            self._counters[line.counter].take_off(line.bucket, line.amount)
            self._put(settled)
            if not line.ref:
                self._remove(settled)

    def _forget_open(self, id: SpendId) -> None:
        of_agent = self._open[id.agent_id]
        del of_agent[id]
        if not of_agent:
            del self._open[id.agent_id]

    def _give_back(self, of_ref: tuple[str, str], amount: Decimal | None) -> None:
        settled = (line for line in self._refs.get(of_ref, ()) if not line.is_open)
        line = min(settled, key=lambda each: (each.at, each.id, each.counter), default=None)
        if line is None:
            return
        back = line.amount if amount is None else min(amount, line.amount)
        counter = self._counters[line.counter]
        counter.take_off(line.bucket, back)
        if line.is_unknown:
            counter.add_unknown(line.bucket, back.copy_negate())
        self._remove(line)

    def leave(self, agent_id: str) -> None:
        """The agent is deleted: nobody will know what its open calls have spent."""
        self.settle([Settlement(id=id, unknown=True) for id in self._open.get(agent_id, ())])

    # ------------------------------------------------------------------- what is listed

    def open_spending(self, agent_id: str) -> list[OpenSpending]:
        """The reservations of an agent that are not settled; see `Spending.open_spending`.

        All that is open is of the agent's present incarnation.
        """
        return [
            OpenSpending(
                id=id,
                amounts={of: line.amount for of, line in self._calls[id].items()},
                at=min(line.at for line in self._calls[id].values()),
            )
            for id in self._open.get(agent_id, ())
        ]

    def counters(self, budgets: Collection[str] | None) -> Iterator[CounterSums]:
        """The counters of budgets, sorted; see `Spending.counters`."""
        for id in sorted(self._counters):
            if budgets is None or id.budget in budgets:
                listed = self._counters[id].listed()
                if listed.buckets:
                    yield listed

"""Spending: amounts that are reserved before they are spent, over all agents and hosts of a store.

A *counter* is what one budget counts for one key, such as the refunds of one agent. It has a sum
for each *bucket* of time. What a call may spend is *reserved* on all counters that it concerns, on
all or on none, before it starts. It is *settled* by what it has spent, in the commit of its result.
A counter is never below what is known to be spent, for it holds what is reserved until that is
settled.

Locks. A reservation locks, in this order: its own rows; its counters, sorted; then rows that are
settled, as far as nobody else has locked them. It waits for no other row while it holds a counter,
and it is one statement, so no host can be suspended while it holds one. A commit of records locks
the rows of its own agent alone (test_a_settlement_locks_no_counter).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple


class CounterId(NamedTuple):
    """What a counter counts."""

    budget: str
    """The name of the budget, and a digest of what it counts: another unit is another counter."""
    key: str
    """For whom, as one text; empty where the budget is for the whole store."""


class SpendId(NamedTuple):
    """A call that spends: of a tool, or a request to a model."""

    agent_id: str
    incarnation: int
    what: str
    """Which call of the agent. The same reservation again has the same text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a reservation takes of one counter."""

    counter: CounterId
    bucket: int
    """When the bucket begins, in seconds since 1970 by the clock of the store; 0 without a time."""
    since: int = 0
    """The first bucket that counts. Later ones than `bucket` do too: a clock may be set back."""
    amount: Decimal
    """At least 0, finite."""
    limit: Decimal | None
    """What the sum of these buckets may be with it; None where a person has let it pass."""
    ref: str = ""
    """What a later call names that gives this back; empty where none can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a call may spend. No two of its lines are of one counter."""

    id: SpendId
    lines: tuple[Line, ...]
    valid_from: int = 0
    valid_until: int = 1 << 62
    """The seconds since 1970 in which these buckets are the right ones. The store compares them
    with its own clock."""
    must_last: bool = False
    """Whether it is on disk when it is answered. Else it is on disk before any later commit is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What came of a reservation."""

    now: int
    """Seconds since 1970, by the clock of the store."""
    sums: Mapping[CounterId, Decimal]
    """What each counter has in the buckets that count: with the reservation, if that was made."""
    refused: tuple[CounterId, ...] = ()
    """The counters on which there is no room; then nothing is reserved."""
    is_late: bool = False
    """The buckets are not those of `now`: nothing is reserved, and is to be asked for anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a call has spent. Without a reservation it changes nothing."""

    id: SpendId
    amounts: Mapping[str, Decimal] | None = None
    """By `CounterId.budget`; budgets that are not named, and None, keep what is reserved. It may be
    more than that: what is spent is counted."""
    unknown: bool = False
    """Nobody knows what it has spent: what is reserved counts, and is shown apart."""
    gives_back: Mapping[tuple[str, str], Decimal | None] = field(default_factory=dict)
    """What the call gives back, by `CounterId.budget` and `Line.ref`; None for all of it. Each is
    given back once, and at most what was spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpending:
    """A reservation that is not settled."""

    id: SpendId
    amounts: Mapping[CounterId, Decimal]
    at: datetime
    """When it was made, by the clock of the store."""


class BucketSum(NamedTuple):
    """What a counter has in one bucket."""

    bucket: int
    amount: Decimal
    """All of it: what is settled, what is open, what is unknown."""
    open: Decimal
    unknown: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSums:
    """A counter, as it is listed. Old buckets are gone."""

    counter: CounterId
    buckets: tuple[BucketSum, ...]
    """Oldest first."""


class Spending(ABC):
    """The counters of a store. Used on the runtime's loop. `Store.spending` has it."""

    @abstractmethod
    async def reserve(self, asked: Reservation) -> Reserved:
        """Reserve on all counters, or on none.

        The same reservation again, which is not settled, takes the place of the one before: it
        needs room for what is more. One that is settled is not made again: it is answered as made.

        Raises:
            JournalFailed: if the store is away.

        """

    @abstractmethod
    async def open_spending(self, agent_id: str) -> Sequence[OpenSpending]:
        """What is not settled of this agent, in its present incarnation."""

    @abstractmethod
    async def counters(self, budgets: Collection[str] | None = None) -> Sequence[CounterSums]:
        """The counters of these budgets, sorted; None for all."""

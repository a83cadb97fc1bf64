"""Spending: amounts that are reserved before they are spent, over all agents and hosts of a store.

A *counter* is what one budget counts for one key, such as the refunds of one agent. It has a sum
for each *bucket* of time. What a call may spend is *reserved* on all counters that it concerns, on
all or on none, before it starts. It is *settled* by what it has spent, in the commit of its result.
A counter is never below what is known to be spent, for it holds what is reserved until that is
settled.

Locks, where hosts share the store. A reservation locks, in this order: its agent, among
reservations and deletions alone; its own rows; its counters, sorted; then rows that are settled, as
far as nobody else has locked them. It waits for no other row while it holds a counter, and it is
one statement, so no host can be suspended while it holds one. A commit of records locks the rows of
its own agent alone (test_a_settlement_locks_no_counter).

Growth. What is settled is folded into the sum of its bucket, and its row goes, unless it has a
`ref` that a later call may name. A bucket goes with its rows once it is two windows, and a day,
older than the first bucket that counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Context, Decimal
from typing import NamedTuple

from understudy._base.json_values import is_storable_text, shown
from understudy._base.quickly_made import quickly_made
from understudy.errors import UsageError

MAX_BYTES = 2000
"""The most bytes of a budget and a key together, of a `what` and of a `ref`: what fits into an
entry of an index."""
_ALWAYS = 1 << 62
_DAY = 86_400
_MOST = Decimal(10) ** 24
_LEAST_EXPONENT = -40
EXACT = Context(prec=120)
"""The context that adds amounts without rounding: 10**40 of the largest, with all their decimal
places."""


class CounterId(NamedTuple):
    """What a counter counts."""

    budget: str
    """The name of the budget, and a digest of what it counts: another unit is another counter."""
    key: str
    """The text that says for whom is counted; empty where the budget is for the whole store."""


class SpendId(NamedTuple):
    """A call that spends: of a tool, or a request to a model."""

    agent_id: str
    incarnation: int
    what: str
    """The call among the calls of the agent. The same reservation again has the same text."""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a reservation takes of one counter."""

    counter: CounterId
    bucket: int
    """The begin of the bucket, in seconds since 1970 by the clock of the store; 0 without a
    time."""
    since: int = 0
    """The begin of the first bucket that counts, in seconds since 1970. Buckets after `bucket`
    count, too: a clock may be set back."""
    amount: Decimal
    """The amount to reserve: at least 0, finite, less than 10**24, with 40 decimal places at
    most."""
    limit: Decimal | None
    """The most that the sum of these buckets may be with the amount; None where a person has let
    the call pass."""
    ref: str = ""
    """The name by which a later call gives the amount back; empty where none can."""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a call may spend. No two of its lines are of one counter."""

    id: SpendId
    lines: tuple[Line, ...]
    valid_from: int = 0
    valid_until: int = _ALWAYS
    """The seconds since 1970 in which these buckets are the right ones: from the first to before
    the last. The store compares them with its own clock."""
    must_last: bool = False
    """Whether it is on disk when it is answered. Else it is on disk before any later commit is."""


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What came of a reservation."""

    now: int
    """The time of the answer in seconds since 1970, by the clock of the store."""
    sums: Mapping[CounterId, Decimal]
    """What each counter has in the buckets that count: with the reservation, if that was made."""
    refused: tuple[CounterId, ...] = ()
    """The counters on which there is no room; then nothing is reserved. What the same call had
    reserved before stays reserved."""
    is_late: bool = False
    """Whether the buckets are not the buckets of `now`: nothing is reserved, and is to be asked for
    anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a call has spent.

    Without a reservation, or after another settlement, its amounts change nothing.
    """

    id: SpendId
    amounts: Mapping[str, Decimal] | None = None
    """The amounts spent, by `CounterId.budget`. Budgets that are not named keep what is reserved;
    None: all do. An amount may be more than the reservation: what is spent is counted."""
    unknown: bool = False
    """Whether nobody knows what the call has spent: what is reserved counts, and is shown apart."""
    gives_back: Mapping[tuple[str, str], Decimal | None] = field(default_factory=dict)
    """What the call gives back, by `CounterId.budget` and `Line.ref`; None for all of it. Of calls
    with the same `ref` it is the first that is settled and was not given back yet: each is given
    back once, and at most what was spent, in the bucket of that call. What is not settled is not
    given back."""

    def spent(self, budget: str, reserved: Decimal) -> Decimal:
        """What counts from now on of what was reserved on a counter of this budget."""
        return reserved if self.amounts is None else self.amounts.get(budget, reserved)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpending:
    """A reservation that is not settled."""

    id: SpendId
    amounts: Mapping[CounterId, Decimal]
    at: datetime
    """The time at which the reservation was made, by the clock of the store."""


class BucketSum(NamedTuple):
    """What a counter has in one bucket."""

    bucket: int
    amount: Decimal
    """The sum of what is settled, what is open, and what is unknown."""
    open: Decimal
    unknown: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSums:
    """A counter, as it is listed. Old buckets are gone."""

    counter: CounterId
    buckets: tuple[BucketSum, ...]
    """The sums of the buckets, oldest first."""


class Spending(ABC):
    """The counters of a store. Used on the runtime's loop. `Store.spending` has it."""

    @abstractmethod
    async def reserve(self, asked: Reservation) -> Reserved:
        """Reserve on all counters, or on none.

        The same reservation again, which is not settled, takes the place of the one before: it
        needs room for what is more. One that was settled just now is not made again: it is answered
        as made. So is one of a call that spends nothing, also where there is no room.

        Raises:
            UsageError: if it cannot be kept: see `Line` and `MAX_BYTES`.
            Fenced: if the agent has another owner or incarnation by now, or was deleted. Where one
                host has the store, and it need not last, nothing is reserved, and the next commit
                of the agent's records raises it.
            JournalFailed: if the store is away.

        """

    @abstractmethod
    async def open_spending(self, agent_id: str) -> Sequence[OpenSpending]:
        """The reservations of an agent, in its present incarnation, that are not settled."""

    @abstractmethod
    async def counters(self, budgets: Collection[str] | None = None) -> Sequence[CounterSums]:
        """The counters of these budgets, sorted; None for all."""

    def note_settled(
        self, settlements: Sequence[Settlement], agent_id: str, incarnation: int
    ) -> None:
        """Note that settlements will be in the next commit of an agent.

        Raises:
            UsageError: if they cannot be kept.

        """
        check_settlements(settlements, agent_id, incarnation)

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """Note that settlements are committed. It is called in the order of the commits."""
        return


def check_reservation(asked: Reservation) -> None:
    """Raise `UsageError` for what no store could keep."""
    _check_text("what", asked.id.what)
    for line in asked.lines:
        budget, key = line.counter
        _check_text("budget", budget)
        _check_text("key", key, len(budget))
        _check_text("ref", line.ref)
        _check_amount(f"the amount on {budget!r}", line.amount)
        if line.limit is not None:
            _check_amount(f"the limit of {budget!r}", line.limit)
        if not 0 <= line.since <= line.bucket < _ALWAYS:
            raise UsageError(
                f"a bucket of {budget!r} must be from 0 on, and not before the first that counts, "
                f"got bucket={line.bucket!r}, since={line.since!r}"
            )
    if len({line.counter for line in asked.lines}) != len(asked.lines):
        raise UsageError(f"two lines of {asked.id!r} are of one counter: add them up")


def check_settlements(settlements: Sequence[Settlement], agent_id: str, incarnation: int) -> None:
    """Raise `UsageError` for what no store could keep in a commit of this agent."""
    for each in settlements:
        if each.id[:2] != (agent_id, incarnation):
            raise UsageError(
                f"{each.id!r} is settled in a commit of agent {agent_id!r}, incarnation "
                f"{incarnation}: settle it in one of its own"
            )
        for budget, amount in (each.amounts or {}).items():
            _check_amount(f"what is spent of {budget!r}", amount)
        for (budget, ref), back in each.gives_back.items():
            _check_text("ref", ref)
            if back is not None:
                _check_amount(f"what is given back of {budget!r}", back)


def _check_text(name: str, text: str, more: int = 0) -> None:
    if len(text) + more <= MAX_BYTES // 4 and text.isascii() and "\0" not in text:
        return
    fits = is_storable_text(text) and len(text.encode()) + 4 * more <= MAX_BYTES
    if not fits or "\0" in text:
        raise UsageError(
            f"a `{name}` must be text of at most {MAX_BYTES:,} bytes without NUL, got "
            f"{shown(text)}: take a digest of it"
        )


def _check_amount(what: str, amount: Decimal) -> None:
    # `_MOST` is compared with a finite number alone: NaN would raise.
    if isinstance(amount, Decimal) and amount.is_finite() and 0 <= amount < _MOST:
        exponent = amount.as_tuple().exponent
        if isinstance(exponent, int) and exponent >= _LEAST_EXPONENT:
            return
    raise UsageError(
        f"{what} must be a Decimal of at least 0 and less than 10**24, with 40 decimal places at "
        f"most, got {shown(amount)}"
    )


def oldest_kept(asked: Reservation, line: Line) -> int:
    """The first bucket that is kept of a counter: two windows before the first that counts.

    It is a day before that at least, for the times in which the buckets of all lines are the right
    ones may be shorter than the window of this one. 0 = all are kept, where the line has no window.
    """
    if not line.since or asked.valid_until >= _ALWAYS:
        return 0
    window = line.bucket - line.since + asked.valid_until - asked.valid_from
    return max(0, line.since - max(2 * window, _DAY))

"""`Account`: what an agent has reserved from the budgets of its runtime, and what it has spent.

The spending of a tool call is reserved before its start is recorded, and the cost of a request to a
model before it is sent. A reservation is settled in the commit of the record of the result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from typing import NamedTuple

from understudy._base.authors import shown_author
from understudy._base.clock import Clock
from understudy.approvals import BUDGET
from understudy.errors import UsageError
from understudy.journal.contracts import Owned
from understudy.journal.owned_journal import OwnedJournal
from understudy.journal.spending import (
    CounterId,
    Line,
    Reservation,
    Settlement,
    SpendId,
    Spending,
)
from understudy.run.ledger import Ledger
from understudy.run.run import Run
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.folds.grants import has_happened
from understudy.state.run_state import Call
from understudy.state.waits import open_calls
from understudy.stopping import StopSignal
from understudy.trust.budgets import NO_LATER, WARN_AT, Budget, Span, Spender
from understudy.trust.trust import Trust

logger: logging.Logger = logging.getLogger(__name__)

_ENDS_CALLS = (r.Result, r.Settled, r.RunEnded, r.SubRunEnded, r.Withdrawn)
_NOTHING = Decimal(0)
_CALL, _WITHIN, _BACK, _MODEL = "call/", "within/", "back/", "model/"


class Want(NamedTuple):
    """The amount that a call may spend from one budget."""

    budget: Budget
    key: str
    amount: Decimal
    ref: str = ""
    passes: bool = False
    """Whether a person has let it pass: it counts, but needs no room."""


class Shortage(NamedTuple):
    """A budget that has no room."""

    budget: Budget
    key: str
    needs: Decimal
    used: Decimal
    limit: Decimal

    @property
    def text(self) -> str:
        """The shortage, as text for people."""
        budget = self.budget
        left = max(self.limit - self.used, Decimal(0))
        return (
            f"the budget {budget.name!r} ({budget.text}) has {budget.shown(left)} left, and "
            f"{budget.shown(self.needs)} would be needed"
        )

    @property
    def sentence(self) -> str:
        """The text as the beginning of a sentence, without a full stop."""
        return self.text[0].upper() + self.text[1:]


def budget_signal(short: Sequence[Shortage]) -> StopSignal:
    """The signal that stops a run for which budgets have no room."""
    text = "; ".join(each.text for each in short)
    names = [each.budget.name for each in short]
    return StopSignal.budget(
        text[0].upper() + text[1:], source=BUDGET + names[0], budgets=list(names)
    )


def spender_of(run: Run) -> Spender:
    """The spender of a run: its outermost agent."""
    root = run.root
    return Spender(
        agent_id=root.agent_id,
        definition=root.definition.name,
        agent_path=run.agent_path,
        run_id=root.run_id,
        requesters=tuple(map(shown_author, root.state.authors)),
    )


class BudgetKeeper:
    """The budgets of a runtime, on the counters of its store.

    Args:
        budgets: the budgets for everything that its agents spend.
        within: the budgets of rules.
        trust: the trust, which knows the raised budgets.
        clock: the clock of the runtime.

    """

    def __init__(
        self, budgets: Sequence[Budget], within: Sequence[Budget], trust: Trust, clock: Clock
    ) -> None:
        self.budgets: tuple[Budget, ...] = tuple(budgets)
        self.within: tuple[Budget, ...] = tuple(within)
        self.of_models: tuple[Budget, ...] = tuple(b for b in budgets if b.measure.is_of_models)
        self.reversible: tuple[Budget, ...] = tuple(b for b in self.all if b.measure.given_back_by)
        self.of_tools: tuple[Budget, ...] = tuple(b for b in budgets if not b.measure.is_of_models)
        self.clock = clock
        self._trust = trust
        self._spending: Spending | None = None
        self._spans: dict[str, Span] = {}
        self._warned: dict[tuple[CounterId, int], Decimal] = {}
        self.on_refused: Callable[[Shortage], None] | None = None
        """A function that is called when a budget has no room for a call."""

    def put_within(self, within: Sequence[Budget]) -> None:
        """Replace the budgets of rules by new ones of the same names, perhaps with other limits."""
        new = {budget.id: budget for budget in within}
        self.within = tuple(new.get(budget.id, budget) for budget in self.within)
        self.reversible = tuple(b for b in self.all if b.measure.given_back_by)

    @property
    def all(self) -> tuple[Budget, ...]:
        """The budgets of the runtime, and the budgets of rules."""
        return (*self.budgets, *self.within)

    def open(self, spending: Spending | None) -> None:
        """Begin to use the counters of a store that has opened.

        Raises:
            UsageError: if the store keeps no counters.

        """
        if spending is None:
            raise UsageError(
                "`budgets`: the store of this runtime keeps no counters: see `journal.Store.keeps`"
            )
        self._spending = spending

    @property
    def spending(self) -> Spending:
        """The counters of the store."""
        assert self._spending is not None, "the runtime is open"
        return self._spending

    def now(self) -> int:
        """Seconds since 1970. The store has the last word: see `Reserved.is_late`."""
        return int(self.clock.now().timestamp())

    def span(self, budget: Budget, now: int) -> Span:
        """The window of a budget at a moment. All moments in one bucket have the same window
        end.
        """
        known = self._spans.get(budget.id)
        if known is None or not known.bucket <= now < known.until:
            known = self._spans[budget.id] = budget.span(now)
        return known

    def limit(self, budget: Budget, key: str, now: int | None = None) -> Decimal:
        """The limit in the window of a moment, with what persons have added to it.

        Args:
            budget: the budget.
            key: for whom it is counted.
            now: seconds since 1970, by the clock of the store; None for the clock of this host.

        """
        state = self._trust.state
        if not state.raised:
            return budget.measure.limit
        at = self.clock.now() if now is None else datetime.fromtimestamp(now, timezone.utc)
        return budget.measure.limit + state.added_to(budget.id, key, at)

    def low(self) -> int:
        """The number of budgets of which four fifths are used in the current window, as far as this
        host knows.
        """
        now, count = self.now(), 0
        by_id = {budget.id: budget for budget in self.all} if self._warned else {}
        for (counter, bucket), limit in list(self._warned.items()):  # another thread may ask
            budget = by_id[counter.budget]
            is_over = budget.window is not None and bucket < budget.span(now).since
            count += not is_over and self.limit(budget, counter.key) <= limit
        return count

    def note(self, want: Want, bucket: int, used: Decimal, limit: Decimal) -> None:
        """Warn once for each window that a budget is nearly used up."""
        if used < limit * WARN_AT:
            return
        about = CounterId(want.budget.id, want.key), bucket if want.budget.window else 0
        if self._warned.get(about, Decimal(-1)) >= limit:
            return
        if len(self._warned) >= 10_000:  # mostly windows that are over
            self._warned.clear()
        self._warned[about] = limit
        budget = want.budget
        logger.warning(
            "the budget %r%s: %s of %s are used",
            budget.name,
            f" of {want.key}" if want.key else "",
            budget.shown(used),
            budget.shown(limit),
            extra={"budget": budget.name, "budget_key": want.key},
        )


@dataclass(slots=True)
class _Open:
    """An unsettled reservation of a tool call."""

    call_key: str
    amounts: dict[str, Decimal]
    """The reserved amounts, by `CounterId.budget`."""
    call: Call | None = None
    """The call, as it was last in the state."""
    made: object = None
    """The object from which its amounts were read: the same object has the same amounts."""
    until: int = 0
    """The end of the window in which it counts, in seconds since 1970; 0 = not known."""
    gives_back: Mapping[tuple[str, str], Decimal | None] = field(default_factory=dict)
    """What the call gives back if it succeeds, as in `Settlement`."""


class Account:
    """The reservations of an agent while it is in memory. Used on the runtime's loop.

    Args:
        keeper: the budgets of the runtime.
        owned: the owned agent.
        journal: the journal of the agent, whose commits settle.

    """

    def __init__(self, keeper: BudgetKeeper, owned: Owned, journal: OwnedJournal) -> None:
        self.keeper = keeper
        self._agent_id, self._incarnation = owned.agent_id, owned.incarnation
        self._epoch = owned.epoch
        self._journal = journal
        self._open: dict[str, _Open] = {}
        self._given_back = 0
        """The number of reservations given back for calls whose body was not entered."""
        self._requests = 0
        """The number of requests to models that had a reservation."""

    async def load(self, state: AgentState) -> None:
        """Take over the reservations of an earlier activation.

        The reservation of an open call stays. If the reply that asked for the call was lost,
        nothing was spent. Any other reservation counts as spent, because no record says what became
        of it: nobody knows the cost of a request to a model that was cut off.
        """
        if self._epoch == 1:
            return  # each activation claims the agent, and this one is the first
        found = await self.keeper.spending.open_spending(self._agent_id)
        if not found:
            return
        calls = {call.key: call for call in open_calls(state)}
        in_doubt = {key for each in state.whole_tree for key in each.doubts}
        turns = {each.run.run_id: each.run.turns for each in state.whole_tree if each.run}
        over = []
        for each in found:
            what = each.id.what
            key = _call_key(what)
            amounts = {counter.budget: amount for counter, amount in each.amounts.items()}
            if key is not None and (key in calls or key in in_doubt):
                self._open[what] = _Open(key, amounts, calls.get(key))
            elif key is not None and _was_lost(key, turns):
                over.append(Settlement(id=each.id, amounts=dict.fromkeys(amounts, Decimal(0))))
            else:
                over.append(Settlement(id=each.id, unknown=True))
        if over:
            self._journal.settle(over)

    # ------------------------------------------------------------------- reserving

    async def reserve(
        self, what: str, wants: Sequence[Want], *, must_last: bool = False
    ) -> list[Shortage]:
        """Reserve from all these budgets, or from none.

        Args:
            what: the name of the reservation. Reserving again under it needs room only for the
                increase.
            wants: the amounts, no two from one budget.
            must_last: as in `Reservation`.

        Returns:
            The budgets without room; empty if the amounts are reserved.

        Raises:
            JournalFailed: if the store cannot be reached.

        """
        keeper = self.keeper
        now = keeper.now()
        while True:
            asked, limits = self._asked(what, wants, now, must_last=must_last)
            reserved = await keeper.spending.reserve(asked)
            if not reserved.is_late:
                break
            now = reserved.now  # this host's clock differs, or a window has just ended
        short = []
        for want, line, limit in zip(wants, asked.lines, limits, strict=True):
            used = reserved.sums.get(line.counter, _NOTHING)
            if not reserved.refused:
                keeper.note(want, line.bucket, used, limit)
            elif line.counter in reserved.refused:
                short.append(Shortage(want.budget, want.key, want.amount, used, limit))
        if keeper.on_refused is not None:
            for each in short:
                keeper.on_refused(each)
        return short

    def _asked(
        self, what: str, wants: Sequence[Want], now: int, *, must_last: bool
    ) -> tuple[Reservation, list[Decimal]]:
        """The reservation for the store, in the windows of a moment, and the limits in them."""
        keeper, lines, limits = self.keeper, [], []
        valid_from, valid_until = 0, NO_LATER
        for want in wants:
            budget, key, amount, ref, passes = want
            bucket, since, until, _ = keeper.span(budget, now)
            valid_from, valid_until = max(valid_from, bucket), min(valid_until, until)
            # Race: the clock of this host may be behind the clock of the store, by which a window
            # is over, with what was added to it
            # (test_what_was_added_to_a_window_that_is_over_by_the_clock_of_the_store_is_over).
            limit = keeper.limit(budget, key, now)
            limits.append(limit)
            lines.append(
                Line(
                    counter=CounterId(budget.id, key),
                    bucket=bucket,
                    since=since,
                    amount=amount,
                    limit=None if passes else limit,
                    ref=ref,
                )
            )
        asked = Reservation(
            id=self._id(what),
            lines=tuple(lines),
            valid_from=valid_from,
            valid_until=valid_until,
            must_last=must_last,
        )
        return asked, limits

    def _id(self, what: str) -> SpendId:
        return SpendId(self._agent_id, self._incarnation, what)

    async def reserve_for(
        self,
        call: Call,
        wants: Sequence[Want],
        *,
        made: object = None,
        is_within: bool = False,
        continues: bool = False,
    ) -> list[Shortage]:
        """Reserve as by `reserve`, for a tool call. The records of the call settle the reservation.

        A call that may be made again under its key spends once. Any other call spends anew each
        time that a person lets it run again.

        Args:
            call: the call.
            wants: as in `reserve`.
            made: the object from which the amounts were read.
            is_within: whether a rule allows the call within these budgets.
            continues: whether the call was entered before and only continues, as after a sleep: its
                reservation stands, unless its amounts have changed.

        """
        kind = _WITHIN if is_within else _CALL
        amounts = {want.budget.id: want.amount for want in wants}
        known = self._last_of(kind, call.key)
        number = 1 + (call.times_let_again if call.effect == "effects" else 0)
        if known is not None and (continues or _number(known) == number):
            before = self._open[known]
            is_same = before.amounts == amounts and self.keeper.now() < before.until
            if continues:  # a budget that came later does not count it
                is_same = all(
                    before.amounts.get(id, amount) == amount for id, amount in amounts.items()
                )
            if is_same:
                return []
            what = known
        elif continues:
            return []
        else:
            # A settled name is not used again. A failed run that is continued may start a call
            # whose reservation was given back.
            what = f"{kind}{number}.{self._epoch}.{self._given_back}/{call.key}"
        try:
            short = await self.reserve(what, wants)
        except asyncio.CancelledError:
            # Race: the amounts may be reserved already although the call does not start
            # (test_what_is_reserved_while_its_run_is_cancelled_is_given_back).
            if what not in self._open:
                self._given_back += 1
                self.settle(what, dict.fromkeys(amounts, Decimal(0)))
            raise
        if not short:
            self._open[what] = _Open(call.key, amounts, call, made, self._until(wants))
        return short

    def _last_of(self, kind: str, call_key: str) -> str | None:
        """The name of the last unsettled reservation of a call; None if there is none."""
        found = [
            what
            for what, each in self._open.items()
            if each.call_key == call_key and what.startswith(kind)
        ]
        return max(found, key=_number, default=None)

    def _until(self, wants: Sequence[Want]) -> int:
        """The end of the earliest window of these budgets in which a reservation counts now."""
        now = self.keeper.now()
        return min((self.keeper.span(want.budget, now).until for want in wants), default=NO_LATER)

    def give_up_within(self, call: Call, budget: Budget) -> None:
        """Give back a call's part of a budget within which no rule allows the call any more."""
        for what, each in list(self._open.items()):
            if what.startswith(_WITHIN) and each.call_key == call.key and budget.id in each.amounts:
                del self._open[what]
                self._given_back += 1
                self.settle(what, dict.fromkeys(each.amounts, Decimal(0)))

    @property
    def has_open(self) -> bool:
        """Whether the reservation of a tool call is unsettled."""
        return bool(self._open)

    def has_reserved(self, made: object) -> bool:
        """Whether the amounts of a reservation were read from this very object."""
        return any(each.made is made for each in self._open.values())

    def will_give_back(self, call: Call, given: Mapping[tuple[str, str], Decimal | None]) -> None:
        """Note what a call gives back if it succeeds. It replaces an earlier note."""
        what = f"{_BACK}1./{call.key}"
        if given:
            self._open[what] = _Open(call.key, {}, call, gives_back=given)
        else:
            self._open.pop(what, None)

    def has_within(self, call_key: str) -> bool:
        """Whether a rule lets the call run by some budget."""
        return any(
            what.startswith(_WITHIN) and each.call_key == call_key
            for what, each in self._open.items()
        )

    def is_within(self, call_key: str, budget: Budget) -> bool:
        """Whether a rule lets the call run by this budget."""
        return any(
            what.startswith(_WITHIN) and each.call_key == call_key and budget.id in each.amounts
            for what, each in self._open.items()
        )

    def model_request(self, run_id: str) -> str:
        """The name of the reservation for the next request to a model."""
        self._requests += 1
        return f"{_MODEL}{self._epoch}.{self._requests}/{run_id}"

    # ------------------------------------------------------------------- settling

    def settle(
        self, what: str, amounts: Mapping[str, Decimal] | None = None, *, unknown: bool = False
    ) -> None:
        """Settle a request to a model, in the commit of the next record."""
        self._journal.settle([Settlement(id=self._id(what), amounts=amounts, unknown=unknown)])

    def recorded(self, state: AgentState, records: Iterable[r.Record]) -> None:
        """Settle what these folded records end, in their commit."""
        for record in records:
            inner = r.innermost(record)
            if isinstance(inner, _ENDS_CALLS):
                self._settle_over(state, inner)

    def _over(self, state: AgentState, inner: r.Record) -> dict[str, list[str]]:
        """The names of the reservations of the calls that a record ends, by call key."""
        if isinstance(inner, r.Result) and inner.doubt is None and len(self._open) == 1:
            ((what, each),) = self._open.items()  # mostly
            if each.call_key == inner.call_key:
                return {each.call_key: [what]}
        in_doubt = {key for each in state.whole_tree for key in each.doubts}
        still_open = {call.key: call for call in open_calls(state)}
        over: dict[str, list[str]] = {}
        for what, each in self._open.items():
            call = still_open.get(each.call_key)
            if call is not None:
                each.call = call
            is_over = call is None or call.result is not None
            if is_over and each.call_key not in in_doubt:
                over.setdefault(each.call_key, []).append(what)
        return over

    def _settle_over(self, state: AgentState, inner: r.Record) -> None:
        settled = []
        over = self._over(state, inner)
        for key, whats in over.items():
            happened = has_happened(key, inner, self._open[whats[0]].call)
            self._given_back += not happened
            last = max(whats, key=_number)
            unknown = isinstance(inner, r.Settled) and inner.ended
            succeeded = (
                isinstance(inner, r.Result)
                and inner.call_key == key
                and inner.part.outcome == "success"
            )
            for what in whats:
                entry = self._open.pop(what)
                amounts = None if happened else dict.fromkeys(entry.amounts, Decimal(0))
                is_first_try = _number(what) < _number(last)
                settled.append(
                    Settlement(
                        id=self._id(what),
                        amounts=amounts,
                        unknown=happened and (unknown or is_first_try),
                        gives_back=entry.gives_back if succeeded and happened else {},
                    )
                )
        if settled:
            self._journal.settle(settled)


def _call_key(what: str) -> str | None:
    kind, _, rest = what.partition("/")
    return None if f"{kind}/" == _MODEL else rest.partition("/")[2]


def _was_lost(call_key: str, turns: Mapping[str, int]) -> bool:
    """Whether the reply that asked for a call is in no record, so that its start is in none either.

    Args:
        call_key: the key of the call: its run, its turn and its place in the turn.
        turns: the number of turns of each run of the agent, by run id.

    """
    run_id, turn, _ = call_key.rsplit(".", 2)
    return run_id in turns and int(turn) >= turns[run_id]


def _number(what: str) -> int:
    return int(what.partition("/")[2].partition(".")[0])


class SpendingLedger(Ledger):
    """The ledger of an agent whose runtime has budgets."""

    __slots__ = ("account",)

    account: Account

    async def open_account(self, keeper: BudgetKeeper, owned: Owned, journal: OwnedJournal) -> None:
        """Reserve and settle from now on. It is called before anything is recorded."""
        self.account = Account(keeper, owned, journal)
        await self.account.load(self.state)

    def record_sound(self, *records: r.Record) -> None:
        super().record_sound(*records)
        account = self.account
        if account.has_open:
            account.recorded(self.state, records)

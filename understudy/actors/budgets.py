"""`BudgetDesk`: the budgets of a runtime as people see them, and what people add to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from understudy._base.json_values import checked_text, shown
from understudy._base.usd import usd_text
from understudy.actors.agent.services import RuntimeServices
from understudy.errors import UsageError
from understudy.journal.spending import CounterSums
from understudy.run.account import BudgetKeeper
from understudy.state.trust_facts import BudgetRaised
from understudy.trust.budgets import NO_LATER, WARN_AT, Budget, NoAmount, amount_in
from understudy.trust.fold import RaisedBudget

_NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """The use of a budget for one key, as it is now."""

    budget: Budget
    """The budget whose use this is."""
    key: str
    """The owner of the counter, such as `agent=ticket-17`; empty for the whole store."""
    used: Decimal
    """The amount that counts against the limit: spent, reserved and unknown together."""
    reserved: Decimal
    """The amount reserved by calls that have not ended."""
    unknown: Decimal
    """The amount of calls that were cut off. Everything that they could have spent counts."""
    limit: Decimal
    """The limit in this window, with what persons have added, in the unit of the budget."""
    since: datetime | None
    """The beginning of the window; None if the budget counts forever."""
    until: datetime | None
    """The end of the window; None if the budget counts forever.

    For a sliding window: the time at which what counts now has ceased to count.
    """
    raised: tuple[RaisedBudget, ...] = ()
    """The amounts that persons have added to the budget for this window."""
    is_of_rule: bool = False
    """Whether the budget belongs to a rule that allows calls within it.

    Beyond this budget calls do not run without a person, and no run is stopped.
    """

    @property
    def spent(self) -> Decimal:
        """The amount that is known to be spent."""
        return self.used - self.reserved - self.unknown

    @property
    def left(self) -> Decimal:
        """The amount that is left before the limit is reached; never below 0."""
        return max(self.limit - self.used, _NOTHING)

    @property
    def is_low(self) -> bool:
        """Whether at least four fifths of the limit are used."""
        return self.used >= self.limit * WARN_AT

    @property
    def text(self) -> str:
        """The use of the budget, as text for people."""
        budget = self.budget
        text = f"{budget.shown(self.used)} of {budget.shown(self.limit)} used"
        parts = [
            f"{budget.shown(amount)} {what}"
            for amount, what in ((self.reserved, "reserved"), (self.unknown, "unknown"))
            if amount
        ]
        return text + (f" ({', '.join(parts)})" if parts else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the use as plain data. Amounts are text with all digits."""
        names = ("used", "spent", "reserved", "unknown", "limit", "left")
        amounts: dict[str, Decimal] = {name: getattr(self, name) for name in names}
        return {
            "budget": self.budget.name,
            "allows": self.budget.text,
            "counts": self.budget.counts,
            "key": self.key,
            "unit": self.budget.unit,
            "at_limit": None if self.is_of_rule else self.budget.at_limit,
            **{name: usd_text(amount) for name, amount in amounts.items()},
            "is_low": self.is_low,
            "text": self.text,
            "texts": {name: self.budget.shown(amount) for name, amount in amounts.items()},
            "window": None if self.budget.window is None else self.budget.window.unit,
            "since": None if self.since is None else self.since.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
            "raised": [
                {**each.to_dict(), "text": self.budget.shown(each.amount)} for each in self.raised
            ],
        }


class BudgetDesk:
    """The budgets of a runtime. Used on the runtime's loop.

    Args:
        services: of the runtime.
        keeper: its budgets.

    """

    def __init__(self, services: RuntimeServices[Any, Any], keeper: BudgetKeeper) -> None:
        self._services = services
        self._keeper = keeper

    async def uses(self, budgets: Sequence[Budget] | None = None) -> list[BudgetUse]:
        """The use of each budget for each key by which it was used or raised, and for the store.

        Args:
            budgets: those of the runtime that are looked at; None for all.

        """
        keeper = self._keeper
        budgets = keeper.all if budgets is None else budgets
        places = {budget.id: place for place, budget in enumerate(budgets)}
        found: dict[tuple[str, str], CounterSums | None] = {
            (budget.id, ""): None for budget in budgets if not budget.per
        }
        for each in await keeper.spending.counters(list(places)):
            found[(each.counter.budget, each.counter.key)] = each
        now = keeper.clock.now()
        for raised in self._services.runs.trust.state.raised:
            if raised.said.counter in places and raised.holds(now):
                found.setdefault((raised.said.counter, raised.said.key), None)
        ordered = sorted(found, key=lambda each: (places[each[0]], each[1]))
        return [self._use(budgets[places[id]], key, found[(id, key)]) for id, key in ordered]

    async def reserved(self, agent_id: str) -> dict[str, str]:
        """The amounts that an agent has reserved now, as text for people, by budget name."""
        found: dict[str, Decimal] = {}
        for each in await self._keeper.spending.open_spending(agent_id):
            for (budget, _), amount in each.amounts.items():
                found[budget] = found.get(budget, _NOTHING) + amount
        return {
            budget.name: budget.shown(found[budget.id])
            for budget in self._keeper.all
            if found.get(budget.id)
        }

    def _use(self, budget: Budget, key: str, sums: CounterSums | None) -> BudgetUse:
        keeper = self._keeper
        span = budget.span(keeper.now())
        buckets = [] if sums is None else [each for each in sums.buckets if each[0] >= span.since]
        now = keeper.clock.now()
        has_window = budget.window is not None
        return BudgetUse(
            budget=budget,
            key=key,
            used=sum((each.amount for each in buckets), _NOTHING),
            reserved=sum((each.open for each in buckets), _NOTHING),
            unknown=sum((each.unknown for each in buckets), _NOTHING),
            limit=keeper.limit(budget, key),
            since=_time(span.since) if has_window else None,
            until=_time(span.ends) if has_window else None,
            raised=tuple(
                each
                for each in self._services.runs.trust.state.raised
                if (each.said.counter, each.said.key) == (budget.id, key) and each.holds(now)
            ),
            is_of_rule=any(budget is each for each in keeper.within),
        )

    async def raise_budget(
        self, name: str, amount: object, key: str, why: str, by: str | None
    ) -> BudgetUse:
        """Add an amount to a budget for its current window. Returns the budget's use afterwards.

        Raises:
            UsageError: if there is no such budget, or it is no such amount.

        """
        keeper, services = self._keeper, self._services
        budget = next((each for each in keeper.all if each.name == name), None)
        if budget is None:
            known = ", ".join(repr(each.name) for each in keeper.all)
            raise UsageError(f"There is no budget {shown(name)}; there are: {known}")
        form = ", ".join(f"{name}=.*" for name in budget.per)  # see `Budget.key`
        if re.fullmatch(form, key, re.DOTALL) is None:
            raise UsageError(
                f"The budget {name!r} is counted for each {' and '.join(budget.per)}: say for "
                f"which, such as key={', '.join(f'{each}=...' for each in budget.per)!r}, as "
                f"runtime.budgets() lists it; got {key!r}"
                if budget.per
                else f"The budget {name!r} is for the whole store: it takes no key, got {key!r}"
            )
        try:
            added = amount_in(amount, "amount")
        except NoAmount as problem:
            raise UsageError(f"raise_budget({name!r}, ...): {problem}") from None
        if not added:
            raise UsageError(f"raise_budget({name!r}, ...): nothing would be added")
        ends = budget.span(keeper.now()).ends
        said = BudgetRaised(
            budget=name,
            counter=budget.id,
            key=key,
            amount=usd_text(added),
            until=None if ends >= NO_LATER else _time(ends),
            why=checked_text(why, what="raise_budget(why=...)"),
        )
        await services.runs.trust.add(lambda _state: said, at=services.clock.now(), by=by)
        return next(
            each for each in await self.uses() if (each.budget.id, each.key) == (budget.id, key)
        )


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def budgets_of_rules(rules: Any) -> Sequence[Budget]:
    """The budgets within which rules allow calls, each once."""
    found = [] if rules is None else [rule.within for rule in rules.rules if rule.within]
    return list({str(budget.described): budget for budget in found}.values())

"""`costs_of`: what an agent has cost, by its history: recorded, or estimated when it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from understudy.history import HistoryEntry
from understudy.models.prices import Prices, Pricing
from understudy.state.costs import NO_COST, Cost, CostLine

__all__ = ["Costs", "costs_of", "estimated"]


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of an agent, with all agents that it runs."""

    by_run: dict[str | None, Cost]
    """The cost of each run, by the id of the outermost run, oldest first.

    The key None has what is known of runs whose records were compacted.
    """

    @property
    def total(self) -> Cost:
        """The cost of all runs. Its `by_agent` and `by_model` are the sums by agent and by
        model.
        """
        found = NO_COST
        for cost in self.by_run.values():
            found += cost
        return found


def costs_of(entries: Iterable[HistoryEntry], *, pricing: Pricing | None = True) -> Costs:
    """Return the cost of the requests to models that a history has.

    A recorded cost is taken as it is. The cost of any other request is estimated by the present
    prices. It is unknown if its model has no price.

    Args:
        entries: all entries of a history, `ref.history(limit=...).entries`, from the first
            entry on.
        pricing: the prices for the estimates, as in `Runtime(pricing=)`; None = estimate
            nothing.

    """
    prices = Prices.given(pricing, what="costs_of: `pricing`")
    by_run: dict[str | None, Cost] = {}
    run_id: str | None = None
    for entry in entries:
        if len(entry.agent_path) == 1 and entry.run_id is not None:
            run_id = entry.run_id
        if entry.what == "compacted":
            for name, lines in entry.detail.get("costs", {}).items():
                known = Cost(tuple(map(_stored, lines)))
                by_run[name or None] = by_run.get(name or None, NO_COST) + known
            continue
        found = cost_of(entry, prices)
        if found.requests:
            by_run[run_id] = by_run.get(run_id, NO_COST) + found
    return Costs(by_run)


def cost_of(entry: HistoryEntry, prices: Prices | None) -> Cost:
    """What the requests to models of one entry cost."""
    agent = "/".join(entry.agent_path)
    found = NO_COST
    for request in entry.detail.get("model_requests", ()):
        found += _cost(request, agent, entry.at, prices)
    if entry.what == "wait_started":
        lines = map(_stored, entry.detail.get("costs", ()))
        found += Cost(tuple(replace(line, agent=agent) for line in lines))
    return found


def estimated(request: Mapping[str, Any], at: datetime | None, prices: Prices) -> Decimal | None:
    """What a request of `HistoryEntry.detail["model_requests"]` would cost by these prices."""
    reply = ModelResponse(
        parts=[],
        usage=RequestUsage(**request["usage"]),
        model_name=request["model"],
        provider_name=request["provider"],
        provider_url=request["provider_url"],
    )
    if at is not None:
        reply.timestamp = at
    return prices.of(reply)


def _cost(
    request: Mapping[str, Any], agent: str, at: datetime | None, prices: Prices | None
) -> Cost:
    model, cost = request["model"] or "", request["cost"]
    if cost is not None:
        return Cost((CostLine(agent=agent, model=model, requests=1, cost=Decimal(cost)),))
    guess = None if prices is None else estimated(request, at, prices)
    if guess is None:
        return Cost((CostLine(agent=agent, model=model, requests=1, unknown=1),))
    return Cost((), (CostLine(agent=agent, model=model, requests=1, cost=guess),))


def _stored(line: Mapping[str, Any]) -> CostLine:
    return CostLine(**{**line, "cost": Decimal(line["cost"])})

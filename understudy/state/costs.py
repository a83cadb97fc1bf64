"""The costs of model replies: the sums that a state keeps, and `Cost`, which people read.

The cost of a reply is recorded with it, in its `usage`: as `cost`, in USD, or as unknown, by
`unpriced_requests`. A reply that nobody has priced has neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer
from pydantic_ai.usage import RequestUsage, RunUsage

from understudy._base.usd import NOTHING, shown_usd, total, usd_text
from understudy.models.prices import UNPRICED

Usd = Annotated[Decimal, PlainSerializer(usd_text, return_type=str, when_used="json")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """What the requests of one agent to one model cost together."""

    agent: str
    """The agent's name, after the names of the agents that run it: `support/researcher`."""
    model: str
    """The name that the model gives itself; empty if it gives none."""
    requests: int
    """The number of all requests, including requests of unknown cost."""
    unknown: int = 0
    """The number of requests whose cost is unknown."""
    cost: Usd = NOTHING
    """The cost of the other requests, in USD."""


Lines = tuple[CostLine, ...]


def line_of(agent: str, model: str | None, usage: RequestUsage) -> CostLine:
    """The line of one request, with the cost in its usage."""
    cost = usage.cost
    return CostLine(
        agent=agent,
        model=model or "",
        requests=1,
        unknown=int(cost is None),
        cost=NOTHING if cost is None else cost,
    )


def is_priced(usage: RequestUsage) -> bool:
    """Whether the request was priced: its cost is known, or known to be unknown."""
    return usage.cost is not None or UNPRICED in usage.__dict__


def unpriced(usage: RunUsage) -> int:
    """The number of priced requests whose cost is unknown."""
    return int(getattr(usage, UNPRICED, 0))


def adding(lines: Lines, more: Iterable[CostLine]) -> Lines:
    """The lines with more added, in the order in which an agent first asked a model."""
    found = {(line.agent, line.model): line for line in lines}
    for line in more:
        before = found.get((line.agent, line.model))
        found[line.agent, line.model] = line if before is None else _sum(before, line)
    return tuple(found.values())


def below(agent: str, lines: Lines) -> Lines:
    """The lines of an agent, as lines of the agent that runs it."""
    return tuple(replace(line, agent=f"{agent}/{line.agent}") for line in lines)


def _sum(one: CostLine, other: CostLine) -> CostLine:
    return replace(
        one,
        requests=one.requests + other.requests,
        unknown=one.unknown + other.unknown,
        cost=total((one.cost, other.cost)),
    )


def complete(lines: Lines, agent: str, requests: int) -> Lines:
    """The lines, with one more for the requests that no line counts: their cost is unknown."""
    missing = requests - sum(line.requests for line in lines)
    if missing <= 0:
        return lines
    return adding(lines, [CostLine(agent=agent, model="", requests=missing, unknown=missing)])


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of requests to models, in USD: recorded, estimated, or unknown. Unknown is
    never 0.
    """

    lines: Lines = ()
    """The recorded costs and the unknown requests, by agent and model."""
    estimates: Lines = ()
    """The estimated costs, by agent and model, of requests that were not priced when they were
    made.

    They use the prices at the time of reading.
    """

    @property
    def requests(self) -> int:
        """The number of all requests to models, including those that gave no answer."""
        return sum(line.requests for line in (*self.lines, *self.estimates))

    @property
    def unknown(self) -> int:
        """The number of requests whose cost is unknown."""
        return sum(line.unknown for line in self.lines)

    @property
    def recorded(self) -> Decimal:
        """The cost, in USD, of the requests that were priced when they were made."""
        return total(line.cost for line in self.lines)

    @property
    def estimated(self) -> Decimal:
        """The estimated cost, in USD."""
        return total(line.cost for line in self.estimates)

    @property
    def is_estimated(self) -> bool:
        """Whether a part of the cost is an estimate."""
        return bool(self.estimates)

    @property
    def at_least(self) -> Decimal:
        """The known cost, in USD, recorded and estimated, without the requests of unknown cost."""
        return total((self.recorded, self.estimated))

    @property
    def usd(self) -> Decimal | None:
        """The whole cost, in USD, recorded and estimated; None if the cost of any request is
        unknown.
        """
        return None if self.unknown else self.at_least

    @property
    def by_agent(self) -> dict[str, Cost]:
        """The cost of each agent without the agents that it runs, by path: `support`,
        `support/researcher`.
        """
        return self._grouped("agent")

    @property
    def by_model(self) -> dict[str, Cost]:
        """The cost of each model, by its name. The name is empty for requests whose model is
        unknown.
        """
        return self._grouped("model")

    def of_agent(self, path: str) -> Cost:
        """Return the cost of one agent and all agents that it runs, by its path:
        `support/researcher`.
        """

        def inside(lines: Lines) -> Lines:
            return tuple(line for line in lines if f"{line.agent}/".startswith(f"{path}/"))

        return Cost(inside(self.lines), inside(self.estimates))

    def _grouped(self, name: Literal["agent", "model"]) -> dict[str, Cost]:
        found: dict[str, Cost] = {}
        for line in self.lines:
            key: str = getattr(line, name)
            found[key] = found.get(key, NO_COST) + Cost((line,))
        for line in self.estimates:
            key = getattr(line, name)
            found[key] = found.get(key, NO_COST) + Cost((), (line,))
        return found

    def __add__(self, other: Cost) -> Cost:
        """The sum, by agent and model."""
        return Cost(adding(self.lines, other.lines), adding(self.estimates, other.estimates))

    def __str__(self) -> str:
        """For people: `$0.0042`; `≈ $0.0042` if estimated; `at least $0.0042`; `unknown`."""
        if self.unknown and self.unknown == self.requests:
            return "unknown"
        text = ("≈ " if self.is_estimated else "") + shown_usd(self.at_least)
        return f"at least {text}" if self.unknown else text

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as JSON-able data. Amounts are texts with all their digits."""
        usd = self.usd
        return {
            "usd": None if usd is None else usd_text(usd),
            "recorded": usd_text(self.recorded),
            "estimated": usd_text(self.estimated),
            "is_estimated": self.is_estimated,
            "requests": self.requests,
            "unknown": self.unknown,
            "text": str(self),
        }


NO_COST: Cost = Cost()

"""What requests to models use, by day, definition and model: sums that a store keeps for a page.

They are written in the transaction of the replies, where a runtime asks for it by
`Runtime(usage=True)`. They stay when agents are compacted or deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timezone
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple, TypeAlias, get_args

from pydantic_ai.usage import RequestUsage

from understudy._base.json_values import storable_text
from understudy._base.usd import exact, usd_text
from understudy.errors import StoreDamaged
from understudy.state import records as r
from understudy.state.agent_state import AgentState

Asks: TypeAlias = r.Reply | r.ReplyHeld | r.ModelAsked | r.ModelGaveNoAnswer
ASKS: frozenset[type[r.Record]] = frozenset(get_args(Asks))
"""The records of requests to models; those of agents inside are in a `ChildRecord`."""
_PLACES = Decimal(10) ** 12
"""A store counts in millionths of a millionth of a dollar."""
MOST_TEXT = 200
"""The characters of the name of a model that are kept: a provider may send any."""


class Used(NamedTuple):
    """What requests of one day, of agents of one definition, to one model have used."""

    day: int
    """The day in UTC, as a number of `date.toordinal`."""
    agent: str
    model: str
    requests: int
    unknown: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayUsage:
    """What a day's requests of agents of one definition to one model have used."""

    day: date
    """The day, in UTC."""
    agent: str
    """The name of the definition: that of the outermost agent, also for those that it runs."""
    model: str
    """The name that the model gives itself; empty where it gives none."""
    requests: int
    """The number of all requests, requests of unknown cost included."""
    unknown: int
    """The number of requests whose cost is unknown: no price was known when they were made."""
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """The number of input tokens that were read from a cache."""
    cost: Decimal
    """The cost of the requests whose cost is known, in USD, to 12 decimal places."""

    def to_dict(self) -> dict[str, Any]:
        """The usage as JSON. The cost is a text."""
        return {**asdict(self), "day": self.day.isoformat(), "cost": usd_text(self.cost)}


def used_by(record: r.Record, agent: str, state: AgentState) -> tuple[Used, ...]:
    """What the requests of a record have used.

    Args:
        record: that is appended.
        agent: the definition of the outermost agent.
        state: of that agent, before the record.

    """
    place: AgentState | None = state
    inner = record
    while isinstance(inner, r.ChildRecord):
        place = None if place is None else place.children.get(inner.child)
        inner = inner.record
    if not isinstance(inner, Asks):
        return ()
    call = None if place is None or place.run is None else place.run.model_call
    if isinstance(inner, r.Reply) and call is not None and call.held is not None:
        return ()  # it was counted when it came
    response = inner.response
    at = record.at or response.timestamp
    day = at.astimezone(timezone.utc).date().toordinal()
    attempts = [
        _used(day, agent, each.model_name, each.usage)
        for each in response.failed_attempts or ()
        if each.usage is not None
    ]
    return (*attempts, _used(day, agent, response.model_name, response.usage))


def _used(day: int, agent: str, model: str | None, usage: RequestUsage) -> Used:
    cost = usage.cost
    return Used(
        day=day,
        agent=agent,
        model=storable_text(model or "").replace("\0", "\ufffd")[:MOST_TEXT],
        requests=1,
        unknown=int(cost is None),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        cost=0 if cost is None else int((cost * _PLACES).to_integral_value(ROUND_HALF_EVEN)),
    )


def summed(used: Iterable[Used]) -> list[Used]:
    """The sums by day, definition and model, in this order."""
    sums: dict[tuple[int, str, str], tuple[int, ...]] = {}
    for each in used:
        before = sums.get(each[:3], (0,) * 6)
        sums[each[:3]] = tuple(a + b for a, b in zip(before, each[3:], strict=True))
    return [Used(*key, *counts) for key, counts in sorted(sums.items())]


def day_usage(used: Used) -> DayUsage:
    """The sums as they are listed."""
    return DayUsage(
        **{**used._asdict(), "day": date.fromordinal(used.day), "cost": exact(used.cost / _PLACES)}
    )


def days(since: datetime, until: datetime) -> tuple[int, int]:
    """The first day of a range, and the day behind its last one."""
    first = since.astimezone(timezone.utc).date().toordinal()
    last = until.astimezone(timezone.utc)
    is_midnight = last.timetz().replace(tzinfo=None).isoformat() == "00:00:00"
    return first, last.date().toordinal() + (0 if is_midnight else 1)


# ------------------------------------------------------------------------ as rows

ADD_USED = """
INSERT INTO usage_sums AS u (day, definition, model, host, requests, unknown, input_tokens,
    output_tokens, cached_tokens, cost)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (day, definition, model, host) DO UPDATE SET requests = u.requests + excluded.requests,
    unknown = u.unknown + excluded.unknown,
    input_tokens = u.input_tokens + excluded.input_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens,
    cached_tokens = u.cached_tokens + excluded.cached_tokens, cost = u.cost + excluded.cost"""
USED = """
SELECT day, definition, model, sum(requests), sum(unknown), sum(input_tokens), sum(output_tokens),
    sum(cached_tokens), sum(cost)
FROM usage_sums WHERE day >= %s AND day < %s
GROUP BY day, definition, model ORDER BY day, definition, model"""


def used_columns(used: Used, host: int) -> tuple[Any, ...]:
    """The values of `ADD_USED`. Each host counts in rows of its own: none waits for another."""
    return (*used[:3], host, *used[3:])


def used_of_rows(rows: Sequence[tuple[Any, ...]]) -> list[Used]:
    """The sums of a database's rows.

    Raises:
        StoreDamaged: if one cannot be what a store has written.

    """
    found = []
    for day, agent, model, *counts in rows:
        try:
            date.fromordinal(day)
            found.append(
                Used(int(day), storable_text(agent), storable_text(model), *map(int, counts))
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StoreDamaged(what="the usage of a day", cause=str(error)) from error
    return found

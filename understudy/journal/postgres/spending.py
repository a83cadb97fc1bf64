"""What calls reserve and spend, in PostgreSQL: in the words of the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any

import psycopg

from understudy.errors import Fenced, StoreDamaged
from understudy.journal.contracts import Batch, time_of
from understudy.journal.postgres import spending_sql as sql
from understudy.journal.postgres.sql import Fetch
from understudy.journal.spending import (
    BucketSum,
    CounterId,
    CounterSums,
    OpenSpending,
    Reservation,
    Reserved,
    SpendId,
    oldest_kept,
)
from understudy.journal.sql_backend import Rows

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PsycopgConnection


def columns_of(asked: Sequence[Reservation], own_id: int, commits: str) -> dict[str, Any]:
    """The values of `spending_sql.RESERVE`."""
    calls: list[tuple[Any, ...]] = []
    counters: dict[CounterId, tuple[int, int, int]] = {}
    lines: list[tuple[Any, ...]] = []
    for each in asked:
        first = len(lines) + 1
        for line in each.lines:
            counted = (len(counters) + 1, line.since, oldest_kept(each, line))
            place, *_ = counters.setdefault(line.counter, counted)
            lines.append((place, line.bucket, line.amount, line.limit, line.ref))
        calls.append((*each.id, each.valid_from, each.valid_until, first, len(lines)))
    return {
        "own_id": own_id,
        "commits": commits,
        **sql.CALLS.values(calls),
        **sql.COUNTED.values([(*counter, *rest) for counter, (_, *rest) in counters.items()]),
        **sql.LINES.values(lines),
    }


def reserve(connection: PsycopgConnection, values: Mapping[str, Any]) -> Rows:
    """Make reservations.

    The statement goes to the server as one message: of one of several, the server could wait for
    the last, of a host that was suspended before it had sent that, with counters locked.
    """
    with psycopg.ClientCursor(connection) as cursor:
        return cursor.execute(sql.RESERVE, values).fetchall()


def answers_of(asked: Sequence[Reservation], rows: Rows) -> list[Reserved | Fenced | None]:
    """What came of each reservation, by the rows of the answer; None: it is to be asked again."""
    lines = [line for each in asked for line in each.lines]
    answers: list[Reserved | Fenced | None] = []
    by_place = groupby(sorted(rows), key=lambda row: row[0])
    for each, (_, found) in zip(asked, by_place, strict=True):
        of_lines = list(found)
        verdict, now = of_lines[0][2], of_lines[0][4]
        if verdict == "again":
            answers.append(None)
        elif verdict == "fenced":
            why = "it has another owner or incarnation by now, or was deleted"
            answers.append(Fenced(agent_id=each.id.agent_id, why=why))
        else:
            counters = [(lines[row[1] - 1].counter, row) for row in of_lines if row[1]]
            answers.append(
                Reserved(
                    now=now,
                    sums={counter: row[3] for counter, row in counters},
                    refused=tuple(counter for counter, row in counters if row[2] == "full"),
                    is_late=verdict == "late",
                )
            )
    return answers


def settlements_of(batches: Mapping[int, Batch]) -> dict[str, Any]:
    """The values of `spending_sql.SETTLE`, of batches by the keys of their agents' rows."""
    calls = {
        (key, *each.id[1:]): each
        for key, batch in batches.items()
        for each in reversed(batch.settlements)  # the first one of a call counts
    }
    amounts = [
        (nth, budget, amount)
        for nth, each in enumerate(calls.values(), 1)
        for budget, amount in (each.amounts or {}).items()
    ]
    settled = [(*call, each.unknown) for call, each in calls.items()]
    return sql.SETTLED.values(settled) | sql.SPENT.values(amounts)


def give_back(fetch: Fetch, batches: Iterable[Batch]) -> None:
    """Make what calls give back that are settled."""
    given = [
        (budget, ref, amount)
        for batch in batches
        for each in batch.settlements
        for (budget, ref), amount in each.gives_back.items()
    ]
    if given:
        fetch(sql.GIVE_BACK, sql.GIVEN.values(given))


def open_of(agent_id: str, rows: Rows) -> list[OpenSpending]:
    """What is open, by the rows of `spending_sql.OPEN`."""
    amounts: dict[SpendId, dict[CounterId, Decimal]] = {}
    made: dict[SpendId, Any] = {}
    for incarnation, what, budget, key, amount, at in rows:
        id = SpendId(agent_id, incarnation, what)
        amounts.setdefault(id, {})[CounterId(budget, key)] = amount
        made[id] = time_of(at)
        if made[id] is None:
            raise StoreDamaged(what="what calls have spent", cause=f"a row has {at!r}")
    return [OpenSpending(id=id, amounts=found, at=made[id]) for id, found in amounts.items()]


def counters_of(rows: Rows) -> list[CounterSums]:
    """The counters, by the rows of `spending_sql.COUNTERS`."""
    return [
        CounterSums(counter=CounterId(*of), buckets=tuple(BucketSum(*row[2:]) for row in found))
        for of, found in groupby(rows, key=lambda row: row[:2])
    ]


def wanted(budgets: Collection[str] | None) -> dict[str, Any]:
    """The values of `spending_sql.COUNTERS`."""
    return {"budgets": None if budgets is None else list(budgets)}

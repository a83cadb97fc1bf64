"""What calls reserve and spend, in PostgreSQL: in the words of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any

import psycopg

from understudy.errors import Fenced, StoreDamaged
from understudy.journal.contracts import Batch, time_of
from understudy.journal.postgres import spending_sql as sql
from understudy.journal.postgres.arrays import numbers, texts
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
    firsts, lasts, at = [], [], 0
    counters: dict[CounterId, int] = {}
    sinces: list[int] = []
    oldest: list[int] = []
    for each in asked:
        firsts.append(at + 1)
        at += len(each.lines)
        lasts.append(at)
        for line in each.lines:
            place = counters.setdefault(line.counter, len(counters))
            if place == len(sinces):
                sinces.append(line.since)
                oldest.append(oldest_kept(each, line))
    lines = [line for each in asked for line in each.lines]
    return {
        "own_id": own_id,
        "commits": commits,
        "agent_ids": texts([each.id.agent_id for each in asked]),
        "incarnations": numbers([each.id.incarnation for each in asked]),
        "whats": texts([each.id.what for each in asked]),
        "froms": numbers([each.valid_from for each in asked]),
        "untils": numbers([each.valid_until for each in asked]),
        "firsts": numbers(firsts),
        "lasts": numbers(lasts),
        "budgets": texts([budget for budget, _ in counters]),
        "keys": texts([key for _, key in counters]),
        "sinces": numbers(sinces),
        "oldest": numbers(oldest),
        "places": numbers([counters[line.counter] + 1 for line in lines]),
        "buckets": numbers([line.bucket for line in lines]),
        "amounts": numbers([line.amount for line in lines]),
        "limits": numbers(["NULL" if line.limit is None else line.limit for line in lines]),
        "refs": texts([line.ref for line in lines]),
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


def settlements_of(batches: Sequence[Batch], keys: Sequence[int]) -> dict[str, Any]:
    """The values of `spending_sql.and_settle`, of batches of different agents with these keys."""
    calls = {
        (key, *each.id[1:]): each
        for key, batch in zip(keys, batches, strict=True)
        for each in reversed(batch.settlements)  # the first one of a call counts
    }
    amounts = [
        (nth, budget, amount)
        for nth, each in enumerate(calls.values(), 1)
        for budget, amount in (each.amounts or {}).items()
    ]
    return {
        "call_agents": numbers([call[0] for call in calls]),
        "call_incarnations": numbers([call[1] for call in calls]),
        "whats": texts([call[2] for call in calls]),
        "unknown": numbers([each.unknown for each in calls.values()]),
        "spent_of": numbers([nth for nth, _, _ in amounts]),
        "spent_budgets": texts([budget for _, budget, _ in amounts]),
        "spent": numbers([amount for _, _, amount in amounts]),
    }


def give_back(fetch: Fetch, batches: Sequence[Batch]) -> None:
    """Make what calls give back that are settled."""
    given = [
        (budget, ref, amount)
        for batch in batches
        for each in batch.settlements
        for (budget, ref), amount in each.gives_back.items()
    ]
    if given:
        values = {
            "budgets": [budget for budget, _, _ in given],
            "refs": [ref for _, ref, _ in given],
            "amounts": [amount for _, _, amount in given],
        }
        fetch(sql.GIVE_BACK, values)


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

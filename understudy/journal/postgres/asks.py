"""The rows of what agents ask, in PostgreSQL: for many agents with few statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from understudy.journal.asks import Ask, changes
from understudy.journal.contracts import time_number
from understudy.journal.lists import NEVER
from understudy.journal.postgres import sql

Rows: TypeAlias = list[tuple[Any, ...]]


class Fetch(Protocol):
    """The rows of a statement in the writer's transaction."""

    def __call__(self, query: str, values: Sequence[Any]) -> Rows: ...


def put_asks(fetch: Fetch, asks: Mapping[int, Sequence[Ask]]) -> None:
    """Make these the asks of each agent, by its key: what differs is written.

    The rows of the agents are locked by this transaction, so nobody else changes their asks.
    """
    stored: dict[int, dict[str, tuple[int, int]]] = {key: {} for key in asks}
    for key, id, reminders, escalations in fetch(sql.ASKS, [list(asks)]):
        stored[key][id] = (reminders, escalations)
    gone: Rows = []
    new: Rows = []
    told: Rows = []
    asking: Rows = []
    for key, now in asks.items():
        changed = changes(stored[key], now)
        gone += [(key, id) for id in changed.gone]
        new += [(key, *_columns(ask)) for ask in changed.new]
        told += [(key, ask.id, ask.told.reminders, ask.told.escalations) for ask in changed.told]
        if changed.gone or changed.new:
            asking.append((key, len(now)))
    for query, rows in (
        (sql.DELETE_ANSWERED, gone),
        (sql.INSERT_ASKS, new),
        (sql.UPDATE_ASKS, told),
        (sql.SET_ASKING, asking),
    ):
        if rows:
            fetch(query, [list(column) for column in zip(*rows, strict=True)])


def _columns(ask: Ask) -> tuple[Any, ...]:
    record, expires_at = ask.encode(), ask.expires_at
    return (
        *(ask.id, ask.kind, ask.tool, time_number(ask.asked_at)),
        NEVER if expires_at is None else time_number(expires_at),
        *(ask.told.reminders, ask.told.escalations, record.version, record.payload),
    )

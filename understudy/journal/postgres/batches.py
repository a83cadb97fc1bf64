"""Batches in PostgreSQL: those of different agents are added by one statement, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from understudy.journal.contracts import Batch
from understudy.journal.postgres import sql
from understudy.journal.postgres.sql import Fetch
from understudy.journal.sql_backend import Rows, changed_asks, feed_rows

T = TypeVar("T")

MAX_STATEMENT_BYTES = 32 * 1024 * 1024
"""No further batch is added to a statement that is larger already; the protocol's limit is 1 GB."""


def split(batches: Sequence[Batch]) -> Iterator[list[int]]:
    """The indexes of the batches, one list for each statement.

    No list has two batches of one agent, or is much larger than `MAX_STATEMENT_BYTES`.
    """
    part: list[int] = []
    ids: set[str] = set()
    total = 0
    for index, batch in enumerate(batches):
        if batch.agent_id in ids or total > MAX_STATEMENT_BYTES:
            yield part
            part, ids, total = [], set(), 0
        part.append(index)
        ids.add(batch.agent_id)
        total += sum(len(record.payload) for record in batch.records)
    if part:
        yield part


def _pieces(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in lists that are not much larger than `MAX_STATEMENT_BYTES`."""
    piece: list[T] = []
    total = 0
    for item in items:
        piece.append(item)
        total += size(item)
        if total > MAX_STATEMENT_BYTES:
            yield piece
            piece, total = [], 0
    if piece:
        yield piece


def add_all(
    batches: Mapping[int, Batch], own_id: int, *, stored: Rows, sees_trust: bool
) -> tuple[str, dict[str, Any]]:
    """The statement that adds all batches or none, with what they ask and settle.

    Args:
        batches: those of different agents, by the keys of the agents' rows.
        own_id: the host's.
        stored: the rows of what agents ask, as of `changed_asks`.
        sees_trust: whether it brings the last number of the log of trust.

    Returns:
        The statement and its values.

    """
    changed = changed_asks(batches, stored)
    values = _values_of(batches, dict(changed[-1]), own_id)
    parts = []
    if any(changed):
        gone, new, told, _ = changed
        values |= sql.GONE.values(gone) | sql.TOLD.values(told) | sql.ASKED.values(new)
        parts.append(sql.PUT_ASKS)
    if any(batch.settlements for batch in batches.values()):
        from understudy.journal.postgres import spending, spending_sql  # few stores have budgets

        values |= spending.settlements_of(batches)
        parts.append(spending_sql.SETTLE)
    return sql.extended(sql.ADD, *parts, sees_trust=sees_trust), values


def _values_of(
    batches: Mapping[int, Batch], ask_counts: Mapping[int, int], own_id: int
) -> dict[str, Any]:
    """The values of `sql.ADD`: the batches by column, and their records by column."""
    added = [
        (
            *(key, batch.incarnation, batch.epoch, batch.first_seq - 1, batch.last_seq),
            *(batch.entry.status.value, batch.entry.due_number, batch.entry.status_word),
            *(batch.entry.run_version, batch.status_noted, batch.entry.takeable),
            *(batch.at_number, ask_counts.get(key)),
        )
        for key, batch in batches.items()
    ]
    payloads = [record.payload for batch in batches.values() for record in batch.records]
    sizes = [*map(len, payloads)]
    starts = accumulate(sizes, initial=1)
    records = [
        (place, seq, record.kind, record.version, next(starts), len(record.payload))
        for place, batch in enumerate(batches.values(), 1)
        for seq, record in enumerate(batch.records, batch.first_seq)
    ]
    return {
        "owner": own_id,
        "payloads": b"".join(payloads),
        **sql.BATCHES.values(added),
        **sql.RECORDS.values(records),
    }


def add_beside(fetch: Fetch, batches: Mapping[int, Batch]) -> None:
    """Add the files, the ids of messages and the rows of the feed that batches have.

    Args:
        fetch: makes a statement.
        batches: by the keys of the agents' rows.

    """
    blobs = [
        (key, bytes.fromhex(hash), kept)
        for key, batch in batches.items()
        for hash, kept in (batch.blobs or {}).items()
    ]
    for piece in _pieces(blobs, lambda row: len(row[2])):
        fetch(sql.ADD_BLOBS, sql.BLOBS.values(piece))
    runs = [
        (key, *run) for key, batch in batches.items() for run in (batch.message_runs or {}).items()
    ]
    told = [row for batch in batches.values() for row in feed_rows(batch)]
    for query, columns, rows in (
        (sql.ADD_MESSAGE_RUNS, sql.MESSAGE_RUNS, runs),
        (sql.ADD_TO_FEED, sql.FEED, told),
    ):
        if rows:
            fetch(query, columns.values(rows))

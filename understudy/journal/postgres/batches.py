"""Batches in PostgreSQL: those of different agents are added by one statement, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from understudy.journal.contracts import NO_TIME, Batch, Refusal
from understudy.journal.postgres import feed_sql, sql
from understudy.journal.postgres.asks import put_asks
from understudy.journal.postgres.sql import Fetch
from understudy.journal.sql_backend import feed_rows, refusal

T = TypeVar("T")

MAX_STATEMENT_BYTES = 32 * 1024 * 1024
"""No further batch is added to a statement that is larger already; the protocol's limit is 1 GB."""


def split(batches: Sequence[Batch]) -> list[list[int]]:
    """The indexes of the batches, one list for each statement.

    No list has two batches of one agent, or is much larger than `MAX_STATEMENT_BYTES`.
    """
    parts: list[list[int]] = []
    counts: dict[str, int] = {}
    for index, batch in enumerate(batches):
        nth = counts[batch.agent_id] = counts.get(batch.agent_id, -1) + 1
        if nth == len(parts):
            parts.append([])
        parts[nth].append(index)

    def size(index: int) -> int:
        return sum(len(record.payload) for record in batches[index].records)

    return [piece for part in parts for piece in _pieces(part, size)]


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


def add_batches(
    fetch: Fetch,
    batches: Sequence[Batch],
    keys: Sequence[int],
    own_id: int,
    see_trust: Callable[[int], None] | None = None,
) -> list[Refusal | None]:
    """Add batches of different agents.

    Args:
        fetch: makes a statement in the transaction.
        batches: no two of one agent.
        keys: of the agents' rows, -1 where there is none; in the same order.
        own_id: the host's.
        see_trust: gets the last number of the log of trust, of the same transaction.

    Returns:
        As `PostgresWriter.append_all`.

    """
    values = columns_of(batches, keys, own_id)
    add = sql.ADD
    if any(batch.settlements for batch in batches):
        from understudy.journal.postgres.spending import settlements_of  # few stores have budgets
        from understudy.journal.postgres.spending_sql import and_settle

        add, values = and_settle(add), values | settlements_of(batches, keys)
    accepted: dict[int, int]
    if see_trust is None:
        accepted = dict(fetch(add, values))
    else:
        rows = fetch(sql.and_last_fact(add), values)
        accepted = {place: ask_count for place, ask_count, _ in rows}
        for *_, number in rows[:1]:
            see_trust(number)
    asks = {
        keys[place - 1]: batches[place - 1].entry.asks
        for place, ask_count in accepted.items()
        if ask_count or batches[place - 1].entry.asks
    }
    if asks:
        put_asks(fetch, asks)
    for place in accepted:
        blobs = batches[place - 1].blobs
        if blobs is not None:
            _add_blobs(fetch, keys[place - 1], blobs)
        runs = batches[place - 1].message_runs
        if runs is not None:
            fetch(sql.ADD_MESSAGE_RUNS, [keys[place - 1], [*runs], [*runs.values()]])
    told = [row for place in sorted(accepted) for row in feed_rows(batches[place - 1])]
    if told:
        fetch(feed_sql.ADD_TO_FEED, [list(column) for column in zip(*told, strict=True)])
    if len(accepted) == len(batches):
        return [None] * len(batches)
    rest = [n for n in range(len(batches)) if n + 1 in accepted]
    if rest:
        values = columns_of([batches[n] for n in rest], [keys[n] for n in rest], own_id)
        fetch(sql.ADD_RECORDS, values)
    rows = fetch(sql.REFUSED_AGENTS, [[batch.agent_id for batch in batches]])
    by_id = {row[0]: row for row in rows}
    return [
        None if place in accepted else _refusal(batch, by_id.get(batch.agent_id), own_id=own_id)
        for place, batch in enumerate(batches, 1)
    ]


def _add_blobs(fetch: Fetch, key: int, blobs: Mapping[str, bytes]) -> None:
    for piece in _pieces(blobs.items(), lambda item: len(item[1])):
        hashes = [bytes.fromhex(hash) for hash, _ in piece]
        fetch(sql.ADD_BLOBS, [key, hashes, [payload for _, payload in piece]])


def columns_of(batches: Sequence[Batch], keys: Sequence[int], own_id: int) -> dict[str, Any]:
    """The parameters of `sql.ADD`: the batches by column, and their records by column."""
    rows = [
        (place, seq, record)
        for place, batch in enumerate(batches, 1)
        for seq, record in enumerate(batch.records, batch.first_seq)
    ]
    entries = [batch.entry for batch in batches]
    return {
        "owner": own_id,
        "keys": list(keys),
        "incarnations": [batch.incarnation for batch in batches],
        "epochs": [batch.epoch for batch in batches],
        "befores": [batch.first_seq - 1 for batch in batches],
        "last_seqs": [batch.last_seq for batch in batches],
        "index_statuses": [entry.status.value for entry in entries],
        "dues": [NO_TIME if entry.due_number is None else entry.due_number for entry in entries],
        "statuses": [entry.status_word for entry in entries],
        "run_versions": [entry.run_version for entry in entries],
        "noted": [batch.status_noted for batch in batches],
        "takeables": [entry.takeable for entry in entries],
        "ats": [NO_TIME if batch.at_number is None else batch.at_number for batch in batches],
        "places": [place for place, _, _ in rows],
        "seqs": [seq for _, seq, _ in rows],
        "kinds": [record.kind for _, _, record in rows],
        "versions": [record.version for _, _, record in rows],
        "payloads": [record.payload for _, _, record in rows],
    }


def _refusal(batch: Batch, row: tuple[Any, ...] | None, *, own_id: int) -> Refusal:
    """Why a batch was not added, by the agent's row of `sql.REFUSED_AGENTS`."""
    if row is None:
        return refusal(batch, None)
    _, *there, owner, host = row
    return refusal(batch, there, claimer=host, is_own=owner == own_id)

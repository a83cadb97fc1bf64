"""Batches in PostgreSQL: those of different agents are added by one statement, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from understudy.journal.contracts import Batch, Refusal
from understudy.journal.decided import decided_columns, persons_of
from understudy.journal.postgres import feed_sql, sql
from understudy.journal.postgres.arrays import flags, numbers, texts
from understudy.journal.postgres.asks import columns_of_asks, known_changes, put_asks
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
    asking = {
        keys[place - 1]: (batches[place - 1], ask_count)
        for place, ask_count in accepted.items()
        if ask_count or batches[place - 1].entry.asks
    }
    if asking:
        by_key = {key: batch for key, (batch, _) in asking.items()}
        put_asks(fetch, by_key, {key: count for key, (_, count) in asking.items()})
    add_beside(fetch, {keys[place - 1]: batches[place - 1] for place in sorted(accepted)})
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


def add_beside(fetch: Fetch, batches: Mapping[int, Batch]) -> None:
    """Add what batches have besides records and asks, by the keys of their agents' rows."""
    for key, batch in batches.items():
        if batch.blobs is not None:
            _add_blobs(fetch, key, batch.blobs)
        runs = batch.message_runs
        if runs is not None:
            fetch(sql.ADD_MESSAGE_RUNS, [key, [*runs], [*runs.values()]])
    told = [row for batch in batches.values() for row in feed_rows(batch)]
    if told:
        fetch(feed_sql.ADD_TO_FEED, [list(column) for column in zip(*told, strict=True)])


def at_once(
    batches: Sequence[Batch], keys: Sequence[int], own_id: int, *, sees_trust: bool
) -> tuple[str, dict[str, Any]] | None:
    """The statement that adds all batches or none, with what they ask and decide, and its values.

    None where it is not known what their agents have asked before: then that is to be read.
    """
    if any(batch.asks_before is None for batch in batches):
        return None
    add, values = sql.ADD, columns_of(batches, keys, own_id)
    changed = known_changes(dict(zip(keys, batches, strict=True)))
    if any(changed):
        counts: dict[int, int] = dict(changed[-1])
        values |= columns_of_asks(changed)
        values["ask_counts"] = numbers(counts.get(key, "NULL") for key in keys)
        add = sql.and_put_asks(add)
    if any(batch.decided for batch in batches):
        add, values = sql.and_decide(add), values | columns_of_decided(batches, keys)
    if any(batch.settlements for batch in batches):
        from understudy.journal.postgres.spending import settlements_of  # few stores have budgets
        from understudy.journal.postgres.spending_sql import and_settle

        add, values = and_settle(add), values | settlements_of(batches, keys)
    if sees_trust:
        add = sql.and_last_fact(add)
    return sql.all_or_none(add), values


def columns_of_decided(batches: Sequence[Batch], keys: Sequence[int]) -> dict[str, Any]:
    """The values of `sql.DECIDE`."""
    decided = [
        (key, batch, record)
        for key, batch in zip(keys, batches, strict=True)
        for record in batch.decided
    ]
    rows = [decided_columns(key, batch.incarnation, record) for key, batch, record in decided]
    incarnations, requests, kinds, tools, types, origins, by, logins, since, at, *rest = zip(
        *rows, strict=True
    )
    versions, payloads, agents = rest
    persons = [
        (person, place)
        for place, (*_, record) in enumerate(decided, 1)
        for person in persons_of(record)
    ]
    return {
        "decided_of": numbers(agents),
        "decided_in": numbers(incarnations),
        "requests": texts(requests),
        "decided_kinds": texts(kinds),
        "decided_tools": texts(tools),
        "types": texts(types),
        "origins": texts(origins),
        "decided_by": texts(by),
        "logins": list(logins),
        "since": numbers(since),
        "decided_at": numbers(at),
        "decided_versions": numbers(versions),
        "decided": list(payloads),
        "persons": texts(person for person, _ in persons),
        "persons_of": numbers(place for _, place in persons),
    }


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
    sizes = [len(record.payload) for _, _, record in rows]
    return {
        "owner": own_id,
        "keys": numbers(keys),
        "incarnations": numbers(batch.incarnation for batch in batches),
        "epochs": numbers(batch.epoch for batch in batches),
        "befores": numbers(batch.first_seq - 1 for batch in batches),
        "last_seqs": numbers(batch.last_seq for batch in batches),
        "index_statuses": texts(entry.status.value for entry in entries),
        "dues": numbers("NULL" if entry.due is None else entry.due_number for entry in entries),
        "statuses": texts(entry.status_word for entry in entries),
        "run_versions": texts(entry.run_version for entry in entries),
        "noted": flags(batch.status_noted for batch in batches),
        "takeables": flags(entry.takeable for entry in entries),
        "ats": numbers("NULL" if batch.at is None else batch.at_number for batch in batches),
        "places": numbers(place for place, _, _ in rows),
        "seqs": numbers(seq for _, seq, _ in rows),
        "kinds": texts(record.kind for _, _, record in rows),
        "versions": numbers(record.version for _, _, record in rows),
        "starts": numbers(accumulate(sizes[:-1], initial=1)) if sizes else "{}",
        "sizes": numbers(sizes),
        "payloads": b"".join(record.payload for _, _, record in rows),
    }


def _refusal(batch: Batch, row: tuple[Any, ...] | None, *, own_id: int) -> Refusal:
    """Why a batch was not added, by the agent's row of `sql.REFUSED_AGENTS`."""
    if row is None:
        return refusal(batch, None)
    _, *there, owner, host = row
    return refusal(batch, there, claimer=host, is_own=owner == own_id)

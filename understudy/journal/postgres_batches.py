"""Batches as the columns that one statement adds, and why one of them was not added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from understudy.errors import Fenced, StoreConflict
from understudy.journal.base import Batch

__all__ = ["Refusal", "columns", "refusal", "waves"]

MAX_STATEMENT_BYTES = 32 * 1024 * 1024
"""A statement that is larger already is given no further batch; the protocol's limit is 1 GB."""

Refusal: TypeAlias = Fenced | StoreConflict


def waves(batches: Sequence[Batch]) -> list[list[int]]:
    """The places of the batches, so divided that no agent is twice in one part, nor a part huge."""
    parts: list[list[int]] = []
    times: dict[str, int] = {}
    for place, batch in enumerate(batches):
        nth = times[batch.agent_id] = times.get(batch.agent_id, -1) + 1
        if nth == len(parts):
            parts.append([])
        parts[nth].append(place)
    return [piece for part in parts for piece in _pieces(batches, part)]


def _pieces(batches: Sequence[Batch], places: Sequence[int]) -> Iterator[list[int]]:
    piece: list[int] = []
    size = 0
    for place in places:
        piece.append(place)
        size += sum(len(record.payload) for record in batches[place].records)
        if size > MAX_STATEMENT_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def columns(batches: Sequence[Batch], keys: Sequence[int], owner: int) -> dict[str, Any]:
    """What `postgres_sql.ADD` is given: the batches by column, and their records by column."""
    rows = [
        (place, seq, record)
        for place, batch in enumerate(batches, 1)
        for seq, record in enumerate(batch.records, batch.first_seq)
    ]
    return {
        "owner": owner,
        "keys": list(keys),
        "incarnations": [batch.incarnation for batch in batches],
        "epochs": [batch.epoch for batch in batches],
        "befores": [batch.first_seq - 1 for batch in batches],
        "last_seqs": [batch.first_seq - 1 + len(batch.records) for batch in batches],
        "standings": [batch.standing.value for batch in batches],
        "places": [place for place, _, _ in rows],
        "seqs": [seq for _, seq, _ in rows],
        "kinds": [record.kind for _, _, record in rows],
        "versions": [record.version for _, _, record in rows],
        "payloads": [record.payload for _, _, record in rows],
    }


def refusal(batch: Batch, row: tuple[Any, ...] | None, *, owner: int) -> Refusal:
    """Why a batch was not added, by the agent's row of `postgres_sql.LOOK_AGAIN`."""
    if row is None:
        return Fenced(agent_id=batch.agent_id, why="the store has no such agent")
    _, incarnation, epoch, last_seq, deleted, owned_by, host = row
    if deleted:
        return Fenced(agent_id=batch.agent_id, why="it was deleted")
    if incarnation != batch.incarnation:
        why = f"it is in its incarnation {incarnation} by now, not {batch.incarnation}"
        return Fenced(agent_id=batch.agent_id, why=why)
    if epoch != batch.epoch:
        by = f"{host!r} has" if host is not None else "it is"
        return Fenced(
            agent_id=batch.agent_id, why=f"{by} claimed in epoch {epoch}, after {batch.epoch}"
        )
    if owned_by != owner:
        return Fenced(agent_id=batch.agent_id, why="this runtime has given it up, or lost it")
    return StoreConflict(agent_id=batch.agent_id, expected=last_seq + 1, got=batch.first_seq)

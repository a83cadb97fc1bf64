"""What the reader's thread reads from PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from understudy.errors import StoreDamaged
from understudy.journal.checkpoints import Checkpoint, Segment
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import (
    IndexStatus,
    StoredAgent,
    StoredRecords,
    due_number,
    listed_agent,
    stored_agent,
)
from understudy.journal.postgres import sql
from understudy.journal.postgres.writer import Rows, is_storable_id

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection, PsycopgConnection


class PostgresReader:
    """Reads on a connection that reconnects by itself: to read twice does no harm."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        if not is_storable_id(agent_id):
            return None

        def read(connection: PsycopgConnection) -> tuple[Rows, Rows]:
            with _one_moment(connection):
                agent = connection.execute(sql.AGENT, [agent_id])
                records = connection.execute(sql.RECORDS, [agent_id, after], binary=True)
            return agent.fetchall(), records.fetchall()

        agents, rows = self._connection.run_repeatable(read)
        return _stored(agents, after, rows)

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        if not is_storable_id(agent_id):
            return None

        def read(connection: PsycopgConnection) -> tuple[Rows, Rows, Rows, Rows]:
            with _one_moment(connection):
                agent = connection.execute(sql.AGENT, [agent_id])
                head = connection.execute(sql.CHECKPOINT, [agent_id], binary=True)
                segments = connection.execute(sql.SEGMENTS, [agent_id], binary=True)
                records = connection.execute(sql.RECORDS_BEHIND, [agent_id, agent_id], binary=True)
            return agent.fetchall(), head.fetchall(), segments.fetchall(), records.fetchall()

        agents, heads, segments, rows = self._connection.run_repeatable(read)
        checkpoint: Checkpoint | None = None
        for seq, head, crc in heads:
            parts = (
                Segment(number=number, messages=messages, payload=payload, crc=crc)
                for number, messages, payload, crc in segments
            )
            checkpoint = Checkpoint(seq=seq, head=head, crc=crc, segments=tuple(parts))
        stored = _stored(agents, checkpoint.seq if checkpoint is not None else 0, rows)
        return None if stored is None else (checkpoint, stored)

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        statuses = None if index_statuses is None else [status.value for status in index_statuses]
        return self._listed(sql.AGENTS, [after_id, statuses, statuses, limit])

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        first = (-1, "") if after is None else (due_number(after[0]), after[1])
        return self._listed(sql.DUE, [due_number(until), *first, limit])

    def unindexed(self, after_id: str, limit: int) -> list[StoredAgent]:
        return self._listed(sql.UNINDEXED, [after_id, limit])

    def _listed(self, query: str, values: Sequence[Any]) -> list[StoredAgent]:
        rows = self._connection.run_repeatable(
            lambda connection: connection.execute(query, values).fetchall()
        )
        return [listed_agent(row) for row in rows]

    def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        rows = self._connection.run_repeatable(
            lambda connection: connection.execute(sql.LOST_ATTEMPTS, [agent_id, run_id]).fetchall()
        )
        return frozenset(number for (numbers,) in rows for number in numbers)


@contextmanager
def _one_moment(connection: PsycopgConnection) -> Iterator[None]:
    """All queries of the block are sent at once, and see the same moment."""
    with connection.pipeline():
        # Race: this against a compaction (test_what_is_read_is_of_one_moment).
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield
        connection.execute("COMMIT")


def _stored(agents: Rows, after: int, records: Rows) -> StoredRecords | None:
    """An agent with its records above a number; None if there is no such agent."""
    if not agents:
        return None
    agent = stored_agent(agents[0])
    first = max(after, agent.floor) + 1
    if len(records) != max(0, agent.last_seq - first + 1):
        raise StoreDamaged(
            what=f"agent {agent.agent_id!r}",
            cause=f"of the records {first} to {agent.last_seq} only {len(records)} exist",
        )
    return StoredRecords(
        agent=agent, first_seq=first, records=tuple(EncodedRecord(*row) for row in records)
    )

"""What the reader's thread asks of PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from understudy.errors import StoreDamaged
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import IndexStatus, StoredAgent, StoredRecords
from understudy.journal.postgres import sql
from understudy.journal.postgres.writer import storable

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import Connection, Line

__all__ = ["PostgresReader"]

Rows = list[tuple[Any, ...]]


class PostgresReader:
    """A connection that is made anew by itself: to read twice does no harm."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        if not storable(agent_id):
            return None

        def read(line: Connection) -> tuple[Rows, Rows]:
            with line.pipeline():  # one moment's sight of both tables
                line.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                agent = line.execute(sql.STORED, [agent_id])
                records = line.execute(sql.LOAD_RECORDS, [agent_id, after], binary=True)
                line.execute("COMMIT")
            return agent.fetchall(), records.fetchall()

        agents, rows = self._line.repeatable(read)
        if not agents:
            return None
        agent = _stored(agents[0])
        first = max(after, agent.floor) + 1
        if len(rows) != max(0, agent.last_seq - first + 1):
            raise StoreDamaged(
                what=f"agent {agent_id!r}",
                cause=f"{len(rows)} records stand where {first} to {agent.last_seq} should",
            )
        return StoredRecords(
            agent=agent, first_seq=first, records=tuple(EncodedRecord(*row) for row in rows)
        )

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        wanted = (
            None
            if index_statuses is None
            else [index_status.value for index_status in index_statuses]
        )
        given = [after_id, wanted, wanted, limit]
        rows = self._line.repeatable(lambda line: line.execute(sql.AGENTS, given).fetchall())
        return [_stored(row) for row in rows]


def _stored(row: tuple[Any, ...]) -> StoredAgent:
    agent_id, agent, incarnation, epoch, last_seq, floor, index_status, host = row
    return StoredAgent(
        agent_id=agent_id,
        agent=agent,
        incarnation=incarnation,
        epoch=epoch,
        last_seq=last_seq,
        floor=floor,
        index_status=IndexStatus(index_status),
        host=host,
    )

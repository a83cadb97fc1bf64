"""What the reader's thread reads from PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from understudy.errors import StoreDamaged
from understudy.journal.asks import StoredAsk
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import (
    IndexStatus,
    StoredAgent,
    StoredRecords,
    listed_agent,
    stored_agent,
    time_number,
)
from understudy.journal.lists import AgentKey, AgentQuery, AskKey, AskQuery, ids_from, stored_ask
from understudy.journal.postgres import sql
from understudy.journal.postgres.asks import Rows
from understudy.journal.postgres.writer import is_storable_id

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
            with connection.pipeline():
                # Race: this against a compaction. Both queries see the same moment
                # (test_what_is_read_is_of_one_moment).
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                agent = connection.execute(sql.AGENT, [agent_id])
                records = connection.execute(sql.RECORDS, [agent_id, after], binary=True)
                connection.execute("COMMIT")
            return agent.fetchall(), records.fetchall()

        agents, rows = self._connection.run_repeatable(read)
        if not agents:
            return None
        agent = stored_agent(agents[0])
        first = max(after, agent.floor) + 1
        if len(rows) != max(0, agent.last_seq - first + 1):
            raise StoreDamaged(
                what=f"agent {agent_id!r}",
                cause=f"of the records {first} to {agent.last_seq} only {len(rows)} exist",
            )
        return StoredRecords(
            agent=agent, first_seq=first, records=tuple(EncodedRecord(*row) for row in rows)
        )

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        statuses = None if index_statuses is None else [status.value for status in index_statuses]
        return self._listed(sql.AGENTS, [after_id, statuses, statuses, limit])

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        first = (-1, "") if after is None else (time_number(after[0]), after[1])
        return self._listed(sql.DUE, [time_number(until), *first, limit])

    def unindexed(self, after_id: str, limit: int) -> list[StoredAgent]:
        return self._listed(sql.UNINDEXED, [after_id, limit])

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        ids = ids_from(query.prefix)
        where, values = " AND a.agent_id >= %s", [ids.first]
        for condition, value in (
            (" AND a.agent_id < %s", ids.end),
            (" AND a.status = %s", query.status),
            (" AND a.agent = %s", query.agent),
        ):
            if value is not None:
                where += condition
                values.append(value)
        order, first = "a.agent_id", list[Any]()
        if query.updated_since is not None:
            order, first = (
                "a.status_at, a.agent_id",
                [*(after or (time_number(query.updated_since), ""))],
            )
            where += " AND a.status_at IS NOT NULL AND (a.status_at, a.agent_id) > (%s, %s)"
        elif after is not None:
            first = [after[1]]
            where += " AND a.agent_id > %s"
        text = f"{sql.LISTED_AGENTS}{where} ORDER BY {order} LIMIT %s"
        return self._listed(text, [*values, *first, limit])

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        where, values = "", list[Any]()
        for column, value in (("tool", query.tool), ("name", query.agent)):
            if value is not None:
                where += f" AND k.{column} = %s"
                values.append(value)
        by = "asked_at" if query.order == "oldest" else "expires_at"
        where += f" AND (k.{by}, k.no) > (%s, %s) ORDER BY k.{by}, k.no LIMIT %s"
        values += [*(after or (-1, -1)), limit]
        return [stored_ask(row) for row in self._rows(sql.LISTED_ASKS + where, values)]

    def count_agents(self) -> dict[str, int]:
        return dict(self._rows(sql.COUNTED_AGENTS, []))

    def _listed(self, query: str, values: Sequence[Any]) -> list[StoredAgent]:
        return [listed_agent(row) for row in self._rows(query, values)]

    def _rows(self, query: str, values: Sequence[Any]) -> Rows:
        return self._connection.run_repeatable(
            lambda connection: connection.execute(query, values, binary=True).fetchall()
        )

    def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        rows = self._connection.run_repeatable(
            lambda connection: connection.execute(sql.LOST_ATTEMPTS, [agent_id, run_id]).fetchall()
        )
        return frozenset(number for (numbers,) in rows for number in numbers)

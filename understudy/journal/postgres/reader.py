"""The reading half of the PostgreSQL backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from understudy.errors import StoreUnavailable
from understudy.journal.contracts import Owned, StoredRecords
from understudy.journal.postgres import feed_sql, sql
from understudy.journal.postgres.sql import Fetch, fetch_by, is_storable_id
from understudy.journal.retirement import OLD_TOMBSTONES, RAISE_FLOOR
from understudy.journal.shared import SharedBackend
from understudy.journal.sql_backend import Query, Rows, Values, stored_records
from understudy.journal.sql_notes import SqlNotes

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection, PsycopgConnection
    from understudy.journal.postgres.search import PostgresSearch
    from understudy.journal.search import Work


T = TypeVar("T")


class PostgresReader(SqlNotes, SharedBackend):
    """Reads on a connection that reconnects by itself: to read twice does no harm.

    Args:
        connections: of the writer, the reader and the heartbeat.
        host: the name of this runtime.

    """

    agents_where: str = sql.AGENTS
    records_where: str = (
        "records r JOIN agents a ON a.key = r.agent"
        " WHERE {of} AND NOT a.deleted AND r.seq > {after}"
    )
    records_order: str = "r.seq"
    has_bytes: str = "position(%s::bytea IN r.payload) > 0"
    owned_where: str = f"{SqlNotes.owned_where} AND a.owner = %(owner)s"
    # It waits for a takeover under way, as an append does, and finds the new epoch.
    locks: str = " FOR NO KEY UPDATE"
    row_locks: str = " FOR UPDATE"
    row_locks_unless_held: str = " FOR UPDATE OF a SKIP LOCKED"
    old_tombstones: str = OLD_TOMBSTONES.format(
        more=" OR EXISTS (SELECT 1 FROM inbox i WHERE i.agent = a.key AND i.reply IS NULL)"
    )
    raise_floor: str = RAISE_FLOOR.format(greatest="greatest")
    settled_agent: str = sql.SETTLED_AGENT
    delete_records: str = "DELETE FROM records WHERE agent = %(key)s AND seq < %(below)s"
    feed_xid: str = "xid"
    feed_state: str = feed_sql.FEED_STATE
    feed_rows: str = feed_sql.FEED_ROWS
    feed_row: str = "FROM feed WHERE xid = %(xid)s AND no = %(no)s"
    last_feed_row: str = feed_sql.LAST_ROW

    def __init__(self, connections: Sequence[PostgresConnection], host: str) -> None:
        self._writing: PostgresConnection
        self._reading: PostgresConnection
        self._heartbeat: PostgresConnection
        self._writing, self._reading, self._heartbeat = connections
        self._host = host
        self._host_id: int | None = None

    @property
    def host(self) -> str:
        return self._host

    @property
    def host_id(self) -> int | None:
        return self._host_id

    @property
    def _own_id(self) -> int:
        """As `host_id`, of a host that is open."""
        if self._host_id is None:
            raise StoreUnavailable(cause="the store is not open")
        return self._host_id

    def _can_keep(self, text: str) -> bool:
        return is_storable_id(text)

    def _claim_values(self, owned: Owned) -> dict[str, Any]:
        return {**super()._claim_values(owned), "owner": self._own_id}

    def _look(
        self,
        make: Callable[..., T],
        *queries: Query,
        what: str = "",
        is_list: bool = False,
        in_order: bool = False,
    ) -> T:
        def read(connection: PsycopgConnection) -> list[Rows]:
            if len(queries) == 1 and not in_order:
                ((text, values),) = queries
                return [connection.execute(text, values, binary=True).fetchall()]
            with connection.pipeline():  # all of it is sent at once
                # Race: this against a compaction (test_what_is_read_is_of_one_moment).
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if in_order:
                    connection.execute(sql.FIND_IN_ORDER)
                found = [connection.execute(*query, binary=True) for query in queries]
                connection.execute("COMMIT")
            return [cursor.fetchall() for cursor in found]

        return make(*self._reading.run_repeatable(read))

    @cached_property
    def _search(self) -> PostgresSearch:
        from understudy.journal.postgres.search import PostgresSearch  # few stores have one

        return PostgresSearch(self)

    def turn_search(self, on: bool) -> None:
        from understudy.journal.postgres.search import while_nobody_writes

        while_nobody_writes(self._reading, partial(self._search.turn, on=on))

    def index(self, work: Work) -> bool:
        from understudy.journal.postgres.search import begin_slice

        def put(connection: PsycopgConnection) -> bool:
            with connection.transaction():
                if not begin_slice(connection):
                    return False
                self._search.put(partial(fetch_by, connection), work)
                return True

        return self._reading.run_repeatable(put)

    def _read(self, query: str, values: Values) -> Rows:
        """The rows of a statement that may be repeated."""
        return self._look(Rows, (query, values))

    def _note(self, query: str, values: Values = ()) -> Rows:
        # Never in a transaction of records: what people write holds up no commit.
        return self._reading.run_repeatable(partial(fetch_by, query=query, values=values))

    def _beat(self, query: str, values: Values = ()) -> Rows:
        """The rows of a statement on the heartbeat's connection, which may be repeated."""
        return self._heartbeat.run_repeatable(partial(fetch_by, query=query, values=values))

    def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        rows = self._read(sql.LOST_ATTEMPTS, [agent_id, run_id])
        return frozenset(number for (numbers,) in rows for number in numbers)

    def load_behind(self, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
        return load_behind(self._read, agent_id, after)


def load_behind(fetch: Fetch, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
    """As `SharedBackend.load_behind`, by either connection."""
    rows = fetch(sql.BEHIND, [after, agent_id])
    if not rows:
        return None
    *agent, checkpoint = rows[0][:-3]
    records = [row[-3:] for row in rows if row[-1] is not None]
    stored = stored_records([tuple(agent)], records, after=after)
    return None if stored is None else (checkpoint, stored)

"""A store in PostgreSQL, shared by many hosts: each owns some of the agents while its lease lasts.

Needs `pip install 'understudy[postgres]'`. This module can be imported without it.

What a commit survives:

- `durability="full"` (`synchronous_commit = on`): a crash of the server's machine; with a
  synchronous standby also the loss of that machine.
- `"normal"` (`local`): a crash of the server's machine. A standby that takes over may lack the last
  commits.
- `"off"` (`off`): a crash of the runtime. A crash of the server may lose the commits of its last
  0.6 seconds or so: always the newest ones, never one in between.

Claims and leases are always at least `local`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from understudy._base.clock import suspend_aware_seconds, wall_seconds
from understudy.errors import Fenced, StoreError, StoreUnavailable, UsageError
from understudy.journal.contracts import (
    LEASE,
    Durability,
    check_durability,
    check_lease,
)
from understudy.journal.kept import ALL_KEPT, Kept
from understudy.journal.postgres import sql
from understudy.journal.postgres.sharing import lease
from understudy.journal.postgres.writer import PostgresWriter
from understudy.journal.shared import (
    Hint,
    Notified,
)
from understudy.journal.sql_backend import Rows, Values
from understudy.state.trust_log import TrustFact

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PsycopgConnection
    from understudy.journal.postgres.sharing.notify import NotifyListener
    from understudy.journal.spending import CounterSums, OpenSpending, Reservation, Reserved

_log = logging.getLogger(__name__)

_COMMITS = {"full": "on", "normal": "local", "off": "off"}
PROMPT = 1.0
"""Seconds in which the server must answer, for its time to be compared with ours once more."""
DRIFT = 1e-4
"""Seconds by which two clocks go apart in a second, at most; but where one of them is set."""


class PostgresBackend(PostgresWriter):
    """A `Backend` with connections of its writer, its reader, its heartbeat and its listener.

    Those but the writer reconnect by themselves; the writer does so in `reconnect`. A
    pooler in between must pool sessions. `lease` and `patience` are in seconds; see `__init__`.
    """

    keeps: Collection[Kept] = ALL_KEPT
    keeps_feed: bool = False
    """Whether the feed is on, as of the last heartbeat."""

    def __init__(
        self,
        url: str,
        *,
        host: str,
        durability: Durability = "full",
        lease: float = LEASE,
        schema: str = "understudy",
        patience: float = 30.0,
    ) -> None:
        """Nothing is connected yet: see `open`.

        Args:
            url: `postgresql://user:password@server:5432/database`, with any parameter of libpq.
            host: the name of this runtime, which other ones see as the owner of its agents.
            durability: what a commit survives; see above.
            lease: seconds for which a host owns its agents after each `renew`.
            schema: of the store's tables. A missing one is created.
            patience: seconds that the server may take for a statement of the writer (four times as
                many for one of the reader), before it counts as unavailable.

        Raises:
            UsageError: if an argument is not valid, or psycopg is not installed.

        """
        check_durability(durability)
        check_lease(lease)
        if not 0.1 <= patience <= 3600:
            raise UsageError(f"`patience` must be 0.1 to 3,600 seconds, got {patience!r}")
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
            raise UsageError(
                "`schema` must be 1 to 63 lower-case letters, digits and '_', and not begin with a "
                f"digit or 'pg_', got {schema!r}"
            )
        try:
            from understudy.journal.postgres.connection import Watchdog, make_connections
        except ImportError as error:
            raise UsageError(
                f"A PostgreSQL store needs psycopg ({error}): pip install 'understudy[postgres]'"
            ) from error
        self._durable = durability != "off"
        self._durability = durability
        self._trust_at_beat = 0
        """The last number of the log of trust at the last heartbeat."""
        self._lease = lease
        self._schema = schema
        self._fenced = False
        self._server_ahead: float | None = None
        """Seconds by which its clock is ahead of `suspend_aware_seconds`; None = not known."""
        self._doubt = 0.0
        """Seconds by which `_server_ahead` may be wrong, as of `_measured`."""
        self._measured = 0.0
        *made, self._listener_connection, self._spender = make_connections(
            url,
            host=host,
            schema=schema,
            commit=_COMMITS[durability],
            lease=lease,
            patience=patience,
        )
        self._connections = made
        super().__init__(self._connections, host, keep_claims=not self._durable)
        self._listener: NotifyListener | None = None
        self._watchdog = Watchdog(
            [*self._connections, self._listener_connection, self._spender],
            min(1.0, lease / 4, patience / 4),
        )

    def listen(self, notified: Notified | None) -> None:
        from understudy.journal.postgres.sharing.notify import NotifyListener

        self._listener = (
            None if notified is None else NotifyListener(self._listener_connection, notified)
        )

    # ------------------------------------------------------------ opening and closing

    def open(self) -> None:
        """Connect, create missing tables, and become a host.

        If it is open already, it is closed first. Then this is a new host, which owns nothing.

        Raises:
            StoreUnavailable: if the server cannot be reached, or is not ready.
            StoreBroken: if it refuses; the error says what to do.
            SchemaVersionError: if the store has another format.

        """
        from understudy.journal.postgres.connection import check_sessions
        from understudy.journal.postgres.schema import check_server, prepare_schema

        self.close()
        self._trust_judged = 0  # whoever opens it has read nothing yet
        self._watchdog.start()
        try:
            writer, reader, heartbeat = self._connections
            for each in self._connections:
                each.open()
            self._spender.open()  # it connects at the first reservation
            writer.connect_only()
            reader.connect_only()
            # Before anything is set: it could reach others who share a session
            # (test_a_pooler_of_transactions_is_refused_before_anything_is_set).
            check_sessions(writer, reader)
            for each in (writer, reader):
                each.set_up()
            heartbeat.connect()
            if self._listener is not None:
                self._listener.start()
            check_server(writer, durable=self._durable)
            prepare_schema(writer, self._schema)
            with heartbeat.use() as connection:
                connection.execute(lease.DELETE_OLD_HOSTS)
            self._become_host()
        except BaseException:
            self.close()
            raise

    def open_to_read(self) -> None:
        from understudy.journal.postgres.connection import check_sessions
        from understudy.journal.postgres.schema import check_schema

        self.close()
        self._watchdog.start()
        try:
            _, reader, heartbeat = self._connections
            reader.open()
            reader.connect_only()
            if reader.is_pooled:
                heartbeat.open()
                heartbeat.connect_only()
                check_sessions(reader, heartbeat)
                heartbeat.close()
            reader.set_up()
            check_schema(reader, self._schema)
            reader.run_repeatable(self._look_at_clock)
        except BaseException:
            self.close()
            raise

    def _become_host(self) -> float:
        """Insert a new host, the owner of later claims. Returns the seconds of its lease."""
        channel = self._listener.channel if self._listener is not None else None
        values = [self._host, channel, self._lease, self._trust_judged, *self._introduction()]
        host_id, seconds = self._measured_beat(lease.INSERT_HOST, values)[0]
        self._heartbeat.run_repeatable(self._look_at_clock)  # it is faster: nothing is committed
        self._host_id = host_id
        self._fenced = False
        return seconds

    def _measured_beat(self, query: str, values: Values) -> list[tuple[int, float]]:
        """The id of this host and the seconds of its lease, by a statement; none if it is lost."""
        before = suspend_aware_seconds()
        found = []
        for host_id, seconds, there, keeps_feed, number in self._beat(query, values):
            self.keeps_feed, self._trust_at_beat = keeps_feed, number
            self._measure(before, there)
            found.append((host_id, seconds))
        return found

    def close(self) -> None:
        """Release what this host owns, and disconnect. Raises nothing.

        If the server cannot be reached, other hosts get the agents when the lease ends.
        """
        self.rollback()
        if self._listener is not None:
            self._listener.stop()
        host_id, self._host_id = self._host_id, None
        if host_id is not None:
            try:
                values = {"id": host_id, "told": str(Hint("left"))}
                self._heartbeat.run_repeatable(partial(_leave, values=values))
            except StoreError as error:
                _log.warning("Host %r did not release its agents: %s", self._host, error)
        self._close_writer()
        for each in (*self._connections, self._spender):
            each.close()
        self._watchdog.stop()

    def renew(self) -> float:
        """Renew the lease of this host.

        Returns:
            Seconds until it ends, from when the server renewed it: count them from before the call.

        Raises:
            Fenced: if it had ended, and another host has taken over an agent. The next call makes
                this a new host, which owns nothing yet.

        """
        host_id = self._host_id
        if host_id is None:
            raise StoreUnavailable(cause="the store is not open")
        if self._fenced:
            return self._become_host()
        values = [self._lease, self._trust_judged, self._has, host_id]
        rows = self._measured_beat(lease.RENEW, values)
        if not rows:
            self._fenced = True
            raise Fenced(
                agent_id="*",
                why=f"the lease of {self._host!r} ended ({self._lease:g} s without a renewal), "
                "and another runtime took over since",
            )
        return rows[0][1]

    @property
    def trust_seen(self) -> int:
        # Two numbers: each is written by one thread, so none takes the place of a higher one.
        return max(self._trust_at_beat, self._trust_at_commit)

    def require_trust(self, fact: TrustFact, name: str) -> bool:
        # Who is suspended in the middle of a transaction keeps its agents locked.
        own_id = self._host_id
        self._reading.run_repeatable(
            lambda connection: connection.execute(lease.END_SESSIONS, [own_id])
        )
        return self._put_fact(partial(self._add_fact, name), fact)

    def add_trust(self, fact: TrustFact) -> bool:
        return self._put_fact(partial(self._add_fact, None), fact)

    def _add_fact(self, required: str | None, values: dict[str, Any]) -> bool:
        commit = "on" if self._durability == "full" else "local"
        more = {"required": required, "commit": commit, "own_id": self._host_id}
        return bool(self._note(sql.ADD_FACT, {**values, **more}))

    def reserve_all(self, asked: Sequence[Reservation]) -> list[Reserved | Fenced | None]:
        from understudy.journal.postgres import spending

        lasts = any(each.must_last for each in asked)
        commits = _COMMITS[self._durability] if lasts else "off"
        values = spending.columns_of(asked, self._own_id, commits)

        def reserve(connection: PsycopgConnection) -> Rows:
            return spending.reserve(connection, values)

        return spending.answers_of(asked, self._spender.run_repeatable(reserve))

    def open_spending(self, agent_id: str) -> list[OpenSpending]:
        from understudy.journal.postgres import spending, spending_sql

        if not self._can_keep(agent_id):
            return []
        # Race: a host that was killed, or has lost the agent, may have begun to reserve while the
        # agent was its own. The server ends what it has begun, after the claim of the next owner
        # (test_what_the_owner_of_before_has_begun_to_reserve_is_seen_by_the_next_one).
        self._read(spending_sql.AWAIT_RESERVATIONS, [agent_id])
        return spending.open_of(agent_id, self._read(spending_sql.OPEN, [agent_id]))

    def counters(self, budgets: Collection[str] | None) -> list[CounterSums]:
        from understudy.journal.postgres import spending, spending_sql

        # Who looks beside the hosts changes nothing.
        if self.host_id is not None and self._read(spending_sql.HAS_GIVE_BACKS, ()):
            self._read(spending_sql.FOLD_GIVE_BACKS, ())
        return spending.counters_of(self._read(spending_sql.COUNTERS, spending.wanted(budgets)))

    def size(self) -> int:
        ((size,),) = self._read(sql.SIZE, [self._schema])
        return int(size)

    def vacuum(self, *, whole: bool) -> None:
        with self._reading.alone() as server:
            for (statement,) in server.execute(sql.VACUUMS, [self._schema]).fetchall():
                server.execute(statement)

    @property
    def time_offset(self) -> float:
        # The machine's clock may be set between two heartbeats: what is measured is by a clock that
        # nobody sets (test_a_machine_whose_clock_is_set_is_right_before_the_next_heartbeat).
        if self._server_ahead is None:
            return 0.0
        return self._server_ahead + suspend_aware_seconds() - wall_seconds()

    def _look_at_clock(self, connection: PsycopgConnection) -> None:
        before = suspend_aware_seconds()
        ((there,),) = connection.execute(lease.TIME).fetchall()
        self._measure(before, there)

    def _measure(self, before: float, there: float) -> None:
        """Compare the clocks, by an answer of the server to a question of the time `before`."""
        after = suspend_aware_seconds()
        # When the server looked, a slow answer does not tell. The first one is better than none:
        # a clock may be wrong by hours
        # (test_a_host_whose_clock_is_wrong_is_right_from_the_first_answer_of_a_slow_server).
        ahead, doubt = there - (before + after) / 2, (after - before) / 2
        if self._server_ahead is not None:
            if after - before >= PROMPT:
                return
            # A slower answer that agrees tells less: what was sent first is told by these clocks
            # (test_the_time_of_a_server_is_that_of_its_fastest_answers).
            known = self._doubt + DRIFT * (after - self._measured)
            if doubt > known and abs(ahead - self._server_ahead) <= doubt + known:
                return
        ours = wall_seconds() - suspend_aware_seconds()
        if abs(ours - ahead) <= doubt:
            # A clock that may be right is left alone: else hosts whose clocks agree would differ by
            # how long each answer took, and who has seen a request would seem not to have
            # (test_a_host_whose_clock_is_right_keeps_it_however_late_the_server_answers).
            ahead = ours
        self._server_ahead, self._doubt, self._measured = ahead, doubt, after


def _leave(connection: PsycopgConnection, values: dict[str, Any]) -> None:
    """Remove a host's row, and tell the others if it leaves them something.

    In one transaction: of a host that is killed in between the row stays, and its lease ends
    (test_a_host_that_cannot_say_that_it_leaves_keeps_its_row). Sent at once: the row of one that
    is suspended in between would stay locked.
    """
    with connection.pipeline():
        connection.execute("BEGIN")
        connection.execute(lease.DELETE_HOST, values)
        connection.execute(lease.TELL_LEFT, values)
        connection.execute("COMMIT")

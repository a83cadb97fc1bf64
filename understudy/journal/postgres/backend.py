"""A store in PostgreSQL, which many hosts share: each owns some of the agents, for as long as its
lease lasts.

Needs `pip install 'understudy[postgres]'`. This module can be imported without it.

What a commit survives:

- `durability="full"` (`synchronous_commit = on`): a crash of the server's machine; and the loss of
  that machine, where a synchronous standby is set up.
- `"normal"` (`local`): a crash of the server's machine. A standby that takes over may lack the last
  commits.
- `"off"` (`off`): a crash of the runtime. A crash of the server may lose the commits of its last
  0.6 seconds or so: always the newest ones, never one in between.

Claims and leases are never kept weaker than `local`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from understudy.errors import Fenced, StoreError, StoreUnavailable, UsageError
from understudy.journal.contracts import Batch, IndexStatus, Owned, StoredAgent, StoredRecords
from understudy.journal.postgres import sql
from understudy.journal.postgres.connection import Watch
from understudy.journal.postgres.reader import PostgresReader
from understudy.journal.postgres.writer import PostgresWriter

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import Line
    from understudy.journal.postgres.writer import Refusal

__all__ = ["Durability", "PostgresBackend"]

Durability = Literal["full", "normal", "off"]
_log = logging.getLogger(__name__)


class PostgresBackend:
    """A `Backend` of three connections: the writer's, the reader's and the heartbeat's.

    The reader's and the heartbeat's connect anew by themselves when they were lost; the writer's
    does it when it is told to (`reconnect`). Where a pooler stands between, it must pool sessions.
    """

    def __init__(
        self,
        url: str,
        *,
        host: str,
        durability: Durability = "full",
        lease: float = 10.0,
        schema: str = "understudy",
        patience: float = 30.0,
    ) -> None:
        """Nothing is connected yet: see `open`.

        Args:
            url: `postgresql://user:password@server:5432/database`, with any parameter of libpq.
            host: how other runtimes are told of this one.
            durability: what a commit survives; see the table above.
            lease: seconds for which a host owns its agents after each `renew`.
            schema: of the store's tables; it is made if there is none.
            patience: seconds that the server may take for a statement of the writer (four times as
                many for one of the reader), before it counts as unavailable.

        Raises:
            UsageError: if one of these cannot be right, or psycopg is not installed.

        """
        if durability not in get_args(Durability):
            raise UsageError(f"durability is 'full', 'normal' or 'off', not {durability!r}")
        if not 0.1 <= lease <= 86_400:
            raise UsageError(f"A lease lasts between 0.1 and 86,400 seconds, not {lease!r}")
        if not 0.1 <= patience <= 3600:
            raise UsageError(f"patience is between 0.1 and 3,600 seconds, not {patience!r}")
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
            raise UsageError(
                f"A schema's name is of lower-case letters, digits and '_', not {schema!r}"
            )
        self._host = host
        self._durable = durability != "off"
        self._lease = lease
        self._schema = schema
        writer, reader, self._heart = _lines(
            url, host=host, schema=schema, durability=durability, lease=lease, patience=patience
        )
        self._fenced = False
        self._lines = (writer, reader, self._heart)
        self._writer = PostgresWriter(writer, name=host, keep_claims=not self._durable)
        self._reader = PostgresReader(reader)
        self._watch = Watch(self._lines, min(1.0, lease / 4, patience / 4))

    @property
    def host(self) -> str:
        return self._host

    # ------------------------------------------------------------- coming and going

    def open(self) -> None:
        """Connect, make the tables where there are none, and become a host.

        What was open already is closed first: then this is a new host, which owns nothing.

        Raises:
            StoreUnavailable: if the server cannot be reached, or is not ready.
            StoreBroken: if it refuses; the error says what to do.
            SchemaVersionError: if a newer version of this library made the tables.

        """
        from understudy.journal.postgres.schema import check_server, prepare_schema

        self.close()
        self._watch.start()
        try:
            for line in self._lines:
                line.connect()
            check_server(self._lines[0], durable=self._durable)
            prepare_schema(self._lines[0], self._schema)
            with self._heart.use() as connection:
                connection.execute(sql.FORGET_HOSTS)
            self._become_host()
        except BaseException:
            self.close()
            raise

    def _become_host(self) -> float:
        """From now on the rows of this host's agents name a new owner. Returns its lease."""
        given = [self._host, self._lease]
        ((found, seconds),) = self._heart.repeatable(
            lambda connection: connection.execute(sql.BECOME_HOST, given).fetchall()
        )
        self._writer.host_id = found
        self._fenced = False
        return float(seconds)

    def close(self) -> None:
        """Give up what this host owns, and disconnect. Raises nothing.

        With the server out of reach, other hosts get the agents when the lease ends.
        """
        self._writer.rollback()
        host, self._writer.host_id = self._writer.host_id, None
        if host is not None:
            try:
                self._heart.repeatable(lambda connection: connection.execute(sql.LEAVE, [host]))
            except StoreError as error:
                _log.warning("Host %r did not sign off: %s", self._host, error)
        self._writer.close()
        for line in self._lines:
            line.close()
        self._watch.stop()

    def renew(self) -> float:
        """Prolong the lease of this host.

        Returns:
            Seconds until it ends, from when the server prolonged it: count them from before the
            call.

        Raises:
            Fenced: if it had ended already. The next call makes this a new host, which owns
                nothing yet.

        """
        host = self._writer.host_id
        if host is None:
            raise StoreUnavailable(cause="the store is not open")
        if self._fenced:
            return self._become_host()
        given = [self._lease, host]
        rows = self._heart.repeatable(
            lambda connection: connection.execute(sql.RENEW, given).fetchall()
        )
        if not rows:
            self._fenced = True
            raise Fenced(
                agent_id="*",
                why=f"the lease of {self._host!r} ended ({self._lease:g} s without a renewal), "
                "so other runtimes may own its agents by now",
            )
        return float(rows[0][0])

    def reconnect(self) -> None:
        """After `StoreUnavailable`: connect the writer anew, as the same host.

        Raises:
            StoreUnavailable: if the server still cannot be reached.

        """
        self._writer.connect()

    # ------------------------------------------------------------------- the writer

    def begin(self) -> None:
        self._writer.begin()

    def commit(self) -> None:
        self._writer.commit()

    def rollback(self) -> None:
        self._writer.rollback()

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        return self._writer.claim(agent_id, agent)

    def append(self, batch: Batch) -> None:
        self._writer.append(batch)

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        return self._writer.append_all(batches)

    def release(self, owned: Owned) -> None:
        self._writer.release(owned)

    def compact(self, batch: Batch) -> None:
        self._writer.compact(batch)

    def delete(self, agent_id: str) -> bool:
        return self._writer.delete(agent_id)

    def is_committed(self, batch: Batch) -> bool:
        return self._writer.is_committed(batch)

    # ------------------------------------------------------------------- the reader

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        return self._reader.load(agent_id, after)

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        return self._reader.agents(index_statuses, after_id, limit)


def _lines(
    url: str, *, host: str, schema: str, durability: Durability, lease: float, patience: float
) -> tuple[Line, Line, Line]:
    try:
        from understudy.journal.postgres.connection import three_lines
    except ImportError as error:
        raise UsageError(
            f"A PostgreSQL store needs psycopg ({error}): pip install 'understudy[postgres]'"
        ) from error
    return three_lines(
        url, host=host, schema=schema, durability=durability, lease=lease, patience=patience
    )

"""A store in PostgreSQL, which many hosts share: each owns some of the agents, for as long as its
lease lasts.

Needs `pip install 'understudy[postgres]'`. This module can be imported without it.

What is durable when `commit` returns:

| durability | `synchronous_commit` | survives |
|---|---|---|
| `"full"` | `on` | a crash of the server's machine, and the loss of it where a synchronous standby \
is set up |
| `"normal"` | `local` | a crash of the server's machine; the last commits may be missing on a \
standby that takes over |
| `"off"` | `off` | a crash of the runtime; a crash of the server may lose the last commits of \
about 0.6 s, always the newest ones |

Claims and leases are never kept weaker than `local`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from understudy.errors import (
    Fenced,
    OwnedElsewhere,
    RecordRefused,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from understudy.journal import postgres_sql as sql
from understudy.journal.base import Batch, Owned, Standing, StoredAgent, StoredRecords
from understudy.journal.codec import EncodedRecord
from understudy.journal.postgres_batches import Refusal, columns, refusal, waves
from understudy.journal.postgres_watch import Watch

if TYPE_CHECKING:
    from understudy.journal.postgres_line import Connection, Line

__all__ = ["Durability", "PostgresBackend"]

Durability = Literal["full", "normal", "off"]
Rows = list[tuple[Any, ...]]

MAX_ID_BYTES = 2000
"""Of an agent's id: what fits into an entry of an index."""
_TRIES = 100
"""A claim that is overtaken looks again: each time, another host has got further."""
_UNWANTED_PLANS = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
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
        self._durability = durability
        self._lease = lease
        self._schema = schema
        self._writer, self._reader, self._heart = _lines(
            url, host=host, schema=schema, durability=durability, lease=lease, patience=patience
        )
        lines = (self._writer, self._reader, self._heart)
        self._watch = Watch(lines, min(1.0, lease / 4, patience / 4))
        self._id: int | None = None
        self._keys: dict[str, int] = {}
        self._wanted = False
        self._begun = False

    @property
    def host(self) -> str:
        return self._host

    # ------------------------------------------------------------------- the writer

    def open(self) -> None:
        """Connect, make the tables where there are none, and become a host.

        What was open already is closed first: after a `Fenced` lease, that makes it a new host.

        Raises:
            StoreUnavailable: if the server cannot be reached, or is not ready.
            StoreBroken: if it refuses; the error says what to do.
            SchemaVersionError: if a newer version of this library made the tables.

        """
        self.close()
        self._watch.start()
        try:
            self._writer.connect()
            self._prepare()
            self._reader.connect()
            self._heart.connect()
            with self._heart.use() as connection:
                connection.execute(sql.FORGET_HOSTS)
                row = connection.execute(sql.BECOME_HOST, [self._host, self._lease]).fetchone()
        except BaseException:
            self.close()
            raise
        assert row is not None
        self._id = row[0]

    def close(self) -> None:
        """Give up what this host owns, and disconnect. Raises nothing.

        With the server out of reach, other hosts get the agents when the lease ends.
        """
        self.rollback()
        if self._id is not None:
            host, self._id = self._id, None
            try:
                self._heart.repeatable(lambda connection: connection.execute(sql.LEAVE, [host]))
            except StoreError as error:
                _log.warning("Host %r did not sign off: %s", self._host, error)
        self._keys.clear()
        for line in (self._writer, self._reader, self._heart):
            line.close()
        self._watch.stop()

    def reconnect(self) -> None:
        """After `StoreUnavailable`: connect the writer anew, as the same host.

        Raises:
            StoreUnavailable: if the server still cannot be reached.

        """
        self._wanted = self._begun = False
        self._writer.connect()

    def begin(self) -> None:
        """Begin a transaction: the server hears of it with the first change."""
        self._wanted, self._begun = True, False

    def commit(self) -> None:
        begun, self._wanted, self._begun = self._begun, False, False
        if begun:
            with self._writer.use() as connection:
                answer = connection.execute("COMMIT").statusmessage
            if answer != "COMMIT":  # it was rolled back, since a statement of it had failed
                raise StoreUnavailable(cause=f"the commit was answered by {answer}")

    def rollback(self) -> None:
        begun, self._wanted, self._begun = self._begun, False, False
        if begun and not self._writer.lost:
            try:
                with self._writer.use() as connection:
                    connection.execute("ROLLBACK")
            except StoreError as error:
                _log.debug("A rollback found the connection gone: %s", error)

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """Become the owner of an agent, in a new epoch (J6).

        Raises:
            OwnedElsewhere: if another host with an unexpired lease owns it.
            Fenced: if this host's own lease has ended.
            RecordRefused: if the id cannot be kept: too long, or no text.

        """
        if not _storable(agent_id):
            if agent is None:
                return None
            why = f"it is named {agent_id[:50]!r}: at most {MAX_ID_BYTES:,} bytes of text are kept"
            raise RecordRefused(kind="agent", why=why)
        if self._durability == "off":  # an epoch that was given away must never be given again
            self._rows("SET LOCAL synchronous_commit = local")
        for _ in range(_TRIES):
            seen = self._free(agent_id)
            if agent is None and (seen is None or seen["deleted"]):
                return None
            if seen is None:
                rows = self._rows(sql.BEGIN_AGENT, [agent_id, agent, self._id])
            else:
                rows = self._rows(sql.TAKE, {**seen, "agent": agent, "me": self._id})
            for incarnation, epoch, last_seq, name, key in rows:
                self._keys[agent_id] = key
                return Owned(
                    agent_id=agent_id,
                    agent=name,
                    incarnation=incarnation,
                    epoch=epoch,
                    last_seq=last_seq,
                )
        raise StoreUnavailable(cause=f"other hosts claim agent {agent_id!r} all the time")

    def append(self, batch: Batch) -> None:
        refused = self.append_all([batch])[0]
        if refused is not None:
            raise refused

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """`append` for each of them, in one round trip to the server.

        The answers stand where their batches stand: None = added, or what `append` would raise.
        Several batches of one agent are added in their order.
        """
        answers: list[Refusal | None] = [None] * len(batches)
        for places in waves(batches):
            chosen = [batches[place] for place in places]
            for place, answer in zip(places, self._add(chosen), strict=True):
                answers[place] = answer
        return answers

    def release(self, owned: Owned) -> None:
        self._keys.pop(owned.agent_id, None)
        given = [owned.agent_id, owned.incarnation, owned.epoch, self._me]
        self._rows(sql.RELEASE, given)

    def compact(self, batch: Batch) -> None:
        if len(batch.records) != 1:
            raise ValueError(f"A snapshot is one record, not {len(batch.records)}")
        self.append(batch)
        ((key,),) = self._rows(sql.SET_FLOOR, [batch.first_seq - 1, batch.agent_id])
        self._rows(sql.DROP_BELOW, [key, batch.first_seq])

    def delete(self, agent_id: str) -> bool:
        if not _storable(agent_id):
            return False
        for _ in range(_TRIES):
            seen = self._free(agent_id)
            if seen is None or seen["deleted"]:
                return False
            for (key,) in self._rows(sql.BURY, seen):
                self._keys.pop(agent_id, None)
                self._rows(sql.DROP_RECORDS, [key])
                return True
        raise StoreUnavailable(cause=f"other hosts claim agent {agent_id!r} all the time")

    def is_committed(self, batch: Batch) -> bool:
        first, last = batch.first_seq, batch.first_seq + len(batch.records) - 1
        alone = not self._wanted
        if alone:
            self.begin()
        try:
            agent = self._rows(sql.SETTLED, [batch.agent_id])
            found = self._rows(sql.READ_BACK, [batch.agent_id, first, last])
        finally:
            if alone:
                self.rollback()
        if not batch.records:
            return agent == [(batch.incarnation, batch.epoch, last, batch.standing.value)]
        return found == [
            (seq, batch.incarnation, batch.epoch, record.kind, record.version, record.payload)
            for seq, record in enumerate(batch.records, first)
        ]

    # ------------------------------------------------------------------- the heartbeat

    def renew(self) -> float:
        """Prolong the lease of this host.

        Returns:
            Seconds until it ends, from when the server prolonged it: count them from before the
            call.

        Raises:
            Fenced: if it had ended already; `open` makes this a new host.

        """
        given = [self._lease, self._me]
        rows = self._heart.repeatable(lambda line: line.execute(sql.RENEW, given).fetchall())
        if not rows:
            raise self._expired("*")
        return float(rows[0][0])

    # ------------------------------------------------------------------- the reader

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        if not _storable(agent_id):
            return None

        def read(line: Connection) -> tuple[Rows, Rows]:
            with line.pipeline():  # one moment's sight of both tables
                line.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                agent = line.execute(sql.STORED, [agent_id])
                records = line.execute(sql.LOAD_RECORDS, [agent_id, after], binary=True)
                line.execute("COMMIT")
            return agent.fetchall(), records.fetchall()

        agents, rows = self._reader.repeatable(read)
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
        self, standings: Collection[Standing] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        wanted = None if standings is None else [standing.value for standing in standings]
        given = [after_id, wanted, wanted, limit]
        rows = self._reader.repeatable(lambda line: line.execute(sql.AGENTS, given).fetchall())
        return [_stored(row) for row in rows]

    # ------------------------------------------------------------------- within

    def _prepare(self) -> None:
        from understudy.journal.postgres_schema import check_server, prepare_schema

        check_server(self._writer, durable=self._durability != "off")
        prepare_schema(self._writer, self._schema)

    @property
    def _me(self) -> int:
        if self._id is None:
            raise StoreUnavailable(cause="the store is not open")
        return self._id

    def _rows(self, query: str, given: Sequence[Any] | dict[str, Any] | None = None) -> Rows:
        """What a statement of the writer's transaction returns."""
        with self._writer.use() as connection:
            if self._begun:
                cursor = connection.execute(query, given, prepare=True, binary=True)
            else:
                assert self._wanted, "a change is made between begin and commit"
                self._begun = True
                with connection.pipeline():
                    connection.execute("BEGIN", prepare=True)
                    cursor = connection.execute(query, given, prepare=True, binary=True)
            return cursor.fetchall() if cursor.description is not None else []

    def _free(self, agent_id: str) -> dict[str, Any] | None:
        """The agent's row, that may be claimed: an owner whose lease has ended is declared dead.

        Raises:
            OwnedElsewhere: if a host owns it that is alive.
            Fenced: if this host is not.

        """
        while True:
            ((incarnation, epoch, deleted, owner, host, lives, we_live),) = self._rows(
                sql.LOOK, [self._me, agent_id]
            )
            if not we_live:
                raise self._expired(agent_id)
            if epoch is None:
                return None
            if host is None or owner == self._id or self._rows(sql.END_HOST, [owner]):
                break
            if lives:
                raise OwnedElsewhere(agent_id=agent_id, host=host)
        return {
            "agent_id": agent_id,
            "incarnation": incarnation,
            "epoch": epoch,
            "deleted": deleted,
            "owner": owner,
        }

    def _add(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Add batches of different agents."""
        keys = self._known_keys([batch.agent_id for batch in batches])
        held = {place for (place,) in self._rows(sql.ADD, columns(batches, keys, self._me))}
        if len(held) == len(batches):
            return [None] * len(batches)
        rest = [(b, k) for n, (b, k) in enumerate(zip(batches, keys, strict=True), 1) if n in held]
        if rest:
            self._rows(sql.ADD_REST, columns([b for b, _ in rest], [k for _, k in rest], self._me))
        rows = self._rows(sql.LOOK_AGAIN, [[batch.agent_id for batch in batches]])
        by_id = {row[0]: row for row in rows}
        return [
            None if place in held else refusal(batch, by_id.get(batch.agent_id), owner=self._me)
            for place, batch in enumerate(batches, 1)
        ]

    def _known_keys(self, agent_ids: Sequence[str]) -> list[int]:
        """The keys of the agents' rows; -1 where there is none. Those of claimed ones are known."""
        missing = [agent_id for agent_id in agent_ids if agent_id not in self._keys]
        found: dict[str, int] = dict(self._rows(sql.KEYS, [missing])) if missing else {}
        return [self._keys.get(agent_id) or found.get(agent_id, -1) for agent_id in agent_ids]

    def _expired(self, agent_id: str) -> Fenced:
        return Fenced(
            agent_id=agent_id,
            why=f"the lease of {self._host!r} ended ({self._lease:g} s without a renewal), "
            "so other runtimes may own its agents by now",
        )


def _lines(
    url: str, *, host: str, schema: str, durability: Durability, lease: float, patience: float
) -> tuple[Line, Line, Line]:
    """The writer's, the reader's and the heartbeat's connection."""
    try:
        from understudy.journal.postgres_line import Line, parameters
    except ImportError as error:
        raise UsageError(
            f"A PostgreSQL store needs psycopg ({error}): pip install 'understudy[postgres]'"
        ) from error
    given = parameters(url, host=host)
    commit = {"full": "on", "normal": "local", "off": "off"}[durability]
    shared = {"search_path": schema, "lock_timeout": "5s"}
    writer = {
        **shared,
        "statement_timeout": f"{1000 * patience:.0f}",
        # A runtime that is suspended in the middle of a transaction keeps no agents locked.
        "idle_in_transaction_session_timeout": f"{max(1.0, lease):g}s",
        "synchronous_commit": commit,
        # Every statement finds its rows by an index, one by one, whatever the statistics say of
        # young tables; so there is nothing to plan anew each time.
        **dict.fromkeys(_UNWANTED_PLANS, "off"),
        "plan_cache_mode": "force_generic_plan",
    }
    reader = {**shared, "statement_timeout": f"{4000 * patience:.0f}"}
    beat = max(1.0, lease / 4)
    heart = {
        **shared,
        "statement_timeout": f"{1000 * beat:.0f}",
        "synchronous_commit": "local" if durability == "off" else commit,
    }
    return (
        Line(given, writer, limit=1.5 * patience),
        Line(given, reader, limit=6 * patience),
        Line(given, heart, limit=1.5 * beat),
    )


def _storable(agent_id: str) -> bool:
    """Whether a column of text can hold it; NUL and lone surrogates cannot be kept."""
    try:
        return "\0" not in agent_id and len(agent_id.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


def _stored(row: tuple[Any, ...]) -> StoredAgent:
    agent_id, agent, incarnation, epoch, last_seq, floor, standing, host = row
    return StoredAgent(
        agent_id=agent_id,
        agent=agent,
        incarnation=incarnation,
        epoch=epoch,
        last_seq=last_seq,
        floor=floor,
        standing=Standing(standing),
        host=host,
    )

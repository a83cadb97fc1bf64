"""What the writer's thread does in PostgreSQL: transactions, and the changes in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from understudy.errors import (
    Fenced,
    OwnedElsewhere,
    RecordRefused,
    StoreConflict,
    StoreError,
    StoreUnavailable,
)
from understudy.journal.contracts import Batch, Owned
from understudy.journal.postgres import sql

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import Line


Rows = list[tuple[Any, ...]]

MAX_ID_BYTES = 2000
"""Of an agent's id: what fits into an entry of an index."""
_TRIES = 100
"""A claim that is overtaken looks again: each time, another host has got further."""
_log = logging.getLogger(__name__)


class PostgresWriter:
    """A connection, its transaction, and what the host that writes owns.

    Args:
        line: the connection.
        name: of the host, for the errors.
        keep_claims: whether a claim is to be made durable though other commits are not.

    """

    def __init__(self, line: Line, *, name: str, keep_claims: bool) -> None:
        self.host_id: int | None = None
        """The row of this host; None while it is not open."""
        self._line = line
        self._name = name
        self._keep_claims = keep_claims
        self._keys: dict[str, int] = {}
        self._wanted = False
        self._begun = False

    def connect(self) -> None:
        """Connect, anew if there was a connection; what was not committed is lost."""
        self._wanted = self._begun = False
        self._line.connect()

    def close(self) -> None:
        self._keys.clear()
        self._line.close()

    def begin(self) -> None:
        """Begin a transaction: the server hears of it with the first change."""
        self._wanted, self._begun = True, False

    def commit(self) -> None:
        begun, self._wanted, self._begun = self._begun, False, False
        if begun:
            with self._line.use() as connection:
                answer = connection.execute("COMMIT").statusmessage
            if answer != "COMMIT":  # it was rolled back, since a statement of it had failed
                raise StoreUnavailable(cause=f"the commit was answered by {answer}")

    def rollback(self) -> None:
        begun, self._wanted, self._begun = self._begun, False, False
        if begun and not self._line.lost:
            try:
                with self._line.use() as connection:
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
        if not storable(agent_id):
            if agent is None:
                return None
            why = f"it is named {agent_id[:50]!r}: at most {MAX_ID_BYTES:,} bytes of text are kept"
            raise RecordRefused(kind="agent", why=why)
        if self._keep_claims:  # an epoch that was given away must never be given again
            self._rows("SET LOCAL synchronous_commit = local")
        for _ in range(_TRIES):
            seen = self._free(agent_id)
            if agent is None and (seen is None or seen["deleted"]):
                return None
            if seen is None:
                rows = self._rows(sql.BEGIN_AGENT, [agent_id, agent, self._me])
            else:
                rows = self._rows(sql.TAKE, {**seen, "agent": agent, "me": self._me})
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
        if not storable(agent_id):
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
            return agent == [(batch.incarnation, batch.epoch, last, batch.index_status.value)]
        return found == [
            (seq, batch.incarnation, batch.epoch, record.kind, record.version, record.payload)
            for seq, record in enumerate(batch.records, first)
        ]

    # ------------------------------------------------------------------- within

    @property
    def _me(self) -> int:
        if self.host_id is None:
            raise StoreUnavailable(cause="the store is not open")
        return self.host_id

    def _rows(self, query: str, given: Sequence[Any] | dict[str, Any] | None = None) -> Rows:
        """What a statement of the writer's transaction returns."""
        with self._line.use() as connection:
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
            if host is None or owner == self._me:
                break
            if lives:
                raise OwnedElsewhere(agent_id=agent_id, host=host)
            if self._rows(sql.END_HOST, [owner]):
                break
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
        return Fenced(agent_id=agent_id, why=f"the lease of {self._name!r} has ended")


def storable(agent_id: str) -> bool:
    """Whether a column of text can hold it; NUL and lone surrogates cannot be kept."""
    try:
        return "\0" not in agent_id and len(agent_id.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


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
        "standings": [batch.index_status.value for batch in batches],
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

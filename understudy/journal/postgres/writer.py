"""The writing half of the PostgreSQL backend: transactions, and the changes in them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from sys import intern
from typing import TYPE_CHECKING, Any

from understudy.errors import (
    Fenced,
    OwnedElsewhere,
    RecordRefused,
    StoreError,
    StoreUnavailable,
    UnfitHost,
)
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import (
    Batch,
    IndexEntry,
    IndexStatus,
    LostAttempt,
    Owned,
    Refusal,
    StoredAgent,
    StoredRecords,
    time_number,
)
from understudy.journal.postgres import feed_sql, sql
from understudy.journal.postgres.arrays import numbers
from understudy.journal.postgres.batches import add_all, add_beside, split
from understudy.journal.postgres.reader import load_behind
from understudy.journal.postgres.sharing import inbox, lease
from understudy.journal.postgres.sharing.hosts import PostgresHosts
from understudy.journal.postgres.spending_sql import LEAVE, LOCK_AGENT
from understudy.journal.postgres.sql import MAX_ID_BYTES, is_storable_id, rows_of
from understudy.journal.shared import Hint, answers_of_deleted
from understudy.journal.sql_backend import Rows, Values, refusal

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection, PsycopgConnection

_TRIES = 100
"""A claim tries again if another host changed the row first: each time, that host has succeeded."""
_LOCK_NOT_AVAILABLE = "55P03"
_REFUSED = "22P02"
"""How `sql.ADD` fails where not all batches may be added."""
_log = logging.getLogger(__name__)


# Not by the unique index alone: an insertion waits for a transaction that has inserted the same
# key, and so for the host that makes it, which may be suspended
# (test_a_host_that_stands_still_while_it_takes_a_key_stops_no_other).
LOCK_KEY = "SELECT pg_try_advisory_xact_lock(%s::int8)"


class PostgresWriter(PostgresHosts):
    """Writes on a connection of its own, and knows the keys of the agents that its host owns.

    Args:
        connections, host: as of `PostgresReader`.
        keep_claims: whether a claim is made durable although other commits are not.

    """

    def __init__(
        self, connections: Sequence[PostgresConnection], host: str, *, keep_claims: bool
    ) -> None:
        super().__init__(connections, host)
        self._keep_claims = keep_claims
        self._keys: dict[str, int] = {}
        self._in_transaction = False
        self._trust_at_commit = 0
        """The highest number of the log of trust that a transaction of records has seen."""
        self._sent_begin = False
        self._session_of: int | None = None
        """The host that the server knows the present connection as."""
        self._later: list[tuple[str, Values]] | None = None
        """While it is a list, it gets the statements that are made."""
        self._waited_for_a_lock = False
        """Whether a statement gave up waiting for what another session has locked."""

    def reconnect(self) -> None:
        """Connect, again if there was a connection. What was not committed is lost.

        A host may have been suspended in the middle of a transaction. The server's timeout for an
        idle transaction does not end it in every place: not between two messages of one statement,
        and not behind a pipeline. A claim ends the session of an owner that it takes over from. But
        the lock may be that of another claim: so if we have waited for one in vain, the sessions of
        all hosts whose lease has ended are ended.
        """
        self._in_transaction = self._sent_begin = False
        self._session_of = None
        self._writing.connect()
        if self._waited_for_a_lock:
            with self._writing.use() as connection:
                connection.execute(lease.END_SESSIONS, [self._own_id])
            self._waited_for_a_lock = False

    def _close_writer(self) -> None:
        self._keys.clear()
        self._session_of = None
        self._writing.close()

    def begin(self) -> None:
        """Begin a transaction. The server gets the BEGIN together with the first statement."""
        self._in_transaction, self._sent_begin = True, False

    def commit(self) -> None:
        sent_begin, self._in_transaction, self._sent_begin = self._sent_begin, False, False
        if sent_begin:
            with self._writing.use() as connection:
                answer = connection.execute("COMMIT").statusmessage
            _check_committed(answer)

    def rollback(self) -> None:
        sent_begin, self._in_transaction, self._sent_begin = self._sent_begin, False, False
        if sent_begin and not self._writing.lost:
            try:
                with self._writing.use() as connection:
                    connection.execute("ROLLBACK")
            except StoreError as error:
                _log.debug("The connection was lost before a rollback: %s", error)

    def _turn_notices(self, on: bool) -> bool:
        from understudy.journal.postgres.notices_sql import turn_notices  # who uses it pays

        return turn_notices(self._fetch, on)

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        return self.take(agent_id, agent, at_rest=False)

    def load_claimed(self, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
        return load_behind(self._fetch, agent_id, after)

    def take(
        self,
        agent_id: str,
        agent: str | None,
        *,
        at_rest: bool = True,
        creates: bool = True,
        runs: bool = True,
    ) -> Owned | None:
        """Take an agent; see `SharedBackend.take`.

        Raises:
            OwnedElsewhere: if another host with an unexpired lease owns it.
            Fenced: if this host's own lease is lost: it ended, and another host has taken over.
            StoreUnavailable: if it has ended, and may be renewed.
            RecordRefused: if the id cannot be stored: too long, or not valid text.

        """
        if not is_storable_id(agent_id):
            if agent is None:
                return None
            why = f"the id {agent_id[:50]!r} must be text of at most {MAX_ID_BYTES:,} bytes"
            raise RecordRefused(kind="agent", why=why)
        if self._keep_claims:
            # An epoch must never be given twice, also after a crash of the server
            # (test_a_crash_of_the_server_loses_nothing_that_was_committed).
            self._fetch("SET LOCAL synchronous_commit = local")
        begins = agent if creates and agent and self._may_begin(agent_id, agent, runs) else None
        for _ in range(_TRIES):
            found = self._claimable(agent_id, take=at_rest, begins=begins)
            rows = [] if found is None else found["begun"]
            if not rows:
                is_there = found is not None and not found["deleted"]
                if not is_there and (agent is None or not creates):
                    return None
                if agent is not None and runs:
                    version = found["run_version"] if found is not None else None
                    self._check_fits(agent_id, agent, version)
            # Race: this against the claim of another host. Both statements are compare-and-set: the
            # loser waits for the winner's commit, gets no row, and looks again
            # (test_of_two_claims_at_once_one_wins).
            if not rows and found is not None:
                rows = self._fetch(sql.CLAIM, {**found, "agent": agent, "own_id": self._own_id})
            for incarnation, epoch, last_seq, name, key, has_posts, *_ in rows:
                self._keys[agent_id] = key
                return Owned(
                    agent_id=agent_id,
                    agent=intern(name),  # the names of agents are few, and their ids many
                    incarnation=incarnation,
                    epoch=epoch,
                    last_seq=last_seq,
                    has_posts=has_posts,
                )
        raise _contended(agent_id)

    def _may_begin(self, agent_id: str, agent: str, runs: bool) -> bool:
        """Whether an agent may begin here, if it is not there."""
        try:
            if runs:
                self._check_fits(agent_id, agent, None)
        except UnfitHost:
            return False
        return True

    def give(
        self,
        agent_id: str,
        agent: str,
        created: EncodedRecord | None,
        needs: Collection[str] | None = None,
    ) -> str | None:
        if not is_storable_id(agent_id):
            return None
        if self._keep_claims:
            self._fetch("SET LOCAL synchronous_commit = local")  # as a claim
        for _ in range(_TRIES):
            found = self._claimable(agent_id, take=False)
            version = found["run_version"] if found is not None else None
            other = self._fitting_host(agent, version, needs)
            if not other:
                return None
            other_id, name = other[0]
            if found is None:
                rows = self._fetch(sql.INSERT_AGENT, [agent_id, agent, other_id])
            else:
                rows = self._fetch(sql.CLAIM, {**found, "agent": agent, "own_id": other_id})
            for incarnation, epoch, last_seq, _, key, *_ in rows:
                self._keys.pop(agent_id, None)
                if last_seq == 0 and created is not None:
                    batch = Batch(
                        agent_id=agent_id,
                        incarnation=incarnation,
                        epoch=epoch,
                        first_seq=1,
                        records=(created,),
                        entry=IndexEntry(IndexStatus.REST),
                    )
                    self._fetch(*add_all({key: batch}, other_id, stored=[], sees_trust=False))
                self._fetch(inbox.TELL_OWNER, [str(Hint("given", epoch, agent_id)), other_id])
                return str(name)
        raise _contended(agent_id)

    def append(self, batch: Batch) -> None:
        (refused,) = self.append_all([batch])
        if refused is not None:
            raise refused

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        answers: list[Refusal | None] = [None] * len(batches)
        for indexes in split(batches):
            ids = [batches[index].agent_id for index in indexes]
            found = self._fetch(sql.LOCK_AGENTS, [ids, self._own_id])
            if len(found) < len(ids):
                lost = set(ids).difference(agent_id for agent_id, *_ in found)
                found += self._fetch(sql.LOST_AGENTS, [sorted(lost)])
            rows = {agent_id: row for agent_id, *row in found}
            accepted: dict[int, Batch] = {}
            asking: list[int] = []
            for index in indexes:
                batch = batches[index]
                key, ask_count, *there, owner, host = rows.get(batch.agent_id, (0, 0, None, None))
                is_own = owner == self._own_id
                answers[index] = refused = refusal(batch, there, claimer=host, is_own=is_own)
                if refused is None:
                    accepted[key] = batch
                    if batch.asks_before is None and ask_count:
                        asking.append(key)
            if accepted:
                asks = self._fetch(sql.ASKS, [numbers(sorted(asking))]) if asking else []
                first, *others = self._adding(accepted, asks)
                self._see_trust(self._fetch(*first)[0])
                for statement in others:
                    self._fetch(*statement)
        return answers

    def commit_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """Commit batches as a transaction; see `Backend.commit_all`.

        Where all batches are added, it is one round trip.
        """
        # The statement fails as a whole where one of them is refused, which is then told from the
        # others in a transaction of several round trips.
        if not self._commit_at_once(batches):
            return super().commit_all(batches)
        return [None] * len(batches)

    def _commit_at_once(self, batches: Sequence[Batch]) -> bool:
        """Make one transaction of batches, all that follows from them sent together.

        Returns:
            Whether they are committed. Else nothing is changed.

        """
        by_key = {self._keys.get(batch.agent_id, -1): batch for batch in batches}
        is_known = all(batch.asks_before is not None for batch in batches)
        if -1 in by_key or not is_known or len([*split(batches)]) != 1:
            return False
        row = self._commit_statements(self._adding(by_key, []))
        if row is not None:
            self._see_trust(row)
        return row is not None

    def _adding(self, batches: Mapping[int, Batch], stored: Rows) -> list[tuple[str, Values]]:
        """The statements that add batches of different agents. Only the first one has an answer.

        Args:
            batches: by the keys of the agents' rows.
            stored: as of `changed_asks`.

        """
        made: list[tuple[str, Values]] = [
            add_all(batches, self._own_id, stored=stored, sees_trust=self.follows_trust)
        ]
        self._later = made
        try:
            add_beside(self._fetch, batches)
            for key, batch in batches.items():
                self._add_decided(key, batch)
                self._end_keys(key, batch)
            self._add_used(
                (each for batch in batches.values() for each in batch.used), self._own_id
            )
            if any(batch.settlements for batch in batches.values()):
                from understudy.journal.postgres.spending import give_back  # few have budgets

                give_back(self._fetch, batches.values())
        finally:
            self._later = None
        return made

    def _commit_statements(
        self, statements: Sequence[tuple[str, Values]]
    ) -> tuple[Any, ...] | None:
        """Commit statements as one transaction, sent at once; the first row of the first one.

        None if that one refuses, and nothing is changed.
        """
        try:
            with self._writing.use() as connection:
                self._name_session(connection)
                if len(statements) == 1 and not self._writing.is_pooled:
                    ((query, values),) = statements  # it commits by itself
                    found = connection.execute(query, values, prepare=True, binary=True)
                    return found.fetchone()
                self._in_transaction = self._sent_begin = True
                with connection.pipeline():
                    connection.execute("BEGIN", prepare=True)
                    self._writing.demand_session(connection)
                    found, *_ = [
                        connection.execute(query, values, prepare=True, binary=True)
                        for query, values in statements
                    ]
                    committed = connection.execute("COMMIT", prepare=True)
                self._in_transaction = self._sent_begin = False
                _check_committed(committed.statusmessage)
                return found.fetchone()
        except StoreError as error:
            if getattr(error.__cause__, "sqlstate", None) == _REFUSED:
                self.rollback()
                return None
            if isinstance(error, StoreUnavailable):
                self._note_lock(error)
            raise

    def _see_trust(self, row: tuple[Any, ...]) -> None:
        """Note the last number of the log of trust, where a row of `sql.ADD` has it."""
        # Also of a transaction that is rolled back: the facts that it has seen are committed.
        self._trust_at_commit = max(self._trust_at_commit, *row[1:], 0)

    def release(self, owned: Owned) -> bool:
        self._keys.pop(owned.agent_id, None)
        values = [owned.agent_id, owned.incarnation, owned.epoch, self._own_id]
        released = self._fetch(sql.RELEASE, values)
        if released == [(True,)]:
            inbox.tell_askers(self._fetch, owned.agent_id)
        return bool(released)

    def note_lost_attempt(self, agent_id: str, lost: LostAttempt) -> None:
        values = {"agent_id": agent_id, "run": lost.run_id, "number": lost.number}
        self._fetch(sql.NOTE_LOST_ATTEMPT, values)

    def delete(self, agent_id: str, *, at_rest: bool = False) -> bool:
        if not is_storable_id(agent_id):
            return False
        for _ in range(_TRIES):
            found = self._claimable(agent_id, take=at_rest)
            if found is None or found["deleted"]:
                return False
            for key, _ in self._fetch(sql.DELETE_AGENT, found):
                self._keys.pop(agent_id, None)
                inbox.tell_askers(self._fetch, agent_id)
                deleted, unknown = answers_of_deleted(agent_id)
                replies = {"key": key, "deleted": deleted, "unknown": unknown}
                self._fetch(inbox.REPLY_TO_DELETED, replies)
                self._fetch(LOCK_AGENT, [key])
                self._forget([key])
                return True
        raise _contended(agent_id)

    def retire_all(self, agents: Sequence[StoredAgent]) -> list[bool]:
        read = [(each.agent_id, each.incarnation, each.epoch, each.last_seq) for each in agents]
        values = {"own_id": self._own_id, **sql.READ_AGENTS.values(read)}
        found = self._fetch(sql.UNCHANGED_AGENTS, values)
        keys = [key for key, *_ in found]
        if keys:
            self._fetch(sql.RETIRE_AGENTS, [keys])
            self._forget(keys)
        for _, agent_id, epoch, host_id in found:
            self._keys.pop(agent_id, None)
            if host_id is not None:
                self.tell(host_id, Hint("taken", epoch + 1, agent_id))
        gone = {agent_id for _, agent_id, *_ in found}
        return [each.agent_id in gone for each in agents]

    def _forget(self, keys: Sequence[int]) -> None:
        super()._forget(keys)
        self._change_of(sql.DELETE_LOST_ATTEMPTS, [], keys)
        self._change_of(LEAVE, [], keys)

    def _change_of(self, statement: str, values: Sequence[Any], keys: Sequence[int]) -> None:
        # One text for each number of agents would be planned for each.
        self._fetch(statement.format(of="agent = ANY(%s)"), [*values, list(keys)])

    def _delete_records(self, keys: Sequence[int]) -> None:
        self._change_of("DELETE FROM records WHERE {of}", [], keys)

    def turn_feed(self, on: bool) -> None:
        if on:
            self._fetch(feed_sql.TURN_FEED_ON)
            self._fetch(feed_sql.DELETE_FOREIGN_FEED)
        else:
            self._fetch(feed_sql.TURN_FEED_OFF)
            self._fetch(feed_sql.EMPTY_FEED)
        self.keeps_feed = on

    def trim_feed(self, before: datetime, keep: int) -> None:
        self._fetch(feed_sql.TRIM_FEED, [time_number(before), keep])

    def is_committed(self, batch: Batch) -> bool:
        # Race: this against the server, which may still work on the commit whose answer was lost.
        # The first statement waits until that is settled
        # (test_reading_back_waits_for_a_transaction_that_is_not_settled).
        if self._in_transaction:
            return super().is_committed(batch)
        self.begin()
        try:
            return super().is_committed(batch)
        finally:
            self.rollback()

    # ------------------------------------------------------------------- internals

    def _lock_key(self, hash: bytes) -> bool:
        # Race: this against another host. Until the commit of this transaction no other one looks
        # who has the key (test_of_two_hosts_that_take_a_key_at_once_one_gets_it).
        return self._fetch(LOCK_KEY, [int.from_bytes(hash[:8], signed=True)]) == [(True,)]

    def _fetch(self, query: str, values: Values = ()) -> Rows:
        if self._later is not None:
            self._later.append((query, values))
            return []
        try:
            with self._writing.use() as connection:
                if self._sent_begin:
                    cursor = connection.execute(query, values, prepare=True, binary=True)
                else:
                    assert self._in_transaction, "a change is made between begin and commit"
                    self._name_session(connection)
                    self._sent_begin = True
                    with connection.pipeline():
                        connection.execute("BEGIN", prepare=True)
                        # In the transaction: a pooler may have begun to pool transactions
                        # (test_a_pooler_that_comes_to_pool_transactions_loses_nothing_silently).
                        self._writing.demand_session(connection)
                        cursor = connection.execute(query, values, prepare=True, binary=True)
                return rows_of(cursor)
        except StoreUnavailable as error:
            self._note_lock(error)
            raise

    def _name_session(self, connection: PsycopgConnection) -> None:
        if self._session_of != self._host_id:
            own_id = self._own_id
            connection.execute(lease.NAME_SESSION, [own_id])
            self._session_of = own_id

    def _note_lock(self, error: StoreUnavailable) -> None:
        if getattr(error.__cause__, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            self._waited_for_a_lock = True

    def _claimable(
        self, agent_id: str, *, take: bool, begins: str | None = None
    ) -> dict[str, Any] | None:
        """The agent's row, if this host may claim it; None if there is none.

        An owner whose lease has ended is marked as expired.

        Args:
            agent_id, take: as of `SharedBackend.take`.
            begins: the name of the definition with which an agent begins that is not there. Then
                `"begun"` has its row, as of `sql.CLAIM`.

        Raises:
            OwnedElsewhere: if a host with an unexpired lease owns it.
            Fenced: if this host's own lease is lost.
            StoreUnavailable: if it has ended, and may be renewed.

        """
        while True:
            values = {"own_id": self._own_id, "agent_id": agent_id, "begins": begins}
            (row,) = self._fetch(sql.OWNERSHIP, values)
            incarnation, epoch, deleted, owner, host, owner_holds, we_hold = row[:7]
            version, takeable, *begun = row[7:]
            is_taken = False
            if we_hold is False:
                # It may have been away for longer than the lease. The heartbeat renews it, or
                # learns that it is lost.
                raise StoreUnavailable(cause=f"the lease of {self._host!r} is not renewed yet")
            if we_hold is None:
                why = f"the lease of {self._host!r} has ended"
                raise Fenced(agent_id=agent_id, why=why)
            if begun[0] is not None:
                return {"begun": [(*begun, False)]}
            if epoch is None:
                return None
            if host is None or owner == self._own_id:
                break
            if owner_holds and self._end_if_dead(owner):
                continue
            if owner_holds:
                if take and takeable:
                    is_taken = True
                    break
                raise OwnedElsewhere(agent_id=agent_id, host=host)
            if owner_holds is not None:  # this is the first one to take over from that owner
                self._fetch(lease.END_SUSPENDED_SESSION, [owner])
            # Race: this against a renewal by the owner. The statement waits for one under way; if
            # that was in time, no row changes, and we look again
            # (test_a_claim_waits_for_a_renewal_that_is_under_way_and_believes_it).
            if self._fetch(lease.EXPIRE_HOST, [owner]):
                break
        return {
            "begun": [],
            "agent_id": agent_id,
            "incarnation": incarnation,
            "epoch": epoch,
            "deleted": deleted,
            "owner": owner,
            "take": is_taken,
            "told": str(Hint("taken", epoch + 1, agent_id)),
            "run_version": version,
        }


def _check_committed(answer: str | None) -> None:
    # A COMMIT after a failed statement succeeds, and is answered by ROLLBACK
    # (test_a_transaction_that_failed_is_never_told_to_be_committed).
    if answer != "COMMIT":
        raise StoreUnavailable(cause=f"the commit was answered by {answer}")


def _contended(agent_id: str) -> StoreUnavailable:
    return StoreUnavailable(
        cause=f"other hosts claimed agent {agent_id!r} first, {_TRIES} times in a row"
    )

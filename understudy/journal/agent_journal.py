"""`AgentJournal`: writes the records of one agent into a store that commits in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from understudy.errors import (
    Fenced,
    StoreError,
    StoreUnavailable,
)
from understudy.journal.asks import told_of
from understudy.journal.backend import Backend
from understudy.journal.call_keys import CallKeys, KeyTaking, KeyUse, key_ends, key_hash, open_keys
from understudy.journal.checkpoint_writer import CheckpointJob, CheckpointWriter
from understudy.journal.codec import MAX_RECORD_BYTES, EncodedRecord, encode
from understudy.journal.committer import LINGER, Committer, Job
from understudy.journal.contracts import Batch, IndexEntry, IndexStatus, Owned
from understudy.journal.database_threads import DatabaseThreads
from understudy.journal.decided import MAY_DECIDE, decided_in
from understudy.journal.feed import MAY_BE_TOLD, feed_row
from understudy.journal.lease import Lease
from understudy.journal.loaded import Loaded
from understudy.journal.owned_journal import JournalledAgent, KeysOfJournal, OwnedJournal
from understudy.journal.taken_states import TakenState
from understudy.journal.usage import ASKS, used_by
from understudy.state.records import MessagesArchived, Record, status_in

if TYPE_CHECKING:
    from understudy.journal.spending import Settlement

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
"""Seconds before a key is tried again that another host is about to take."""
_NOTED = MAY_BE_TOLD | {MessagesArchived}
_NOTED_WITH_USAGE = _NOTED | ASKS
_AT_REST = IndexEntry(IndexStatus.REST)
_NO_ASKS: Mapping[str, tuple[int, int]] = {}  # one for all agents


class Lingering:
    """Journals of one store with records for which no caller waits yet. Used on the loop.

    Their records go with the next records for which a caller waits, of any agent, or after `LINGER`
    seconds. A turn of the loop that puts a journal into the queue of the committer takes 10 µs: the
    loop then contends with the committer's thread for the interpreter.
    """

    __slots__ = ("_is_timed", "_journals")

    def __init__(self) -> None:
        self._journals: list[AgentJournal] = []
        self._is_timed = False

    def add(self, journal: AgentJournal) -> None:
        """Add a journal whose buffer is new."""
        self._journals.append(journal)
        if not self._is_timed:
            self._is_timed = True
            journal.loop.call_later(LINGER, self._end)

    def take(self) -> list[AgentJournal]:
        """Remove all of them. The caller pushes them."""
        taken, self._journals = self._journals, []
        return taken

    def push(self) -> None:
        """Have the committer take what all of them have appended."""
        if self._journals:
            self._journals[-1].push(flush=True)

    def _end(self) -> None:
        self._is_timed = False
        self.push()


@dataclass(frozen=True, slots=True)
class JournalEnvironment:
    """What all journals of a store share while it is open."""

    committer: Committer
    """The committer. Its next transaction takes the records of the journals."""
    lease: Lease
    """The lease of this host. It is checked before a tool is entered."""
    threads: DatabaseThreads
    """The threads of the store."""
    max_bytes: int = MAX_RECORD_BYTES
    """The most bytes of a record. A larger record is refused."""
    checkpoint_every: int = 0
    """The number of records between two checkpoints of an agent; 0 = no checkpoints are written."""
    lingering: Lingering = field(default_factory=Lingering)
    """The journals with records for which no caller waits."""


class AgentJournal(OwnedJournal, Job):
    """A write-behind journal. Its methods are called on one event loop.

    It hands appended records to the committer when a caller waits for some records of the store, or
    soon after. The records are folded by then, so `index_entry` describes the agent after them.

    Args:
        environment: of the store.
        owned: the epoch to write under.
        agent: whose journal it is.
        term: the term of the lease in which that was claimed.

    """

    __slots__ = (
        "_agent",
        "_appended",
        "_asked",
        "_at",
        "_buffer",
        "_checkpoints",
        "_durable",
        "_environment",
        "_failure",
        "_is_refused",
        "_keys",
        "_owned",
        "_queued",
        "_term",
        "_waiters",
        "loop",
    )

    def __init__(
        self,
        environment: JournalEnvironment,
        owned: Owned,
        agent: JournalledAgent,
        *,
        term: int,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._environment = environment
        self._term = term
        self._owned = owned
        self._agent = agent
        self._appended = self._durable = owned.last_seq
        self._at: datetime | None = None
        """The time at which the last record was recorded."""
        self._buffer: Batch | None = None
        """The batch of the records appended since the last push. It stays on the loop. While there
        is a batch, the journal is lingering."""
        self._failure: StoreError | None = None
        self._is_refused = False
        """Whether the store has refused a batch: it refuses all that follow."""
        # A tuple: it is mostly empty, and an empty list takes 56 bytes.
        self._waiters: tuple[tuple[int, asyncio.Future[None]], ...] = ()
        # Guarded by the committer's lock: the loop adds to it, the committer's thread takes it.
        self._queued: Batch | None = None
        self._checkpoints: CheckpointWriter | None = None
        self._asked: Mapping[str, tuple[int, int]] | None = None if owned.last_seq else _NO_ASKS
        """What the last batch says that the agent asks, as of `Batch.asks_before`."""
        self._keys: set[str] | None = None
        """The calls whose keys are noted when they are over, by call key; None where none of the
        agent's has ever had one."""

    # ------------------------------------------------------------------- on the loop

    @property
    def owned(self) -> Owned:
        """The epoch that it writes under, with the number of its newest appended record."""
        return replace(self._owned, last_seq=self._appended)

    @property
    def has_unflushed(self) -> bool:
        return self._durable < self._appended

    def append(self, records: Sequence[Record]) -> None:
        if self._failure is not None:
            raise self._failure
        limit = self._environment.max_bytes
        noted = _NOTED_WITH_USAGE if self._environment.threads.counts_usage else _NOTED
        # All of them before one is kept: what one refuses, none may be part of.
        encoded = [encode(record, max_bytes=limit) for record in records]
        buffer = self._buffer or self._new_buffer()
        if self._keys is not None:
            self._note_keys(buffer, self._keys)  # of the records before: these are not folded yet
        buffer.records = [*buffer.records, *encoded]
        for record, kept in zip(records, encoded, strict=True):
            self._appended += 1
            buffer.at = self._at = record.at
            if type(record) in noted:  # no record of a step but its results
                self._note_told(buffer, record, kept, records)

    def _new_buffer(self) -> Batch:
        self._environment.lingering.add(self)
        buffer = self._buffer = self._new_batch()
        return buffer

    def _new_batch(self) -> Batch:
        owned = self._owned
        return Batch(
            agent_id=owned.agent_id,
            incarnation=owned.incarnation,
            epoch=owned.epoch,
            first_seq=self._appended + 1,
            records=(),
            entry=_AT_REST,
        )

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        if "files" not in self._environment.threads.keeps:
            super().keep_blobs(blobs)
        buffer = self._buffer or self._new_buffer()
        buffer.blobs = {**(buffer.blobs or {}), **blobs}

    def settle(self, settlements: Sequence[Settlement]) -> None:
        spending, owned = self._environment.threads.spending, self._owned
        if spending is None:
            super().settle(settlements)
            return
        spending.note_settled(settlements, owned.agent_id, owned.incarnation)
        buffer = self._buffer or self._new_buffer()
        buffer.settlements += tuple(settlements)
        self.loop.call_soon(self.push)  # at once: others reserve what it leaves

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        return await self._environment.threads.load_blobs(self._owned.agent_id, hashes)

    def _note_told(
        self, buffer: Batch, record: Record, kept: EncodedRecord, appended: Sequence[Record]
    ) -> None:
        """Note a record that the feed may tell, or that an index needs."""
        if status_in(record) is not None:
            buffer.status_noted = True
        if type(record) is MessagesArchived:
            buffer.message_runs = {**(buffer.message_runs or {}), **record.runs}
            return
        if (
            type(record) in MAY_DECIDE
            and self._agent.is_noted
            and "decided" in self._environment.threads.keeps
        ):
            buffer.decided += decided_in(record, appended, self._agent.ledger_state())
        if self._environment.threads.counts_usage and self._agent.is_noted:
            buffer.used += used_by(record, self._owned.agent, self._agent.ledger_state())
        if self._environment.threads.keeps_feed:
            row = feed_row(self._owned.agent, self._appended, record, kept)
            if row is not None:
                buffer.feed += (row,)

    # The keys of calls. Which call has one follows from the state, and what becomes of it is in the
    # commit of the record by which it does.

    @property
    def call_keys(self) -> CallKeys | None:
        return _StoredKeys(self) if "keys" in self._environment.threads.keeps else None

    def follow_keys(self) -> None:
        if self._keys is None:
            self._keys = open_keys(self._agent.ledger_state())

    def _note_keys(self, buffer: Batch, known: set[str]) -> None:
        """Note which of these calls are over that had a key."""
        state = self._agent.ledger_state()
        self._keys = open_keys(state)
        buffer.key_ends += key_ends(known, state)

    @property
    def threads(self) -> DatabaseThreads:
        """The threads of the store."""
        return self._environment.threads

    def check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def check(self, record: Record, *, spare: int = 0) -> None:
        """Raise `RecordRefused` if the record, with `spare` bytes more, could not be stored."""
        encode(record, max_bytes=self._environment.max_bytes - spare)

    async def durable(self) -> None:
        self.check_failure()
        if self._durable >= self._appended:
            return
        done = self.loop.create_future()
        # Registered before the records are handed over. `end` runs on this loop, so it cannot
        # come between the check above and this line.
        self._waiters += ((self._appended, done),)
        self.push(flush=True)
        await done
        # The store may have been away for longer than the lease: a tool whose start was committed
        # just now is not entered before the lease is renewed, so its caller waits for that here
        # (test_an_owner_goes_on_after_an_outage_that_is_longer_than_its_lease).
        await self._environment.lease.wait_until_settled(self._term)
        self.check_failure()

    async def settled(self) -> None:
        while self._durable < self._appended and not self._is_refused:
            ended = self.loop.create_future()
            self._waiters += ((self._durable + 1, ended),)
            self.push(flush=True)
            with suppress(StoreError):
                await ended

    async def note_index(self) -> None:
        await self.durable()
        noted = self.loop.create_future()
        # Told by whichever batch comes next: each has what the index says by then.
        self._waiters += ((self._appended, noted),)
        self.push(note=True, flush=True)
        await noted

    def write_checkpoints(self, loaded: Loaded | None) -> None:
        every = self._environment.checkpoint_every
        if every:
            state = self._agent.ledger_state()
            self._checkpoints = CheckpointWriter(state, loaded, every=every)

    def write_last_checkpoint(self) -> None:
        if self._checkpoints is None or self._failure is not None:
            return
        job = self._checkpoints.last(self.owned, self._agent.ledger_state())
        if job is not None:
            self.push()
            self._environment.committer.put_alone(job)

    def left_state(self) -> TakenState | None:
        """The state that its records fold to; None where it may be another one."""
        # Else the state is ahead of the store, which has refused what was appended last
        # (test_a_state_that_is_ahead_of_the_store_is_not_kept).
        if self._checkpoints is None or self.has_unflushed or self._at is None:
            return None
        owned = self.owned
        woken = self._checkpoints.left(owned, self._agent.ledger_state())
        # (test_a_state_of_which_no_checkpoint_can_be_written_is_not_kept)
        if woken is None:
            return None
        return TakenState(
            agent_id=owned.agent_id,
            incarnation=owned.incarnation,
            at=self._at,
            in_store=self._checkpoints.in_store,
            woken=woken,
        )

    def check_owner(self) -> None:
        self.check_failure()
        if not self._environment.lease.holds(self._term):
            raise Fenced(agent_id=self._owned.agent_id, why="this runtime's lease has ended")

    async def wait_for_owner(self) -> None:
        """Wait while the lease has run out and may still be renewed.

        On return this runtime is the owner, until the next `await`.

        Raises:
            Fenced: if it is lost, or not renewed for as long as the store is waited for.

        """
        if self._failure is None and not self._environment.lease.holds(self._term):
            await self._environment.lease.wait_until_settled(self._term)
        self.check_owner()

    def fence(self, why: str) -> None:
        """Write no more: the lease is lost. Its waiters get `Fenced`."""
        self._fail(Fenced(agent_id=self._owned.agent_id, why=why))

    def push(self, *, note: bool = False, flush: bool = False) -> None:
        """Have the committer take what was appended so far, in its next transaction.

        Args:
            note: also where nothing was appended: what the index says is to be told anew.
            flush: whether a caller waits for it. What other agents have appended goes with it.

        """
        if flush:
            self._push_others()
        buffer, committer = self._buffer, self._environment.committer
        if buffer is None:
            if not note:
                if flush:
                    with committer.lock:
                        committer.flush_now()
                return
            buffer = self._new_batch()
        buffer.entry = entry = self._agent.index_entry()
        buffer.asks_before = self._asked
        self._asked = told_of(entry.asks) if entry.asks else _NO_ASKS
        if self._keys is not None:
            self._note_keys(buffer, self._keys)
        job: CheckpointJob | None = None
        if self._checkpoints is not None and self._appended >= self._checkpoints.due:
            job = self._checkpoints.next(self.owned, self._agent.ledger_state())
        # Race: this against `take_batch` in the committer's thread. One hold of the lock, so that a
        # batch and its entry belong together, and a journal with records is always in the queue.
        with committer.lock:
            if self._queued is not None:
                self._queued.add(buffer)
            else:
                committer.put(self)
                self._queued = buffer
            if job is not None:  # in the same hold: a commit of its own would cost a sync
                committer.put(job)
            if flush:
                committer.flush_now()
        self._buffer = None

    def push_all(self) -> None:
        """Have the committer take what all agents of the store have appended so far.

        Who takes a key must find the keys that the calls of other agents have given back
        (test_who_takes_a_key_finds_what_other_agents_gave_back_last).
        """
        self._push_others()
        self.push()

    def _push_others(self) -> None:
        for other in self._environment.lingering.take():
            if other is self:
                continue
            try:
                other.push()
            except Exception as error:
                # (test_what_an_agent_cannot_tell_the_index_fails_no_other_agent)
                what = "the records of an agent could not be handed over"
                self.loop.call_exception_handler({"message": what, "exception": error})

    # ------------------------------------------------------ in the committer's thread

    def take_batch(self) -> Batch:
        batch, self._queued = self._queued, None
        assert batch is not None, "a journal in the queue has records, or an entry to note"
        return batch

    def is_committed(self, backend: Backend, batch: Batch | None) -> bool:
        assert batch is not None, "a journal in the queue has records"
        return backend.is_committed(batch)

    # ------------------------------------------------------------------- on the loop

    def end(self, batch: Batch | None, error: StoreError | None) -> None:
        if error is not None:
            # Later batches may be under way. The store refuses them, because their `first_seq` is
            # not the next number any more: what is durable stays a prefix of what was appended.
            self._is_refused = True
            self._fail(error)
            return
        assert batch is not None, "a journal in the queue has records"
        self._durable = batch.last_seq
        waiting, self._waiters = self._waiters, ()
        for seq, done in waiting:
            if seq > self._durable:
                self._waiters += ((seq, done),)
            elif not done.done():
                done.set_result(None)
        self._agent.on_durable(self._durable)
        spending = self._environment.threads.spending if batch.settlements else None
        if spending is not None:  # else the store was closed meanwhile
            spending.settled(batch.settlements)
        if batch.feed:
            self._environment.threads.feed_hint.tell()

    def _fail(self, error: StoreError) -> None:
        if self._failure is None:
            self._failure = error
        waiting, self._waiters = self._waiters, ()
        for _, done in waiting:
            if not done.done():
                done.set_exception(self._failure)


class _StoredKeys(KeysOfJournal):
    """The keys of calls in a database, for the calls of the agent of a journal."""

    _journal: AgentJournal

    def __init__(self, journal: AgentJournal) -> None:
        super().__init__(journal, journal.threads)
        self._threads = journal.threads
        self._backend = journal.threads.backend

    async def key_hash(self, key: str) -> str:
        return key_hash(key, await self._threads.key_secret())

    async def key_uses(self, key_hash: str, at: datetime) -> Sequence[KeyUse]:
        self._journal.push_all()
        return await self._threads.change(partial(self._backend.key_uses, key_hash, at))

    async def take_key(self, taking: KeyTaking) -> Sequence[KeyUse]:
        """Take a key for a call; see `CallKeys.take_key`.

        Raises:
            StoreUnavailable: if another host is about to take the key, and does not get further.

        """
        self._journal.check_failure()
        self._journal.follow_keys()
        self._journal.push_all()  # the reply that has made the call is in this commit, or before
        take = partial(self._backend.take_key, self._journal.owned, taking)
        end, pause = time.monotonic() + self._threads.patience, FIRST_PAUSE
        while (found := await self._threads.change(take)) is None:
            if time.monotonic() > end:
                raise StoreUnavailable(cause="another host is about to take the key of a call")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        self._journal.check_failure()
        return found

    async def free_key(self, key_hash: str, use: KeyUse) -> None:
        self._journal.push()
        await self._threads.change(partial(self._backend.free_key, key_hash, use))

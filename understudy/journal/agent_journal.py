"""`AgentJournal`: writes the records of one agent into a store that commits in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from understudy.errors import Fenced, StoreError
from understudy.journal.codec import MAX_RECORD_BYTES, EncodedRecord, encode
from understudy.journal.committer import Committer
from understudy.journal.contracts import Backend, Batch, IndexStatus, Owned
from understudy.journal.lease import Lease
from understudy.state.records import Record

__all__ = ["AgentJournal"]


class AgentJournal:
    """A journal that may be behind. Its methods are called on one event loop.

    What was appended is handed to the committer when the loop comes round, or when somebody waits
    for it: by then the records are folded, so `index_status` tells how the agent stands after them.

    Args:
        committer: whose next transaction takes the records.
        lease: checked before a tool is entered.
        owned: the epoch that it writes under.
        term: of the lease under which that was claimed.
        standing: how the agent stands now, for the index.
        on_durable: told, on the loop, the number of the newest durable record after each commit.

    """

    __slots__ = (
        "_appended",
        "_buffer",
        "_committer",
        "_durable",
        "_failure",
        "_in_flight",
        "_index_status",
        "_lease",
        "_max_bytes",
        "_on_durable",
        "_owned",
        "_pushing",
        "_queued",
        "_queued_index_status",
        "_taken_seq",
        "_term",
        "_waiters",
        "loop",
    )

    def __init__(
        self,
        committer: Committer,
        lease: Lease,
        owned: Owned,
        *,
        term: int,
        index_status: Callable[[], IndexStatus],
        on_durable: Callable[[int], None],
        max_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._committer = committer
        self._lease = lease
        self._term = term
        self._owned = owned
        self._index_status = index_status
        self._on_durable = on_durable
        self._max_bytes = max_bytes
        self._appended = self._durable = owned.last_seq
        self._buffer: list[EncodedRecord] = []
        self._pushing = False
        self._failure: StoreError | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        # Guarded by the committer's lock: what its next transaction takes.
        self._queued: list[EncodedRecord] = []
        self._queued_index_status = IndexStatus.REST
        self._taken_seq = owned.last_seq
        # Newest record of each batch that was taken and not settled: they settle in this order.
        self._in_flight: list[int] = []  # a deque takes 0.7 KB, though it is empty

    # ------------------------------------------------------------------- on the loop

    @property
    def owned(self) -> Owned:
        """The epoch that it writes under, with the number of its newest record."""
        return replace(self._owned, last_seq=self._appended)

    @property
    def has_unflushed(self) -> bool:
        return self._durable < self._appended

    def append(self, records: Sequence[Record]) -> None:
        if self._failure is not None:
            raise self._failure
        encoded = [encode(record, max_bytes=self._max_bytes) for record in records]
        self._buffer += encoded
        self._appended += len(encoded)
        if not self._pushing:
            self._pushing = True
            self.loop.call_soon(self._push)

    def check(self, record: Record, *, spare: int = 0) -> None:
        """Raise `RecordRefused` for what could not be kept, or not with so many bytes more."""
        encode(record, max_bytes=self._max_bytes - spare)

    async def durable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self.has_unflushed:
            return
        done = self.loop.create_future()
        self._waiters.append((self._appended, done))
        self._push()
        self._committer.flush_now()
        await done

    def check_owner(self) -> None:
        """Raise `Fenced` where another runtime may own the agent by now (J8)."""
        if self._failure is not None:
            raise self._failure
        if not self._lease.holds(self._term):
            raise Fenced(agent_id=self._owned.agent_id, why="this runtime's lease has ended")

    def fence(self, why: str) -> None:
        """Write no more: the lease is lost."""
        self._fail(Fenced(agent_id=self._owned.agent_id, why=why))

    def _push(self) -> None:
        self._pushing = False
        if not self._buffer:
            return
        index_status = self._index_status()
        with self._committer.lock:
            if not self._queued:
                self._committer.put(self)
            self._queued += self._buffer
            self._queued_index_status = index_status
        self._buffer = []

    # ---------------------------------------------------------- in the store's thread

    def take(self) -> Batch:
        owned, queued = self._owned, self._queued
        taken = Batch(
            agent_id=owned.agent_id,
            incarnation=owned.incarnation,
            epoch=owned.epoch,
            first_seq=self._taken_seq + 1,
            records=tuple(queued),
            index_status=self._queued_index_status,
        )
        self._taken_seq += len(queued)
        self._in_flight.append(self._taken_seq)
        self._queued = []
        return taken

    def work(self, backend: Backend) -> None:
        raise AssertionError("the records that were taken are appended with those of others")

    def is_done(self, backend: Backend, taken: Batch | None) -> bool:
        assert taken is not None, "a journal always has something to append"
        return backend.is_committed(taken)

    # ------------------------------------------------------------------- on the loop

    def settle(self, error: StoreError | None) -> None:
        if error is not None:
            self._fail(error)
            return
        self._durable = self._in_flight.pop(0)
        waiting, self._waiters = self._waiters, []
        for seq, done in waiting:
            if seq > self._durable:
                self._waiters.append((seq, done))
            elif not done.done():
                done.set_result(None)
        self._on_durable(self._durable)

    def _fail(self, error: StoreError) -> None:
        if self._failure is None:
            self._failure = error
        waiting, self._waiters = self._waiters, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(self._failure)

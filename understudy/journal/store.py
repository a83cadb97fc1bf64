"""`Store`: where a runtime keeps its agents. In memory, or in a database under a `Backend`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from tenacity import AsyncRetrying, stop_after_delay

from understudy._base.worker_threads import WorkerThreads
from understudy.errors import StoreUnavailable
from understudy.journal.agent_journal import AgentJournal
from understudy.journal.codec import MAX_RECORD_BYTES, EncodedRecord, decode, encode
from understudy.journal.committer import PAUSES, WHILE_AWAY, Change, Committer
from understudy.journal.contracts import Backend, Batch, IndexStatus, Journal, Owned, StoredAgent
from understudy.journal.lease import Lease
from understudy.state.records import Record

__all__ = ["DatabaseStore", "Loaded", "OwnedJournal", "Store"]

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for which a database that cannot be reached is tried again before runs are cut off."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class Loaded:
    """An agent's records, from its last snapshot on or above a number."""

    agent: StoredAgent
    first_seq: int
    records: tuple[Record, ...]


class OwnedJournal(Journal, Protocol):
    """A journal under an epoch."""

    @property
    def owned(self) -> Owned:
        """The epoch, with the number of the newest record that was appended."""

    def check_owner(self) -> None:
        """Raise `Fenced` where another runtime may own the agent by now (J8)."""

    def fence(self, why: str) -> None:
        """Write no more: the lease is lost."""


class Store(Protocol):
    """Keeps the records of many agents. Used on one event loop, the runtime's.

    Everything but `load` and `agents` is durable when it returns. A database that cannot be
    reached is tried again for some time; then its `StoreUnavailable` is raised.
    """

    async def open(self, on_lost: Callable[[], None]) -> None:
        """Begin. `on_lost` is called if the lease on the agents ends (J8).

        Raises:
            StoreInUse, StoreUnavailable, StoreBroken, SchemaVersionError: as of the backend.

        """

    async def close(self) -> None:
        """Commit what there is, give up what is owned, end."""

    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """As `Backend.claim`."""

    async def release(self, owned: Owned) -> None:
        """Give an agent up that another runtime may want."""

    def journal(
        self,
        owned: Owned,
        *,
        index_status: Callable[[], IndexStatus],
        on_durable: Callable[[int], None],
    ) -> OwnedJournal:
        """Where the owner writes. `on_durable` is told how far its records are durable."""

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        """The records of an agent above a number; None where there is no such agent."""

    def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        """The agents that stand so (None: all), by id."""

    async def compact(self, owned: Owned, snapshot: Record, index_status: IndexStatus) -> Owned:
        """Put a snapshot down in place of all records so far; nothing else is appended meanwhile.

        Returns:
            The same ownership, with the snapshot's number.

        """

    async def delete(self, agent_id: str) -> bool:
        """Delete an agent, leaving a tombstone; whether there was one."""


class DatabaseStore:
    """A store over a database: one thread writes, one reads, one keeps the lease.

    Args:
        backend: the database.
        patience: seconds for which it is tried again while it cannot be reached.
        max_record_bytes: a larger record is refused (J16).

    """

    def __init__(
        self,
        backend: Backend,
        *,
        patience: float = PATIENCE,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._backend = backend
        self._patience = patience
        self._max_bytes = max_record_bytes
        self._committer = Committer(backend, patience=patience)  # a new one each time it opens
        self._lease = Lease(backend)
        self._terms: dict[str, int] = {}
        """Under which lease an agent was claimed that has no journal yet."""
        self._reader = WorkerThreads(1)
        self._opener = WorkerThreads(1)

    @property
    def host(self) -> str:
        """What the index of the agents calls this runtime."""
        return self._backend.host

    @property
    def restored(self) -> bool:
        """Whether this is an older copy of a store that went on since."""
        return bool(getattr(self._backend, "restored", False))

    async def open(self, on_lost: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        self._committer = Committer(self._backend, patience=self._patience)
        self._lease = Lease(self._backend)

        def begin() -> None:
            self._backend.open()
            try:
                self._lease.begin(loop, on_lost)
            except BaseException:
                self._backend.close()
                raise

        await self._opener.run(begin)
        self._committer.start()

    async def close(self) -> None:
        def end() -> None:
            self._committer.stop()
            self._lease.end()
            self._backend.close()

        await self._opener.run(end)

    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        term = self._lease.term
        owned = await self._change(lambda backend: backend.claim(agent_id, agent))
        if owned is not None:
            self._terms[agent_id] = term
        return owned

    async def release(self, owned: Owned) -> None:
        self._terms.pop(owned.agent_id, None)
        if self._lease.is_shared:  # else nobody else can want it
            await self._change(lambda backend: backend.release(owned))

    def journal(
        self,
        owned: Owned,
        *,
        index_status: Callable[[], IndexStatus],
        on_durable: Callable[[int], None],
    ) -> AgentJournal:
        return AgentJournal(
            self._committer,
            self._lease,
            owned,
            term=self._terms.pop(owned.agent_id, self._lease.term),
            index_status=index_status,
            on_durable=on_durable,
            max_bytes=self._max_bytes,
        )

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        def loaded() -> Loaded | None:
            stored = self._backend.load(agent_id, after)
            if stored is None:
                return None
            # Here, in the thread: thousands of records would hold up the loop.
            records = tuple(decode(record) for record in stored.records)
            return Loaded(stored.agent, stored.first_seq, records)

        return await self._read(loaded)

    async def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        after = ""
        while True:
            page = await self._read(partial(self._backend.agents, index_statuses, after, PAGE))
            for agent in page:
                yield agent
            if len(page) < PAGE:
                return
            after = page[-1].agent_id

    async def compact(self, owned: Owned, snapshot: Record, index_status: IndexStatus) -> Owned:
        encoded: EncodedRecord = encode(snapshot, max_bytes=self._max_bytes)
        batch = Batch(
            agent_id=owned.agent_id,
            incarnation=owned.incarnation,
            epoch=owned.epoch,
            first_seq=owned.last_seq + 1,
            records=(encoded,),
            index_status=index_status,
        )
        await self._change(lambda backend: backend.compact(batch), batch)
        return Owned(
            agent_id=owned.agent_id,
            agent=owned.agent,
            incarnation=owned.incarnation,
            epoch=owned.epoch,
            last_seq=batch.first_seq,
        )

    async def delete(self, agent_id: str) -> bool:
        return await self._change(lambda backend: backend.delete(agent_id))

    async def _change(self, function: Callable[[Backend], T], batch: Batch | None = None) -> T:
        change = Change(function, batch)
        with self._committer.lock:
            self._committer.put(change)
        self._committer.flush_now()
        return await change.future

    async def _read(self, function: Callable[[], T]) -> T:
        try:
            return await self._reader.run(function)
        except StoreUnavailable as error:
            return await self._read_later(function, error)

    async def _read_later(self, function: Callable[[], T], first: StoreUnavailable) -> T:
        """The attempts after the first one, which has failed."""
        failure: StoreUnavailable | None = first
        retry = AsyncRetrying(
            retry=WHILE_AWAY,
            wait=PAUSES,
            stop=stop_after_delay(self._patience),
            reraise=True,
        )

        async def once() -> T:
            nonlocal failure
            if failure is not None:
                before, failure = failure, None
                raise before
            return await self._reader.run(function)

        return await retry(once)

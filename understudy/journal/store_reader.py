"""`StoreReader`: reads the agents of a database in a thread, also while a runtime writes to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tenacity import AsyncRetrying, stop_after_delay

from understudy._base.worker_threads import WorkerThreads
from understudy.errors import StoreUnavailable, UsageError
from understudy.journal.asks import StoredAsk
from understudy.journal.codec import decode
from understudy.journal.committer import BACKOFF, WHILE_UNAVAILABLE
from understudy.journal.contracts import Backend, IndexStatus, OpensToRead, StoredAgent
from understudy.journal.lists import AgentKey, AgentQuery, AskKey, AskQuery, ListIndex
from understudy.state.records import Record

T = TypeVar("T")

PAGE = 500
"""Agents that one query of the index returns at most."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The records of an agent above a number, or from its last snapshot on if that is higher."""

    agent: StoredAgent
    first_seq: int
    records: tuple[Record, ...]


class StoreReader:
    """Reads a database under a `Backend`, and writes nothing.

    Args:
        backend: the database.
        patience: seconds for which it is retried while it cannot be reached.

    """

    def __init__(self, backend: Backend, *, patience: float) -> None:
        self._backend = backend
        self._patience = patience
        # `run_in_executor` with a ThreadPoolExecutor(1) takes 1.10 to 1.17 times as long for a
        # read, and the interpreter joins its thread at exit, so a read that hangs would hang it.
        self._thread = WorkerThreads(1, name="understudy-reader")

    async def open(self) -> None:
        """Connect to a database that another process may have open, and take no lock.

        Raises:
            UsageError: if this kind of database cannot be opened so.
            StoreUnavailable, StoreBroken, StoreDamaged: if it cannot be read.
            SchemaVersionError: if another version of this library made the tables.

        """
        if not isinstance(self._backend, OpensToRead):
            raise UsageError(
                f"{self._backend!r} cannot be opened to read: it has no open_to_read()"
            )
        await self._thread.run(self._backend.open_to_read)

    async def close(self) -> None:
        """Disconnect what `open` has connected."""
        await self._thread.run(self._backend.close)

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        """As `Store.load`."""

        def load_and_decode() -> Loaded | None:
            stored = self._backend.load(agent_id, after)
            if stored is None:
                return None
            # In this thread: thousands of records would block the loop.
            records = tuple(decode(record) for record in stored.records)
            return Loaded(stored.agent, stored.first_seq, records)

        return await self.read(load_and_decode)

    async def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        """As `Store.agents`."""
        after = ""
        while True:
            page = await self.read(partial(self._backend.agents, index_statuses, after, PAGE))
            for agent in page:
                yield agent
            if len(page) < PAGE:
                return
            after = page[-1].agent_id

    async def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> Sequence[StoredAgent]:
        """As `ListStore.list_agents`."""
        return await self.read(partial(self._index.list_agents, query, after, limit))

    async def list_asks(
        self, query: AskQuery, after: AskKey | None, limit: int
    ) -> Sequence[StoredAsk]:
        """As `ListStore.list_asks`."""
        return await self.read(partial(self._index.list_asks, query, after, limit))

    async def count_agents(self) -> Mapping[str, int]:
        """As `ListStore.count_agents`."""
        return await self.read(self._index.count_agents)

    @property
    def _index(self) -> ListIndex:
        if not isinstance(self._backend, ListIndex):
            raise UsageError(f"{self._backend!r} cannot list: it has no list_agents()")
        return self._backend

    async def read(self, function: Callable[[], T]) -> T:
        """Call it in the reader's thread, again while the database cannot be reached."""
        try:
            return await self._thread.run(function)
        except StoreUnavailable as error:
            return await self._retry_read(function, error)

    async def _retry_read(self, function: Callable[[], T], first: StoreUnavailable) -> T:
        """The attempts after the first one, which has failed."""
        failure: StoreUnavailable | None = first
        retry = AsyncRetrying(
            retry=WHILE_UNAVAILABLE,
            wait=BACKOFF,
            stop=stop_after_delay(self._patience),
            reraise=True,
        )

        async def attempt() -> T:
            nonlocal failure
            if failure is not None:  # so that Tenacity waits before the next attempt
                raised, failure = failure, None
                raise raised
            return await self._thread.run(function)

        return await retry(attempt)

"""`StoreReader`: reads the agents of a database in a thread, also while a runtime writes to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tenacity import AsyncRetrying, stop_after_delay

from understudy._base.worker_threads import WorkerThreads
from understudy.errors import (
    StoreBroken,
    StoreDamaged,
    StoreUnavailable,
)
from understudy.journal.asks import StoredAsk
from understudy.journal.backend import PAGE, Backend
from understudy.journal.checkpoints import read_checkpoint
from understudy.journal.committer import BACKOFF, WHILE_UNAVAILABLE
from understudy.journal.contracts import IndexStatus, StoredAgent, StoredRecords
from understudy.journal.feed import FeedKey, FeedPage
from understudy.journal.lists import AgentKey, AgentQuery, AskKey, AskQuery
from understudy.journal.loaded import NEWEST, Loaded, decoded

T = TypeVar("T")


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
            SchemaVersionError: if the store has another format.

        """
        await self._thread.run(self._backend.open_to_read)

    async def close(self) -> None:
        """Disconnect what `open` has connected."""
        await self._thread.run(self._backend.close)

    @property
    def time_offset(self) -> float:
        """As of `Backend`."""
        return self._backend.time_offset

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        """As `Store.load`."""

        def load_and_decode() -> Loaded | None:
            stored = self._backend.load(agent_id, min(after, NEWEST))
            if stored is None:
                return None
            return decoded(stored)

        return await self.read(load_and_decode)

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        """As `PartStore.load_part`."""

        def load_and_decode() -> Loaded | None:
            stored = self._backend.load_part(agent_id, after, limit)
            return None if stored is None else decoded(stored)

        return await self.read(load_and_decode)

    async def load_latest(self, agent_id: str) -> Loaded | None:
        """As `CheckpointStore.load_latest`."""
        backend = self._backend

        def load_and_decode() -> Loaded | None:
            try:
                found = backend.load_latest(agent_id)
            except (StoreBroken, StoreDamaged):
                # The cache may be what is damaged. If it is the records, this raises the same.
                found = _without_checkpoint(backend.load(agent_id, 0))
            if found is None:
                return None
            checkpoint, stored = found
            if checkpoint is not None:
                state = read_checkpoint(checkpoint, stored.agent.incarnation)
                if state is not None and stored.first_seq == state.seq + 1:
                    return decoded(stored, state)
                found = _without_checkpoint(backend.load(agent_id, 0))
            return decoded(found[1]) if found is not None else None

        return await self.read(load_and_decode)

    async def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        """As `TextStore.has_text`."""
        return await self.read(partial(self._backend.has_text, agent_id, kinds, text))

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

    async def find_agents(self, agent_ids: Collection[str]) -> Sequence[StoredAgent]:
        """As `AgentFinder.find_agents`."""
        return await self.read(partial(self._backend.find_agents, agent_ids))

    async def load_blobs(
        self, agent_id: str, hashes: Collection[str] | None = None
    ) -> Mapping[str, bytes]:
        """As `BlobStore.load_blobs`."""
        return await self.read(partial(self._backend.load_blobs, agent_id, hashes))

    @property
    def indexes_messages(self) -> bool:
        """As `MessageStore.indexes_messages`."""
        return "messages" in self._backend.keeps

    async def message_runs(
        self, agent_id: str, message_ids: Collection[str] | None = None
    ) -> Mapping[str, str]:
        """As `MessageStore.message_runs`."""
        return await self.read(partial(self._backend.message_runs, agent_id, message_ids))

    async def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> Sequence[StoredAgent]:
        """As `ListStore.list_agents`."""
        return await self.read(partial(self._backend.list_agents, query, after, limit))

    async def list_asks(
        self, query: AskQuery, after: AskKey | None, limit: int
    ) -> Sequence[StoredAsk]:
        """As `ListStore.list_asks`."""
        return await self.read(partial(self._backend.list_asks, query, after, limit))

    async def count_agents(self) -> Mapping[str, int]:
        """As `ListStore.count_agents`."""
        return await self.read(self._backend.count_agents)

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        """As `FeedStore.read_feed`."""
        return await self.read(partial(self._backend.read_feed, after, limit))

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


def _without_checkpoint(stored: StoredRecords | None) -> tuple[None, StoredRecords] | None:
    return None if stored is None else (None, stored)

"""`StoreReads`: all that is read of a store, by whoever reads it; `DatabaseReads` in a thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from understudy._base.worker_threads import WorkerThreads
from understudy.errors import StoreBroken, StoreDamaged, StoreUnavailable
from understudy.journal.asks import StoredAsk
from understudy.journal.backend import PAGE, Backend
from understudy.journal.checkpoints import Checkpoint, read_checkpoint
from understudy.journal.codec import encode_again
from understudy.journal.committer import failed_once, while_unavailable
from understudy.journal.contracts import Deletion, IndexStatus, StoredAgent, StoredRecords
from understudy.journal.feed import FeedHint, FeedKey, FeedPage
from understudy.journal.kept import Kept, kept_by, not_kept
from understudy.journal.lists import (
    AgentKey,
    AgentQuery,
    AskedAt,
    AskGroup,
    AskKey,
    AskPlace,
    AskQuery,
)
from understudy.journal.loaded import NEWEST, Loaded, decoded
from understudy.journal.memory_index import MemoryIndex, unreadable_is_logged
from understudy.journal.notes import StoredNote
from understudy.journal.notices import NoticeState, StoredNotice
from understudy.journal.retirement import WholeAgent
from understudy.journal.shared import check_kept
from understudy.journal.troubles import GoneHost, Troubles
from understudy.state.trust_log import TrustFact

if TYPE_CHECKING:
    from understudy.journal.decided import DecidedKey, DecidedQuery, StoredDecided
    from understudy.journal.search import SearchState, StoredHit
    from understudy.journal.search_words import SearchQuery
    from understudy.journal.spending import CounterSums
    from understudy.journal.usage import Used

P = ParamSpec("P")
T = TypeVar("T")


class StoreReads(ABC):
    """The reading side of a store. Nothing is changed by it.

    Two methods are abstract. The other methods are made of them: they look at each agent, where a
    store with an index would find the agents directly.
    """

    keeps: Collection[Kept] = ()
    """The names of what is kept besides records and their index, as of `Backend`."""

    counts_usage: bool = False
    """Whether this host counts what requests to models use. It is set before the store opens."""
    patience: float | None = None
    """The number of seconds for which reads are retried during an outage; None if there are no
    outages."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def keeps_feed(self) -> bool:
        """Whether the feed is on, as far as this host knows."""
        return False

    @property
    def is_alone(self) -> bool:
        """Whether no other process writes to the store."""
        return False

    @property
    def time_offset(self) -> float:
        """The number of seconds by which the clock of the database is ahead of this machine's."""
        return 0.0

    @cached_property
    def feed_hint(self) -> FeedHint:
        """The signal that this process has added rows to the feed."""
        return FeedHint()

    # ------------------------------------------------------------------- an agent

    @abstractmethod
    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        """Return the records of an agent above a number; None if there is no such agent."""

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        """Return at most the first `limit` records of `load`."""
        loaded = await self.load(agent_id, after)
        return None if loaded is None else replace(loaded, records=loaded.records[:limit])

    async def load_latest(self, agent_id: str) -> Loaded | None:
        """Return the last checkpoint of an agent and the records after it; None without such an
        agent.

        If there is no usable checkpoint, all records are returned, as by `load`.
        """
        return await self.load(agent_id)

    async def load_whole(self, agent_ids: Collection[str]) -> Sequence[WholeAgent]:
        """Return everything that the store has of these agents, as `Backend.load_whole`."""
        found = []
        for agent_id in agent_ids:
            with unreadable_is_logged(agent_id):
                loaded = await self.load(agent_id)
                if loaded is not None:
                    blobs = await self.load_blobs(agent_id, None) if "files" in self.keeps else {}
                    runs = await self.message_runs(agent_id, None) if loaded.first_seq > 1 else {}
                    records = tuple(encode_again(record) for record in loaded.records)
                    stored = StoredRecords(
                        agent=loaded.agent, first_seq=loaded.first_seq, records=records
                    )
                    found.append(WholeAgent(stored, blobs, runs))
        return found

    async def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        """Return whether a record of the agent, of one of these kinds, may contain this
        ASCII text.
        """
        return True

    async def load_blobs(
        self, agent_id: str, hashes: Collection[str] | None
    ) -> Mapping[str, bytes]:
        """Return the bytes of the agent's files with these hashes, if they are kept; None = all
        files.

        Raises:
            UsageError: if the store keeps no files.

        """
        raise not_kept(self, "files")

    async def message_runs(
        self, agent_id: str, message_ids: Collection[str] | None
    ) -> Mapping[str, str]:
        """Return, by message id, the run that took the message, if it is kept; None = all
        messages.
        """
        return {}

    async def deletion(self, agent_id: str) -> Deletion | None:
        """Return the deletion of an agent; None if it is there or never was, as
        `Backend.deletion`.
        """
        return None

    async def notices(
        self, states: Sequence[NoticeState], after: int | None, limit: int
    ) -> Sequence[StoredNotice]:
        """Return notices, as `Backend.notices`; none if the store keeps none."""
        return ()

    # ------------------------------------------------------------------- many agents

    @abstractmethod
    def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        """Return the agents with one of these statuses (None = any), by id."""

    async def find_agents(self, agent_ids: Collection[str]) -> Sequence[StoredAgent]:
        """Return the entries of these agents in the index, if there are any, in any order."""
        found = [await self.load(id, NEWEST) for id in set(agent_ids)]
        return [loaded.agent for loaded in found if loaded is not None]

    async def find_agent(self, agent_id: str) -> StoredAgent | None:
        """Return the entry of an agent in the index; None if there is none."""
        return next(iter(await self.find_agents([agent_id])), None)

    async def due(self, until: datetime) -> AsyncIterator[StoredAgent]:
        """Return the agents that are due by this time, by due time."""
        index = MemoryIndex()
        async for stored in self.agents():
            index.put(stored, ())
        for stored in index.due(until):
            yield stored

    async def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> Sequence[StoredAgent]:
        """Return up to `limit` agents after a key."""
        return await self.ask_index(lambda index: index.list_agents(query, after, limit))

    async def list_asks(
        self, query: AskQuery, after: AskKey | None, limit: int
    ) -> Sequence[StoredAsk]:
        """Return up to `limit` asks after a key."""
        return await self.ask_index(lambda index: index.list_asks(query, after, limit))

    async def find_place(self, query: AskQuery, of: AskedAt) -> AskPlace:
        """Return the place of a request in a list, as `Backend.find_place`."""
        return await self.ask_index(lambda index: index.find_place(query, of))

    async def count_asks(self, query: AskQuery, times: Sequence[datetime]) -> Sequence[AskGroup]:
        """Return the number of like requests to persons, as `Backend.count_asks`."""
        return await self.ask_index(lambda index: index.count_asks(query, times))

    async def count_agents(self) -> Mapping[str, int]:
        """Return the number of agents by status."""
        return await self.ask_index(lambda index: index.count_agents())

    async def count_troubles(self, failed_since: datetime, expires_by: datetime) -> Troubles:
        """Return how much needs a person, as `Backend.count_troubles`."""
        return await self.ask_index(lambda index: index.count_troubles(failed_since, expires_by))

    async def gone_hosts(self, limit: int) -> Sequence[GoneHost]:
        """Return the hosts that ended and left open runs, as `Backend.gone_hosts`."""
        return ()

    async def ask_index(self, question: Callable[[Backend | MemoryIndex], T]) -> T:
        """Ask an index of all agents. Without an index every agent is loaded for it.

        An agent that cannot be read is logged, and listed without its requests.
        """
        index = MemoryIndex()
        async for stored in self.agents():
            index.put(stored, ())
            with unreadable_is_logged(stored.agent_id):
                loaded = await self.load_latest(stored.agent_id)
                if loaded is None:
                    index.remove(stored.agent_id)  # it is deleted meanwhile
                else:
                    index.put_loaded(loaded)
        return question(index)

    # ------------------------------------------------------------------- what was decided

    async def list_decided(
        self, query: DecidedQuery, after: DecidedKey | None, limit: int
    ) -> Sequence[StoredDecided]:
        """Return up to `limit` decisions after a key, the newest first.

        Raises:
            UsageError: if the store keeps no decisions.

        """
        raise not_kept(self, "decided")

    async def count_decided(self, query: DecidedQuery) -> int:
        """Return the number of decisions that `list_decided` would list."""
        raise not_kept(self, "decided")

    async def read_usage(self, first: int, end: int) -> Sequence[Used]:
        """Return the use of models by day, as `Backend.read_usage`.

        Raises:
            UsageError: if the store keeps no usage.

        """
        raise not_kept(self, "usage")

    # ------------------------------------------------------------------- the search

    async def search_state(self) -> SearchState:
        """Return whether there is an index of the search and how far it is, as
        `Backend.search_state`.
        """
        from understudy.journal.search import OFF

        return OFF

    async def search(
        self, query: SearchQuery, before: int | None, limit: int
    ) -> Sequence[StoredHit]:
        """Return the texts with these words, as `Backend.search`."""
        raise not_kept(self, "search")

    # ------------------------------------------------------------------- the feed

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        """Return rows of the feed, as `Backend.read_feed`."""
        return None

    # ------------------------------------------------------------------- the log of trust

    async def trust_after(self, number: int) -> Sequence[TrustFact]:
        """Return the facts of the log of trust above a number, as `Backend.trust_after`."""
        return ()

    # ------------------------------------------------------------------- beside requests

    async def notes(
        self, requests: Collection[tuple[str, str]], *, texts: bool
    ) -> Sequence[StoredNote]:
        """Return the notes beside requests, as `Backend.notes`; none if the store keeps none."""
        return ()

    # ------------------------------------------------------------------- what is spent

    async def stored_counters(self) -> Sequence[CounterSums]:
        """Return what a database has counted of budgets, for a reader beside its runtimes.

        A runtime asks `Store.spending` instead, which also knows what is about to be committed.
        """
        return ()


def of_backend(
    method: Callable[Concatenate[Any, P], T], *, by: Literal["read", "change", "beside"] = "read"
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method of a store that has a thread call this method of its backend.

    A change of what the backend does not keep is refused before it is in a transaction with
    others.

    Args:
        method: of the backend.
        by: the method of the store that gives it to the thread.

    """
    name = method.__name__
    changed = None if by == "read" else kept_by(name)

    @wraps(method, updated=())
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if changed is not None and changed not in self.backend.keeps:
            raise not_kept(self, changed)
        called = partial(getattr(self.backend, name), *args, **kwargs)
        result: T = await getattr(self, by)(called)
        return result

    return call


class DatabaseReads(StoreReads):
    """Reads a database under a `Backend`, in a thread, also while a runtime writes to it.

    Args:
        backend: the database.
        patience: seconds for which it is retried while it cannot be reached.

    """

    def __init__(self, backend: Backend, *, patience: float) -> None:
        self.keeps: Collection[Kept] = backend.keeps
        self.backend: Backend = backend
        self.patience: float = patience
        """Seconds for which the database is retried while it cannot be reached."""
        # `run_in_executor` with a ThreadPoolExecutor(1) takes 1.10 to 1.17 times as long for a
        # read, and the interpreter joins its thread at exit, so a read that hangs would hang it.
        self._reader = WorkerThreads(1, name="understudy-reader")
        from tenacity import AsyncRetrying

        self._retrying = AsyncRetrying(**while_unavailable(patience))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.backend.__class__.__name__}>"

    async def open_to_read(self) -> None:
        """Connect to a database that another process may have open, and take no lock.

        Raises:
            UsageError, StoreUnavailable, StoreBroken, StoreDamaged, SchemaVersionError: as of
                `Backend.open_to_read`.

        """
        check_kept(self.backend)
        await self._reader.run(self.backend.open_to_read)

    async def disconnect(self) -> None:
        """Disconnect what `open_to_read` has connected."""
        await self._reader.run(self.backend.close)
        self._reader.end_idle()

    @property
    def keeps_feed(self) -> bool:
        return self.backend.keeps_feed

    @property
    def time_offset(self) -> float:
        return self.backend.time_offset

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        return await self.read_records(
            lambda: _decoded(self.backend.load(agent_id, min(after, NEWEST)))
        )

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        return await self.read_records(
            lambda: _decoded(self.backend.load_part(agent_id, min(after, NEWEST), limit))
        )

    async def load_latest(self, agent_id: str) -> Loaded | None:
        def load() -> Loaded | None:
            checkpoint: Checkpoint | None = None
            try:
                checkpoint, stored = self.backend.load_latest(agent_id) or (None, None)
            except (StoreBroken, StoreDamaged):
                # The cache may be what is damaged. If it is the records, this raises the same.
                stored = self.backend.load(agent_id, 0)
            if checkpoint is not None and stored is not None:
                state = read_checkpoint(checkpoint, stored.agent.incarnation)
                if state is not None and stored.first_seq == state.seq + 1:
                    return decoded(stored, state)
                stored = self.backend.load(agent_id, 0)
            return _decoded(stored)

        return await self.read_records(load)

    load_whole: Final = of_backend(Backend.load_whole)
    has_text: Final = of_backend(Backend.has_text)
    load_blobs: Final = of_backend(Backend.load_blobs)
    deletion: Final = of_backend(Backend.deletion)
    message_runs: Final = of_backend(Backend.message_runs)
    find_agents: Final = of_backend(Backend.find_agents)
    gone_hosts: Final = of_backend(Backend.gone_hosts)
    list_decided: Final = of_backend(Backend.list_decided)
    count_decided: Final = of_backend(Backend.count_decided)
    read_usage: Final = of_backend(Backend.read_usage)
    search_state: Final = of_backend(Backend.search_state)
    search: Final = of_backend(Backend.search)
    read_feed: Final = of_backend(Backend.read_feed)
    notices: Final = of_backend(Backend.notices)
    trust_after: Final = of_backend(Backend.trust_after)
    notes: Final = of_backend(Backend.notes)

    async def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        after, is_last = "", False
        while not is_last:
            page = await self.read(partial(self.backend.agents, index_statuses, after, PAGE))
            for agent in page:
                yield agent
                after = agent.agent_id
            is_last = len(page) < PAGE

    async def due(self, until: datetime) -> AsyncIterator[StoredAgent]:
        after: tuple[datetime, str] | None = None
        is_last = False
        while not is_last:
            page = await self.read(partial(self.backend.due, until, after, PAGE))
            for agent in page:
                yield agent
                assert agent.due is not None, "the index finds agents by their due times"
                after = agent.due, agent.agent_id
            is_last = len(page) < PAGE

    async def ask_index(self, question: Callable[[Backend | MemoryIndex], T]) -> T:
        return await self.read(lambda: question(self.backend))

    async def stored_counters(self) -> Sequence[CounterSums]:
        if "spending" not in self.keeps:
            return ()
        return await self.read(partial(self.backend.counters, None))

    async def read_records(self, load: Callable[[], T]) -> T:
        """Load records: as `read`, unless more is to be waited for."""
        return await self.read(load)

    async def read(self, function: Callable[[], T]) -> T:
        """Call it in the reader's thread, again while the database cannot be reached."""
        return await self.run_in(self._reader, function)

    async def run_in(self, threads: WorkerThreads, function: Callable[[], T]) -> T:
        """As `read`, in other threads."""
        try:
            return await threads.run(function)
        except StoreUnavailable as error:
            attempts = failed_once(error, partial(threads.run, function))

            async def attempt() -> T:  # Tenacity awaits only what is declared as a coroutine
                return await attempts()

            return await self._retrying.copy()(attempt)


def _decoded(stored: StoredRecords | None) -> Loaded | None:
    return None if stored is None else decoded(stored)

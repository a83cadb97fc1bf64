"""`Store`: keeps the records of a runtime's agents, here in a database under a `Backend`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from understudy._base.log_fields import about
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import Fenced, StoreUnavailable, UnderstudyError, UsageError
from understudy.journal.agent_journal import AgentJournal, JournalEnvironment
from understudy.journal.asks import StoredAsk
from understudy.journal.checkpoint_writer import CHECKPOINT_EVERY
from understudy.journal.codec import MAX_RECORD_BYTES, encode
from understudy.journal.committer import Change, CommitListener, Committer
from understudy.journal.contracts import (
    Backend,
    Batch,
    CountsHosts,
    IndexEntry,
    IndexStatus,
    Journal,
    KeepsBlobs,
    KeepsCheckpoints,
    KeepsLostAttempts,
    LostAttempt,
    Owned,
    StatusIndex,
    StoredAgent,
)
from understudy.journal.feed import FeedHint, FeedIndex, FeedKey, FeedPage
from understudy.journal.hosts import HostedDefinition, SharesHosts
from understudy.journal.index_status import index_entry_of
from understudy.journal.lease import Lease
from understudy.journal.left_states import LeftStates
from understudy.journal.lists import AgentKey, AgentQuery, AskKey, AskQuery
from understudy.journal.shared import SharedBackend, SharedStore
from understudy.journal.shared_database import SharedDatabase
from understudy.journal.store_reader import NEWEST, PAGE, StoreReader
from understudy.journal.store_reader import Loaded as Loaded
from understudy.state.agent_state import AgentState, hashes_in
from understudy.state.blobs import in_use
from understudy.state.records import Record, Snapshot, StatusNoted

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for which a database that cannot be reached is retried, before runs are cut off."""


class Readable(Protocol):
    """The part of a store that reads."""

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        """As `Store.load`."""

    def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        """As `Store.agents`."""


async def load_latest(store: Readable, agent_id: str) -> Loaded | None:
    """The newest state of an agent, as short as the store can tell it; None if there is none."""
    if isinstance(store, CheckpointStore):
        return await store.load_latest(agent_id)
    return await store.load(agent_id)


def hashes_of(snapshot: Record) -> frozenset[str]:
    """The hashes of the files that a snapshot's state has."""
    assert isinstance(snapshot, Snapshot), "what takes the place of an agent's records"
    return hashes_in(snapshot.state)


async def find_agent(store: Readable, agent_id: str) -> StoredAgent | None:
    """What the index says of an agent now; None if there is none."""
    if isinstance(store, AgentFinder):
        return next(iter(await store.find_agents([agent_id])), None)
    loaded = await store.load(agent_id, NEWEST)
    return None if loaded is None else loaded.agent


class OwnedJournal(Journal, Protocol):
    """A journal under an epoch."""

    @property
    def owned(self) -> Owned:
        """The epoch, with the number of the newest record that was appended."""

    def check_owner(self) -> None:
        """Raise `Fenced` if another runtime may own the agent by now."""

    async def wait_for_owner(self) -> None:
        """Wait while the lease has run out and may still be renewed; then as `check_owner`."""

    def fence(self, why: str) -> None:
        """Write no more: the lease is lost. Every later call raises `Fenced`."""


@runtime_checkable
class IndexJournal(Protocol):
    """An optional part of a journal of a store that hosts share."""

    async def note_index(self) -> None:
        """Tell the index what it says of the agent now, though nothing was recorded."""


class Store(Protocol):
    """Keeps the records of many agents. Used on one event loop, the runtime's.

    The change of each method is durable when it returns. A database that cannot be reached is
    retried for some time; then its `StoreUnavailable` is raised.
    """

    async def open(self, on_lost: Callable[[], None]) -> None:
        """Connect. `on_lost` is called on the loop whenever the lease on the agents has ended.

        Raises:
            StoreInUse, StoreUnavailable, StoreBroken, SchemaVersionError: as of the backend.

        """

    async def close(self) -> None:
        """Commit what is queued, release the agents, disconnect."""

    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """As `Backend.claim`."""

    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        """As `Backend.release`, if other runtimes can use this store; else True.

        Args:
            owned: the claim to give up.
            lost: the attempt that another runtime cut off by taking over, if one did.

        """

    async def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        """The numbers of this run's attempts that were cut off so."""

    def journal(
        self,
        owned: Owned,
        *,
        index_entry: Callable[[], IndexEntry],
        on_durable: Callable[[int], None],
    ) -> OwnedJournal:
        """The journal in which the owner of an agent writes.

        Args:
            owned: the claim to write under.
            index_entry: gives what the index says of the agent now.
            on_durable: called after each commit, with the number of the newest durable record.

        """

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        """The records of an agent above a number; None if there is no such agent."""

    def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        """The agents with one of these statuses (None: any), by id."""

    async def compact(self, owned: Owned, snapshot: Record, entry: IndexEntry) -> Owned:
        """Replace all records so far by a snapshot. Nothing else may be appended meanwhile.

        Returns:
            The same claim, with the snapshot's number as its newest.

        """

    async def delete(self, agent_id: str) -> bool:
        """Delete an agent, but keep a tombstone. Returns whether there was such an agent."""


@runtime_checkable
class DueStore(Protocol):
    """An optional part of a store: it finds the agents that are due.

    Without it, a runtime knows when the agents are due that it has had in memory, and no others.
    """

    def due(self, until: datetime) -> AsyncIterator[StoredAgent]:
        """The agents that are due by this time, by due time."""

    async def index_agents(self) -> None:
        """Index the agents whose records an older version of this library has written last."""


@runtime_checkable
class AgentFinder(Protocol):
    """An optional part of a store: it tells what its index says of some agents, by their ids."""

    async def find_agents(self, agent_ids: Collection[str]) -> Sequence[StoredAgent]:
        """Those of these agents that there are, in any order."""


@runtime_checkable
class CheckpointStore(Protocol):
    """An optional part of a store: it keeps checkpoints, from which agents are activated."""

    async def load_latest(self, agent_id: str) -> Loaded | None:
        """The last checkpoint of an agent, and the records after it; None if there is none.

        All records, as by `load`, where it has no checkpoint that can be used.
        """


@runtime_checkable
class BlobStore(Protocol):
    """An optional part of a store, or of what reads one: it keeps the bytes of agents' files."""

    async def load_blobs(
        self, agent_id: str, hashes: Collection[str] | None = None
    ) -> Mapping[str, bytes]:
        """Those with these hashes that there are; None = all of the agent.

        Raises:
            UsageError: if its backend keeps none.

        """


@runtime_checkable
class BlobJournal(Protocol):
    """An optional part of a journal: it keeps the bytes of files beside the records."""

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Keep them, by their hashes, in the commit of the records that are appended last.

        Raises:
            UsageError: if its backend keeps none.

        """

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        """Those of them that are kept."""


@runtime_checkable
class TextStore(Protocol):
    """An optional part of a store: it looks for a text in records, and brings none of them."""

    async def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        """Whether a record of the agent, of one of these kinds, may have this ASCII text in it."""


@runtime_checkable
class CheckpointJournal(Protocol):
    """An optional part of a journal: it writes checkpoints."""

    def write_checkpoints(self, state: Callable[[], AgentState], loaded: Loaded | None) -> None:
        """Write them from now on, each with the records of a commit.

        Args:
            state: gives the state that all appended records fold to.
            loaded: from what it was folded when the agent woke; None if it is new.

        """

    def write_last_checkpoint(self) -> None:
        """The agent leaves memory: write one if enough was recorded since the last. Never waits.

        Whoever claims the agent afterwards finds it.
        """


@runtime_checkable
class HostStore(Protocol):
    """An optional part of a store that hosts share: they know of each other.

    See `understudy.journal.hosts.SharesHosts`.
    """

    @property
    def knows_hosts(self) -> bool:
        """Whether it does."""

    def introduce(self, labels: Collection[str]) -> None:
        """Before `open`: what this host has."""

    async def register(self, definitions: Sequence[HostedDefinition]) -> None:
        """Which definitions this host has."""

    async def claim_to_keep(self, agent_id: str, agent: str) -> Owned | None:
        """As `Store.claim`, also of an agent that this host must not run."""

    async def give(
        self,
        agent_id: str,
        agent: str,
        created: Record | None,
        needs: Collection[str] | None = None,
    ) -> str | None:
        """Make another host that may run an agent its owner."""

    async def set_draining(self) -> None:
        """This host takes no agents any more."""

    async def wait_for_dead_hosts(self) -> None:
        """Wait until a host may have left something that this one was not told of.

        A lease has ended, or was ended here because its process has ended; a host has closed; or
        an agent may have been given to this host while it did not hear the others.
        """


class DatabaseStore:
    """A store in a database: one thread writes, one reads, one renews, one opens and closes.

    Args:
        backend: the database.
        patience: seconds for which it is retried while it cannot be reached.
        max_record_bytes: a larger record is refused.
        checkpoint_every: records that an agent adds between two checkpoints of its state, at least;
            before it leaves memory, a quarter of them. It is activated from the last one. 0 = none.

    """

    def __init__(
        self,
        backend: Backend,
        *,
        patience: float = PATIENCE,
        max_record_bytes: int = MAX_RECORD_BYTES,
        checkpoint_every: int = CHECKPOINT_EVERY,
    ) -> None:
        if type(checkpoint_every) is not int or checkpoint_every < 0:
            raise UsageError(f"`checkpoint_every` must be 0 or more, got {checkpoint_every!r}")
        self._backend = backend
        self._checkpoint_every = checkpoint_every if isinstance(backend, KeepsCheckpoints) else 0
        self._patience = patience
        self._max_bytes = max_record_bytes
        self._committer = Committer(backend, patience=patience)  # a new one each time it opens
        self._lease = Lease(backend, patience=patience)
        # The term in which each agent was claimed that has no journal yet: the lease may end before
        # it has one (test_what_was_claimed_under_a_lease_that_ended_meanwhile_is_lost).
        self._terms: dict[str, int] = {}
        self._indexed_after: tuple[int | None, int | None] = (None, None)
        """How many hosts there had been when the agents of older ones were indexed last, twice."""
        self._journals: JournalEnvironment  # as the committer; there is none before
        self.reader: StoreReader = StoreReader(backend, patience=patience)
        self._load_blobs = self.reader.load_blobs if isinstance(backend, KeepsBlobs) else None
        self.feed_hint: FeedHint = FeedHint()
        # Looked up once: to ask whether an object has a protocol takes as long as a record.
        self._feed = backend if isinstance(backend, FeedIndex) else None
        self._hosts = backend if isinstance(backend, SharesHosts) else None
        self._opener = WorkerThreads(1, name="understudy-opener")
        self._left = LeftStates()
        self.shared: SharedStore | None = None
        """What hosts that share the database have of it; None where it is for one host."""
        if isinstance(backend, SharedBackend):
            self.shared = SharedDatabase(
                backend,
                self.reader,
                self._change,
                self._claim,
                self._missed,
                self._left,
            )

    @property
    def queued(self) -> int:
        """How many jobs wait for the next commit."""
        return self._committer.queued

    def tell_commits(self, listener: CommitListener | None) -> None:
        """Call this in the committer's thread after each transaction, until the store is closed.

        It must neither raise nor block.
        """
        self._committer.on_commit = listener

    @property
    def host(self) -> str:
        """The name of this runtime in the index of the agents."""
        return self._backend.host

    @property
    def restored(self) -> bool:
        """Whether this is an older copy of the store: what its agents did since then is unknown."""
        return bool(getattr(self._backend, "restored", False))

    async def open(self, on_lost: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        self._committer = Committer(self._backend, patience=self._patience)
        self._lease = Lease(self._backend, patience=self._patience)
        self._journals = JournalEnvironment(
            self._committer,
            self._lease,
            max_bytes=self._max_bytes,
            feed=self,
            checkpoint_every=self._checkpoint_every,
            load_blobs=self._load_blobs,
        )

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

        self._left.clear()
        await self._opener.run(end)

    @property
    def knows_hosts(self) -> bool:
        return self._hosts is not None

    def introduce(self, labels: Collection[str]) -> None:
        if self._hosts is not None:
            self._hosts.introduce(labels)

    async def register(self, definitions: Sequence[HostedDefinition]) -> None:
        hosts = self._hosts
        if hosts is not None:
            await self._change(lambda _: hosts.register(definitions))

    async def give(
        self,
        agent_id: str,
        agent: str,
        created: Record | None,
        needs: Collection[str] | None = None,
    ) -> str | None:
        hosts = self._hosts
        if hosts is None:
            return None
        first = None if created is None else encode(created, max_bytes=self._max_bytes)
        return await self._change(lambda _: hosts.give(agent_id, agent, first, needs))

    async def set_draining(self) -> None:
        hosts = self._hosts
        if hosts is not None:
            await self._change(lambda _: hosts.set_draining())

    def _missed(self) -> None:
        self._lease.dead_hosts.set()  # each time that the store opens it has another lease

    async def wait_for_dead_hosts(self) -> None:
        await self._lease.dead_hosts.wait()
        self._lease.dead_hosts.clear()

    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        return await self._claim(agent_id, lambda backend: backend.claim(agent_id, agent))

    async def claim_to_keep(self, agent_id: str, agent: str) -> Owned | None:
        hosts = self._hosts
        if hosts is None:
            return await self.claim(agent_id, agent)
        return await self._claim(agent_id, lambda _: hosts.claim_to_keep(agent_id, agent))

    async def _claim(self, agent_id: str, claim: Callable[[Any], Owned | None]) -> Owned | None:
        # Race: this against the end of the lease. The term from before the claim: a lease that ends
        # while the claim is under way takes the claim with it
        # (test_a_lease_that_ends_while_a_claim_is_under_way_takes_the_claim_with_it).
        # It has begun: else the claim would be refused under it, and wait for the end of it
        # (test_a_claim_between_two_leases_is_made_under_the_next_one).
        term = await self._lease.wait_until_begun()
        try:
            owned = await self._change(claim)
        except Fenced:
            # The lease was lost, of other agents. Before the heartbeat knows that and begins the
            # next one, every claim would be refused
            # (test_a_claim_that_finds_the_lease_lost_is_made_under_the_next_one).
            await self._lease.wait_for_next(term)
            if self._lease.term == term:
                raise  # not in time, or the store is closed
            return await self._claim(agent_id, claim)
        if owned is not None:
            self._terms[agent_id] = term
        # The lease holds in the database, but the heartbeat may not have its answer yet.
        await self._lease.wait_until_settled(term)
        return owned

    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        self._terms.pop(owned.agent_id, None)

        def release(backend: Backend) -> bool:
            is_own = backend.release(owned)
            if lost is not None and isinstance(backend, KeepsLostAttempts):
                backend.note_lost_attempt(owned.agent_id, lost)
            return is_own

        # Else no other runtime can claim it.
        return await self._change(release) if self._lease.is_shared else True

    async def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        backend = self._backend
        if not self._lease.is_shared or not isinstance(backend, KeepsLostAttempts):
            return frozenset()
        return await self.reader.read(partial(backend.lost_attempts, agent_id, run_id))

    def journal(
        self,
        owned: Owned,
        *,
        index_entry: Callable[[], IndexEntry],
        on_durable: Callable[[int], None],
    ) -> AgentJournal:
        self._left.forget(owned.agent_id)  # it is in memory again
        return AgentJournal(
            self._journals,
            owned,
            term=self._terms.pop(owned.agent_id, self._lease.term),
            index_entry=index_entry,
            on_durable=on_durable,
        )

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        loaded = await self.reader.load(agent_id, after)
        # After an outage the read may be through before the heartbeat is.
        await self._lease.wait_until_settled(self._lease.term)
        return loaded

    async def load_blobs(
        self, agent_id: str, hashes: Collection[str] | None = None
    ) -> Mapping[str, bytes]:
        return await self.reader.load_blobs(agent_id, hashes)

    async def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        return await self.reader.has_text(agent_id, kinds, text)

    async def load_latest(self, agent_id: str) -> Loaded | None:
        loaded, left = None, self._left.find(agent_id)
        if left is not None:
            shared = cast("SharedBackend", self._backend)  # else no other host takes anything
            loaded = await self.reader.read(partial(left.read, shared))
            if loaded is None and self._left.find(agent_id) is left:
                self._left.forget(agent_id)
        if loaded is None:
            loaded = await self.reader.load_latest(agent_id)
        await self._lease.wait_until_settled(self._lease.term)  # as `load`
        return loaded

    def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        return self.reader.agents(index_statuses)

    async def find_agents(self, agent_ids: Collection[str]) -> Sequence[StoredAgent]:
        return await self.reader.find_agents(agent_ids)

    async def due(self, until: datetime) -> AsyncIterator[StoredAgent]:
        index = self._backend
        if not isinstance(index, StatusIndex):
            return
        after: tuple[datetime, str] | None = None
        while True:
            page = await self.reader.read(partial(index.due, until, after, PAGE))
            for agent in page:
                yield agent
            if len(page) < PAGE:
                return
            last = page[-1]
            assert last.due is not None, "the index finds agents by their due times"
            after = (last.due, last.agent_id)

    async def index_agents(self) -> None:
        index, after = self._backend, ""
        if not isinstance(index, StatusIndex):
            return
        hosts: int | None = None
        if isinstance(index, CountsHosts):
            hosts = await self.reader.read(index.hosts_so_far)
        # All agents are looked at: so this is done only where a host of an older version is there,
        # or may have come and gone since. Twice, for one that was counted and not seen yet
        # (test_agents_are_looked_at_only_while_a_host_of_an_older_version_may_write).
        if hosts is not None and self._indexed_after == (hosts, hosts):
            return
        while page := await self.reader.read(partial(index.unindexed, after, PAGE)):
            for agent in page:
                await self._index(agent)
            after = page[-1].agent_id
        self._indexed_after = (self._indexed_after[1], hosts)

    async def _index(self, agent: StoredAgent) -> None:
        try:
            if agent.damage is not None:
                raise agent.damage
            loaded = await self.load_latest(agent.agent_id)
            if loaded is None or loaded.agent.last_seq != agent.last_seq:
                return  # its owner has written since, and has indexed it
            state = loaded.folded()
            with loaded.as_damage():
                entry = index_entry_of(state)
        except StoreUnavailable:
            raise
        except UnderstudyError as error:
            logger.error(
                "agent %r cannot be read: %r", agent.agent_id, error, extra=about(agent.agent_id)
            )
            return
        noted = (record.at for record in reversed(loaded.records) if type(record) is StatusNoted)
        status_at = next(noted, None)

        def note(backend: Backend) -> None:
            assert isinstance(backend, StatusIndex), "checked before its agents were read"
            backend.note_index(agent, entry, status_at)

        await self._change(note)

    async def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> Sequence[StoredAgent]:
        return await self.reader.list_agents(query, after, limit)

    async def list_asks(
        self, query: AskQuery, after: AskKey | None, limit: int
    ) -> Sequence[StoredAsk]:
        return await self.reader.list_asks(query, after, limit)

    async def count_agents(self) -> Mapping[str, int]:
        return await self.reader.count_agents()

    async def compact(self, owned: Owned, snapshot: Record, entry: IndexEntry) -> Owned:
        batch = Batch(
            agent_id=owned.agent_id,
            incarnation=owned.incarnation,
            epoch=owned.epoch,
            first_seq=owned.last_seq + 1,
            records=(encode(snapshot, max_bytes=self._max_bytes),),
            index_status=entry.status,
            due=entry.due,
            agent_status=entry.agent_status,
            at=snapshot.at,
            asks=entry.asks,
            run_version=entry.run_version,
            takeable=entry.takeable,
            blobs_in_use=await self._blobs_in_use(owned.agent_id, hashes_of(snapshot)),
        )
        await self._change(lambda backend: backend.compact(batch), batch)
        return replace(owned, last_seq=batch.first_seq)

    async def _blobs_in_use(self, agent_id: str, hashes: Collection[str]) -> Collection[str]:
        """What the files with these hashes consist of. Nothing else is appended meanwhile."""
        return in_use(hashes, await self.load_blobs(agent_id, hashes)) if hashes else ()

    async def delete(self, agent_id: str) -> bool:
        def delete(backend: Any) -> bool:
            existed: bool = (
                backend.delete(agent_id)
                if self.shared is None
                else backend.take_to_delete(agent_id)
            )
            return existed

        existed = await self._change(delete)
        self._left.forget(agent_id)
        self.feed_hint.tell()
        return existed

    @property
    def keeps_feed(self) -> bool:
        """Whether its feed is on, as far as this host knows."""
        return self._feed is not None and self._feed.keeps_feed

    async def turn_feed(self, on: bool) -> None:
        await self._change(lambda _: self._feed_index.turn_feed(on))

    async def trim_feed(self, before: datetime, keep: int) -> None:
        await self._change(lambda _: self._feed_index.trim_feed(before, keep))

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        return await self.reader.read_feed(after, limit)

    @property
    def _feed_index(self) -> FeedIndex:
        assert self._feed is not None, "checked before the feed is used"
        return self._feed

    async def _change(self, function: Callable[[Backend], T], batch: Batch | None = None) -> T:
        change = Change(function, batch)
        with self._committer.lock:
            self._committer.put(change)
            self._committer.flush_now()
        return await change.future

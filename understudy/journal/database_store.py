"""`DatabaseStore`: a store in a database under a `Backend`, with the threads that use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from understudy._base.clock import Clock, SystemClock
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import Fenced, StoreBroken, UsageError
from understudy.journal.agent_journal import AgentJournal, JournalEnvironment
from understudy.journal.asks import StoredAsk
from understudy.journal.backend import PAGE, Backend
from understudy.journal.checkpoint_writer import CHECKPOINT_EVERY
from understudy.journal.codec import MAX_RECORD_BYTES, encode
from understudy.journal.committer import Change, Changes, CommitListener, Committer
from understudy.journal.contracts import (
    Batch,
    IndexEntry,
    IndexStatus,
    Journal,
    LostAttempt,
    Owned,
    StoredAgent,
)
from understudy.journal.feed import FeedHint, FeedKey, FeedPage
from understudy.journal.lease import Lease
from understudy.journal.lists import AgentKey, AgentQuery, AskKey, AskQuery
from understudy.journal.loaded import Loaded
from understudy.journal.shared import (
    Hint,
    HostedDefinition,
    Notified,
    Place,
    Post,
    Posted,
    PostState,
    Sent,
    SharedBackend,
    SharedStore,
    Taken,
    Wanted,
)
from understudy.journal.store import hashes_of
from understudy.journal.store_reader import StoreReader
from understudy.journal.stored_keys import StoredKeys
from understudy.journal.taken_states import TakenStates
from understudy.state.blobs import in_use
from understudy.state.records import Record

T = TypeVar("T")
_LEFT = str(Hint("left"))
FEW_RECORDS = 64
"""So many, at most, are read with a claim."""


class SharedDatabase:
    """A `SharedStore` over the threads of a store.

    Args:
        backend: the database.
        reader: of the store.
        change: has the writer's thread do something in the next transaction.
        claim: claims an agent by a function of the backend, under the lease of the store.
        missed: called on the loop where this host did not hear the others for a while, or one of
            them has left something.
        left: the states of agents that other hosts have taken.

    """

    def __init__(
        self,
        backend: SharedBackend,
        reader: StoreReader,
        change: Changes,
        claim: Callable[[str, Callable[[Any], Taken | None]], Awaitable[Taken | None]],
        missed: Callable[[], None],
        left: TakenStates,
    ) -> None:
        self._backend = backend
        self._reader = reader
        self._change = change
        self._claim = claim
        self._missed = missed
        self._left = left

    @property
    def host_id(self) -> int | None:
        return self._backend.host_id

    @property
    def time_offset(self) -> float:
        return self._backend.time_offset

    def listen(self, notified: Notified | None) -> None:
        if notified is None:
            self._backend.listen(None)
            return
        loop = asyncio.get_running_loop()

        def tell(text: str | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, and its runtime with it
                loop.call_soon_threadsafe(notified, text)
                if text in (None, _LEFT):
                    loop.call_soon_threadsafe(self._missed)

        self._backend.listen(tell)

    async def take(
        self,
        agent_id: str,
        agent: str | None,
        *,
        at_rest: bool = True,
        creates: bool = True,
        loads: bool = False,
    ) -> Taken | None:
        left = self._left.find(agent_id) if loads else None

        def take(backend: SharedBackend) -> Taken | None:
            owned = backend.take(agent_id, agent, at_rest=at_rest, creates=creates)
            if owned is None:
                return None
            # Here and not in the reader's thread, which would have to wait for the claim: a few
            # records are decoded while the others wait for their commit.
            if left is None or owned.last_seq - left.woken.seq > FEW_RECORDS:
                return Taken(owned)
            return Taken(owned, left.read(backend.load_claimed))

        try:
            return await self._claim(agent_id, take)
        except StoreBroken:
            # If it is that read, the commits beside it broke, too: the next one is made apart
            # (test_a_read_that_breaks_a_claim_is_not_made_with_the_next_one).
            self._left.forget(agent_id)
            raise

    async def post(self, agent_id: str, incarnation: int, posts: Sequence[Post]) -> list[int]:
        return await self._change(lambda backend: backend.post(agent_id, incarnation, posts))

    async def begin_post(self, id: int, attempt: str) -> bool:
        return await self._change(lambda backend: backend.begin_post(id, attempt))

    async def reply(self, id: int, reply: bytes) -> None:
        await self._change(lambda backend: backend.reply(id, reply))

    async def remove_posts(self, ids: Sequence[int]) -> None:
        await self._change(lambda backend: backend.remove_posts(ids))

    async def withdraw(self, ids: Sequence[int]) -> Mapping[int, bool]:
        return await self._change(lambda backend: backend.withdraw(ids))

    async def retell(self, id: int) -> None:
        await self._change(lambda backend: backend.retell(id))

    async def delete_lost_replies(self) -> None:
        await self._change(lambda backend: backend.delete_lost_replies())

    async def tell(self, host_id: int, hint: Hint) -> None:
        await self._change(lambda backend: backend.tell(host_id, hint))

    async def posted(self, wanted: Wanted) -> Sequence[Posted]:
        return await self._reader.read(partial(self._backend.posted, wanted))

    async def post_states(self, ids: Sequence[int]) -> Mapping[int, PostState]:
        return await self._reader.read(partial(self._backend.post_states, ids))

    async def place(self, agent_id: str) -> Place | None:
        return await self._reader.read(partial(self._backend.place, agent_id))

    async def epochs(self, agent_ids: Sequence[str]) -> Mapping[str, int]:
        return await self._reader.read(partial(self._backend.epochs, agent_ids))

    async def orphans(self, limit: int) -> Sequence[tuple[str, str]]:
        return await self._reader.read(partial(self._backend.orphans, limit))

    def keep_left(self, journal: Journal) -> None:
        if isinstance(journal, AgentJournal):
            left = journal.left_state()
            if left is not None:
                self._left.keep(left)

    async def send(self, sent: Sequence[Sent]) -> None:
        await self._reader.read(partial(self._backend.send, sent))


PATIENCE = 30.0
"""Seconds for which a database that cannot be reached is retried, before runs are cut off."""


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
        self._checkpoint_every = checkpoint_every if "checkpoints" in backend.keeps else 0
        self._patience = patience
        self._max_bytes = max_record_bytes
        self._committer = Committer(backend, patience=patience)  # a new one each time it opens
        self._lease = Lease(backend, patience=patience)
        # The term in which each agent was claimed that has no journal yet: the lease may end before
        # it has one (test_what_was_claimed_under_a_lease_that_ended_meanwhile_is_lost).
        self._terms: dict[str, int] = {}
        self._journals: JournalEnvironment  # as the committer; there is none before
        self.reader: StoreReader = StoreReader(backend, patience=patience)
        self._load_blobs = self.reader.load_blobs if "files" in backend.keeps else None
        self._keys = None
        if "keys" in backend.keeps:
            self._keys = StoredKeys(backend, self.reader, self._change, patience=patience)
        self.feed_hint: FeedHint = FeedHint()
        self.feed_clock: Clock = SystemClock()
        self._hosts = backend if isinstance(backend, SharedBackend) else None
        self._opener = WorkerThreads(1, name="understudy-opener")
        self._left = TakenStates()
        self.shared: SharedStore | None = None
        """What hosts that share the database have of it; None where it is for one host."""
        if isinstance(backend, SharedBackend):
            self.shared = SharedDatabase(
                backend, self.reader, self._change, self._claim, self._missed, self._left
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
        return self._backend.restored

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
            keys=self._keys,
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

    async def _claim(self, agent_id: str, claim: Callable[[Any], T | None]) -> T | None:
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
            if lost is not None and isinstance(backend, SharedBackend):
                backend.note_lost_attempt(owned.agent_id, lost)
            return is_own

        # Else no other runtime can claim it.
        return await self._change(release) if self._lease.is_shared else True

    async def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        if self._hosts is None:
            return frozenset()
        return await self.reader.read(partial(self._hosts.lost_attempts, agent_id, run_id))

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

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        loaded = await self.reader.load_part(agent_id, after, limit)
        await self._lease.wait_until_settled(self._lease.term)  # as `load`
        return loaded

    async def load_blobs(
        self, agent_id: str, hashes: Collection[str] | None = None
    ) -> Mapping[str, bytes]:
        return await self.reader.load_blobs(agent_id, hashes)

    @property
    def indexes_messages(self) -> bool:
        """As `MessageStore.indexes_messages`."""
        return self.reader.indexes_messages

    async def message_runs(
        self, agent_id: str, message_ids: Collection[str] | None = None
    ) -> Mapping[str, str]:
        """As `MessageStore.message_runs`."""
        return await self.reader.message_runs(agent_id, message_ids)

    async def delete_old_keys(self, before: datetime) -> None:
        """As `KeyStore.delete_old_keys`."""
        if self._keys is not None:
            await self._keys.delete_old(before)

    async def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        return await self.reader.has_text(agent_id, kinds, text)

    async def load_latest(self, agent_id: str) -> Loaded | None:
        loaded, left = None, self._left.find(agent_id)
        if left is not None:
            shared = cast("SharedBackend", self._backend)  # else no other host takes anything
            loaded = await self.reader.read(partial(left.read, shared.load_behind))
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
        after: tuple[datetime, str] | None = None
        while True:
            page = await self.reader.read(partial(self._backend.due, until, after, PAGE))
            for agent in page:
                yield agent
            if len(page) < PAGE:
                return
            last = page[-1]
            assert last.due is not None, "the index finds agents by their due times"
            after = (last.due, last.agent_id)

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
        at = self.feed_clock.now() if self.keeps_feed else None

        def delete(backend: Any) -> bool:
            existed: bool = (
                backend.delete(agent_id)
                if self.shared is None
                else backend.take_to_delete(agent_id)
            )
            if existed and at is not None:
                backend.add_deletion(agent_id, at)
            return existed

        existed = await self._change(delete)
        self._left.forget(agent_id)
        if existed and at is not None:
            self.feed_hint.tell()
        return existed

    @property
    def keeps_feed(self) -> bool:
        """Whether its feed is on, as far as this host knows."""
        return self._backend.keeps_feed

    async def turn_feed(self, on: bool) -> None:
        await self._change(lambda backend: backend.turn_feed(on))

    async def trim_feed(self, before: datetime, keep: int) -> None:
        await self._change(lambda backend: backend.trim_feed(before, keep))

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        return await self.reader.read_feed(after, limit)

    async def _change(self, function: Callable[[Backend], T], batch: Batch | None = None) -> T:
        change = Change(function, batch)
        with self._committer.lock:
            self._committer.put(change)
            self._committer.flush_now()
        return await change.future

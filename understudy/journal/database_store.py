"""`DatabaseStore`: a store in a database under a `Backend`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from understudy._base.pieces import in_pieces
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import UsageError
from understudy.journal.agent_journal import AgentJournal, JournalEnvironment
from understudy.journal.backend import Backend
from understudy.journal.checkpoint_writer import CHECKPOINT_EVERY
from understudy.journal.codec import MAX_RECORD_BYTES, encode
from understudy.journal.contracts import Batch, IndexEntry, LostAttempt, Owned, StoredAgent
from understudy.journal.database_threads import DatabaseThreads
from understudy.journal.kept import not_kept
from understudy.journal.loaded import Loaded
from understudy.journal.owned_journal import JournalledAgent
from understudy.journal.reads import DatabaseReads, of_backend
from understudy.journal.retirement import TombstonePlace
from understudy.journal.shared import SharedBackend
from understudy.journal.shared_store import SharedStore
from understudy.journal.snapshots import encoding_parts
from understudy.journal.store import Store, hashes_of
from understudy.journal.taken_states import TakenStates
from understudy.models.messages import Messages
from understudy.state.blobs import in_use
from understudy.state.records import Record
from understudy.state.trust_log import TrustFact

if TYPE_CHECKING:
    from understudy.journal.database_spending import DatabaseSpending
    from understudy.journal.notices import Outbox
    from understudy.journal.vacuum import Vacuumed

T = TypeVar("T")


ANOTHER_INDEXES = 0.02
"""Seconds after which it is looked again whether another host has worked off the index."""
PAGES_AT_ONCE = 256
"""Pages of a file that one transaction gives back: 1 MiB."""
PATIENCE = 30.0
"""Seconds for which a database that cannot be reached is retried, before runs are cut off."""


class DatabaseStore(DatabaseThreads, Store):
    """A store in a database. One thread writes, one reads, one renews, one opens and closes.

    Args:
        backend: the database.
        patience: seconds for which a database is retried while it cannot be reached.
        max_record_bytes: the largest size of a record in bytes; a larger record is refused.
        checkpoint_every: the least number of records that an agent adds between two checkpoints
            of its state; a quarter of it before the agent leaves memory. An activation starts
            from the last checkpoint. 0 = no checkpoints.

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
        super().__init__(backend, patience=patience)
        self._checkpoint_every = checkpoint_every if "checkpoints" in backend.keeps else 0
        self._max_bytes = max_record_bytes
        self._journals: JournalEnvironment  # as the committer; there is none before
        self._left = TakenStates()
        self._sharing = backend if isinstance(backend, SharedBackend) else None
        self._shared: SharedStore | None = None
        self._spending: DatabaseSpending | None = None
        self._tombstones_to: TombstonePlace | None = None
        """The tombstone behind which the next look at tombstones goes on; None: at the oldest."""
        self._indexed_to = 0
        """The agent behind which the work on the index of the search goes on, by its key."""
        self._trust_added = 0
        """The number of the last fact that was added to the log of trust here."""
        if self._sharing is not None:
            self._shared = SharedStore(self._sharing, self, self._left, max_bytes=max_record_bytes)
            self._shared.on_trust_heard = self._tell_trust

    @property
    def host(self) -> str:
        return self.backend.host

    @property
    def restored(self) -> bool:
        return self.backend.restored

    @property
    def reader(self) -> DatabaseReads:
        """The part that reads the database beside the runtimes that use it. It is opened by
        itself.
        """
        return DatabaseReads(self.backend, patience=self.patience)

    @property
    def shared(self) -> SharedStore | None:
        return self._shared

    async def open(self, on_lost: Callable[[], None]) -> None:
        self._trust_added = 0
        await super().open(on_lost)
        self.lease.on_renewed = self._tell_trust
        self.lease.before_renewed = self._tell_trust_at_once
        self._journals = JournalEnvironment(
            self.committer,
            self.lease,
            self,
            max_bytes=self._max_bytes,
            checkpoint_every=self._checkpoint_every,
        )

    def _tell_trust(self) -> None:
        """Another host, or a renewal of the lease, may have told of new facts."""
        if self.on_trust is not None:
            self.on_trust()

    def _tell_trust_at_once(self) -> None:
        if self.on_trust_at_once is not None:
            self.on_trust_at_once()

    async def close(self) -> None:
        self._left.clear()
        self._journals.lingering.push()
        await super().close()
        self._spending = None  # its counters are read again at the next opening

    @property
    def spending(self) -> DatabaseSpending | None:
        if self._spending is None and "spending" in self.keeps:
            # Who has no budget imports nothing of it.
            from understudy.journal.database_spending import LocalSpending, SharedSpending

            if self._sharing is None:
                self._spending = LocalSpending(self, self)
            else:
                self._spending = SharedSpending(self, self._sharing)
        return self._spending

    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        return await self.claim_by(agent_id, partial(self.backend.claim, agent_id, agent))

    async def claim_to_keep(self, agent_id: str, agent: str) -> Owned | None:
        if self._sharing is None:
            return await self.claim(agent_id, agent)
        take = partial(self._sharing.take, agent_id, agent, at_rest=False, runs=False)
        return await self.claim_by(agent_id, take)

    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        self.term_of(owned.agent_id)

        def release() -> bool:
            is_own = self.backend.release(owned)
            if lost is not None and self._sharing is not None:
                self._sharing.note_lost_attempt(owned.agent_id, lost)
            return is_own

        # Else no other runtime can claim it.
        return await self.change(release) if self.lease.is_shared else True

    async def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        if self._sharing is None:
            return frozenset()
        return await self.read(partial(self._sharing.lost_attempts, agent_id, run_id))

    def journal(self, owned: Owned, agent: JournalledAgent) -> AgentJournal:
        self._left.forget(owned.agent_id)  # it is in memory again
        return AgentJournal(self._journals, owned, agent, term=self.term_of(owned.agent_id))

    async def load_latest(self, agent_id: str) -> Loaded | None:
        left = self._left.find(agent_id)
        if left is None or self._sharing is None:
            return await super().load_latest(agent_id)
        loaded = await self.read_records(partial(left.read, self._sharing.load_behind))
        if loaded is not None:
            return loaded
        if self._left.find(agent_id) is left:
            self._left.forget(agent_id)
        return await super().load_latest(agent_id)

    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Messages | None = None
    ) -> Owned:
        records = [encode(snapshot, max_bytes=self._max_bytes)]
        if messages is not None:
            encoding = encoding_parts(messages, snapshot.at, max_bytes=self._max_bytes)
            records += await in_pieces(encoding)
        batch = Batch(
            agent_id=owned.agent_id,
            incarnation=owned.incarnation,
            epoch=owned.epoch,
            first_seq=owned.last_seq + 1,
            records=records,
            entry=entry,
            at=snapshot.at,
            blobs_in_use=await self._blobs_in_use(owned.agent_id, hashes_of(snapshot)),
        )
        await self.change(partial(self.backend.compact, batch), batch)
        return replace(owned, last_seq=batch.last_seq)

    async def _blobs_in_use(self, agent_id: str, hashes: Collection[str]) -> Collection[str]:
        """What the files with these hashes consist of. Nothing else is appended meanwhile."""
        return in_use(hashes, await self.load_blobs(agent_id, hashes)) if hashes else ()

    async def delete(self, agent_id: str, by: str | None = None) -> bool:
        delete = partial(self.backend.delete, agent_id)
        if self._sharing is not None:
            delete = partial(self._sharing.delete, agent_id, at_rest=True)
        return bool(await self._delete(lambda: [agent_id] if delete() else [], by))

    async def retire(self, agents: Sequence[StoredAgent], by: str | None = None) -> set[str]:
        def retire() -> list[str]:
            answers = zip(agents, self.backend.retire_all(agents), strict=True)
            return [agent.agent_id for agent, is_gone in answers if is_gone]

        return set(await self._delete(retire, by))

    async def _delete(self, delete: Callable[[], list[str]], by: str | None) -> list[str]:
        """Have the writer's thread delete agents; a function does it, and returns their ids."""
        at, is_told, backend = self.feed_clock.now(), self.keeps_feed, self.backend

        def delete_and_note() -> list[str]:
            gone = delete()
            if gone:
                backend.note_deletions(gone, at, by)
            if gone and is_told:
                backend.add_deletions(gone, at)
            return gone

        gone = await self.change(delete_and_note)
        for agent_id in gone:
            self._left.forget(agent_id)
            if self._spending is not None:
                self._spending.left(agent_id)
        if gone and is_told:
            self.feed_hint.tell()
        return gone

    async def delete_old_tombstones(self, before: datetime) -> None:
        # Nothing is written where there are none.
        if await self.read(partial(self.backend.has_tombstones, before, self._tombstones_to)):
            look = partial(self.backend.delete_tombstones, before, self._tombstones_to)
            self._tombstones_to = await self.change(look)
        else:
            self._tombstones_to = None

    async def vacuum(self, *, whole: bool = False) -> Vacuumed:
        from understudy.journal.vacuum import Vacuumed  # few stores are vacuumed

        before = await self.read(self.backend.size)
        pages = await self.change(partial(self.backend.free_pages, PAGES_AT_ONCE))
        while pages:
            pages = await self.change(partial(self.backend.free_pages, PAGES_AT_ONCE))
            await asyncio.sleep(0)
        # In threads of its own: reads go on meanwhile.
        await self.run_in(
            WorkerThreads(1, name="understudy-vacuum"), partial(self.backend.vacuum, whole=whole)
        )
        return Vacuumed(before=before, after=await self.read(self.backend.size))

    async def delete_old_keys(self, before: datetime) -> None:
        # Nothing is written where there are none.
        if await self.read(partial(self.backend.has_old_keys, before)):
            await self.change(partial(self.backend.delete_old_keys, before))

    add_note: Final = of_backend(Backend.add_note, by="beside")

    async def sweep_notes(self, now: datetime) -> None:
        # Nothing is written where there are none.
        if await self.read(self.backend.has_notes):
            await self.beside(partial(self.backend.sweep_notes, now))

    async def beside(self, function: Callable[[], T]) -> T:
        """Have a thread do a change of the backend that is beside the records.

        Where hosts share the database, never in a transaction of records: who is suspended in one
        would keep the others from adding what they have to add, such as that a host must stop.
        """
        return await (self.read(function) if self._sharing is not None else self.change(function))

    # ------------------------------------------------------------------- the log of trust

    @property
    def trust_seen(self) -> int:
        heard = 0 if self._shared is None else self._shared.trust_heard
        return max(self._trust_added, heard, self.backend.trust_seen)

    def follow_trust(self) -> None:
        self.backend.follow_trust()

    def provide(self, names: Collection[str]) -> None:
        self.backend.provide(names)

    acknowledge_trust: Final = of_backend(Backend.acknowledge_trust)
    hosts_behind: Final = of_backend(Backend.hosts_behind)
    hosts_without: Final = of_backend(Backend.hosts_without)

    async def add_trust(self, fact: TrustFact) -> bool:
        return await self._add_fact(fact, partial(self.backend.add_trust, fact))

    async def require_trust(self, fact: TrustFact, name: str) -> bool:
        return await self._add_fact(fact, partial(self.backend.require_trust, fact, name))

    async def _add_fact(self, fact: TrustFact, add: Callable[[], bool]) -> bool:
        if "trust" not in self.keeps:
            raise not_kept(self, "trust")
        is_added = await self.beside(add)
        if is_added:
            self._trust_added = max(self._trust_added, fact.number)
        return is_added

    turn_feed: Final = of_backend(Backend.turn_feed, by="change")
    trim_feed: Final = of_backend(Backend.trim_feed, by="change")
    turn_search: Final = of_backend(Backend.turn_search, by="beside")

    async def index_more(self) -> bool:
        work = await self.read(partial(self.backend.unindexed, self._indexed_to))
        if work is None:
            return False
        self._indexed_to = work.last
        if not await self.beside(partial(self.backend.index, work)):
            await asyncio.sleep(ANOTHER_INDEXES)
        return True

    async def change_outbox(self, change: Callable[[Outbox], T]) -> T:
        return await self.change(lambda: change(self.backend.outbox()))

"""Journals in memory: a runtime's default, and for tests that inspect the records of a run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from understudy.errors import Fenced, StoreConflict
from understudy.journal.backend import Backend
from understudy.journal.call_keys import CallKeys, KeyTaking, KeyUse, key_ends, key_hash, open_keys
from understudy.journal.checkpoint_writer import CHECKPOINT_EVERY
from understudy.journal.checkpoints import KeptMessages, WokenState
from understudy.journal.contracts import (
    Deletion,
    IndexEntry,
    IndexStatus,
    LostAttempt,
    Owned,
    StoredAgent,
)
from understudy.journal.decided import (
    MAY_DECIDE,
    DecidedKey,
    DecidedQuery,
    StoredDecided,
    decided_in,
)
from understudy.journal.feed import FeedKey, FeedPage
from understudy.journal.kept import ALL_KEPT, Kept
from understudy.journal.loaded import Loaded
from understudy.journal.memory_decided import MemoryDecided
from understudy.journal.memory_feed import MemoryFeed
from understudy.journal.memory_index import MemoryIndex
from understudy.journal.memory_keys import MemoryKeys
from understudy.journal.notes import StoredNote
from understudy.journal.notices import NoticeState, Outbox, StoredNotice
from understudy.journal.owned_journal import JournalledAgent, KeysOfJournal, OwnedJournal
from understudy.journal.snapshots import parts_of
from understudy.journal.store import Store, hashes_of
from understudy.journal.usage import Used, summed, used_by
from understudy.models.messages import Messages
from understudy.state.agent_state import AgentState
from understudy.state.blobs import in_use
from understudy.state.records import MessagesArchived, Record, status_in
from understudy.state.request_notes import RequestNote
from understudy.state.trust_log import TrustFact

if TYPE_CHECKING:
    from understudy.journal.memory_notices import MemoryOutbox
    from understudy.journal.memory_search import MemorySearch
    from understudy.journal.memory_spending import MemorySpending
    from understudy.journal.search import SearchState, StoredHit
    from understudy.journal.search_words import SearchQuery
    from understudy.journal.spending import Settlement

T = TypeVar("T")
MOST_DELETED: int = 1000
"""The most deleted agents of which a store in memory has a row. See `MemoryStore`."""

LAST_RECORDS: int = CHECKPOINT_EVERY // 4
"""The fewest records since the last kept state after which a state is kept where the agent leaves
memory."""


class MemoryJournal:
    """A journal that keeps records in a list. `replay(journal.records)` returns their state."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, records: Sequence[Record]) -> None:
        self.records.extend(records)

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return


_AT_REST = IndexEntry(IndexStatus.REST)


@dataclass(slots=True)
class _AgentRecords:
    """The records of one agent id, in its present incarnation."""

    agent: str
    incarnation: int = 1
    epoch: int = 0
    floor: int = 0
    records: list[Record] = field(default_factory=list)
    entry: IndexEntry = _AT_REST
    owner: JournalledAgent | None = None
    """The owner, which gives the entry while the agent is claimed; `entry` is from its release."""
    status_at: datetime | None = None
    """The time at which the agent's status changed last, as far as records say so."""
    left: tuple[int, AgentState] | None = None
    """The state with which the agent left memory last, and the number of its newest record then."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    """The bytes of the agent's files, by hash."""
    message_runs: dict[str, str] = field(default_factory=dict)
    """The runs that took old messages, by message id."""

    @property
    def last_seq(self) -> int:
        return self.floor + len(self.records)

    @property
    def entry_now(self) -> IndexEntry:
        return self.entry if self.owner is None else self.owner.index_entry()


class MemoryStore(Store):
    """A store that keeps the records of agents while the process lives. Nothing waits or fails.

    A database keeps a row of each deleted agent, so that its next incarnation gets another number.
    In memory this would grow forever, so only the last rows are kept. A new agent gets a number
    above all removed rows.
    """

    keeps: Collection[Kept] = ALL_KEPT

    def __init__(self) -> None:
        self._kept: dict[str, _AgentRecords] = {}
        self._deleted: dict[str, tuple[int, int, Deletion]] = {}
        """The incarnation, the epoch and the deletion of the agents deleted last, by agent id,
        oldest first."""
        self._gone: tuple[int, int] = 0, 0
        """The highest incarnation and epoch of the deleted agents that are known no more."""
        self._index = MemoryIndex()
        self._feed: MemoryFeed | None = None
        self._outbox: MemoryOutbox | None = None
        self._notices: bytes | None = None
        """What the outbox had when the store was closed."""
        self._notes_soon = False
        self.keys: MemoryKeys = MemoryKeys()
        self.decided: MemoryDecided = MemoryDecided()
        self._trust: list[TrustFact] = []
        self._spending: MemorySpending | None = None
        self._used: list[Used] = []
        self._search: MemorySearch | None = None
        self._changed: set[str] = set()
        """The agents whose rows in the index are behind: who lists brings them up to date."""

    async def open(self, on_lost: Callable[[], None]) -> None:
        if self._notices is not None:
            self._outbox, self._notices = self._make_outbox(), None

    async def close(self) -> None:
        if self._outbox is not None:
            # Else who lists what is asked while it is closed has the outbox miss it
            # (test_a_request_that_is_listed_while_a_store_in_memory_is_closed_is_told).
            self._up_to_date()
            self._notices = self._outbox.close()
            self._outbox = None

    async def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        kept = self._kept.get(agent_id)
        if kept is None:
            if agent is None:
                return None
            incarnation, epoch, *_ = self._deleted.pop(agent_id, self._gone)
            kept = self._kept[agent_id] = _AgentRecords(agent, incarnation + 1, epoch)
        kept.epoch += 1
        self.keys.let_go(agent_id)  # of an activation that was cut off
        self._changed.add(agent_id)
        return Owned(
            agent_id=agent_id,
            agent=kept.agent,
            incarnation=kept.incarnation,
            epoch=kept.epoch,
            last_seq=kept.last_seq,
        )

    async def release(self, owned: Owned, lost: LostAttempt | None = None) -> bool:
        kept = self._kept.get(owned.agent_id)
        if kept is not None and kept.epoch != owned.epoch:
            return True  # it was claimed again: that claim stays
        self.keys.let_go(owned.agent_id)
        if kept is not None and kept.owner is not None:
            kept.entry, kept.owner = kept.owner.index_entry(), None
            self._changed.add(owned.agent_id)
        return True

    def journal(self, owned: Owned, agent: JournalledAgent) -> MemoryAgentJournal:
        kept = self._claimed(owned)
        kept.owner = agent
        return MemoryAgentJournal(kept, owned, agent, self)

    @property
    def spending(self) -> MemorySpending:
        if self._spending is None:  # who has no budget imports nothing of it
            from understudy.journal.memory_spending import MemorySpending

            self._spending = MemorySpending(self, self._incarnation_of)
        return self._spending

    def _incarnation_of(self, agent_id: str) -> int | None:
        kept = self._kept.get(agent_id)
        return None if kept is None else kept.incarnation

    def _claimed(self, owned: Owned) -> _AgentRecords:
        kept = self._kept.get(owned.agent_id)
        if kept is None:
            raise Fenced(agent_id=owned.agent_id, why="it was deleted")
        if kept.epoch != owned.epoch:
            raise Fenced(agent_id=owned.agent_id, why="it was claimed again")
        return kept

    def appended(self, owned: Owned, seq: int, records: Sequence[Record]) -> None:
        self._changed.add(owned.agent_id)  # the records are folded after this
        if self._outbox is not None and not self._notes_soon:
            self._notes_soon = True
            asyncio.get_running_loop().call_soon(self._note_asks)
        if self._feed is not None:
            for number, record in enumerate(records, seq):
                self._feed.add(owned.agent_id, owned.agent, number, record)
            self.feed_hint.tell()

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        return await self.load_part(agent_id, after, sys.maxsize)

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        kept = self._kept.get(agent_id)
        if kept is None:
            return None
        from_ = max(after - kept.floor, 0)
        records = tuple(kept.records[from_ : from_ + limit])
        return Loaded(_stored(agent_id, kept), kept.floor + from_ + 1, records)

    async def load_blobs(
        self, agent_id: str, hashes: Collection[str] | None
    ) -> Mapping[str, bytes]:
        kept = self._kept.get(agent_id)
        return {} if kept is None else _of_these(kept.blobs, hashes)

    async def message_runs(
        self, agent_id: str, message_ids: Collection[str] | None
    ) -> Mapping[str, str]:
        kept = self._kept.get(agent_id)
        return {} if kept is None else _of_these(kept.message_runs, message_ids)

    async def load_latest(self, agent_id: str) -> Loaded | None:
        kept = self._kept.get(agent_id)
        if kept is None or kept.left is None:
            return await self.load(agent_id)
        seq, state = kept.left
        loaded = await self.load(agent_id, seq)
        assert loaded is not None, "a deletion takes the state with it"
        messages = KeptMessages(state.messages.lineage, 0, 0, 0)
        return replace(loaded, checkpoint=WokenState(state, seq, messages, seq))

    async def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        for agent_id, kept in sorted(self._kept.items()):
            stored = _stored(agent_id, kept)
            if index_statuses is None or stored.index_status in index_statuses:
                yield stored

    async def find_agents(self, agent_ids: Collection[str]) -> Sequence[StoredAgent]:
        there = ((id, self._kept.get(id)) for id in agent_ids)
        return [_stored(id, kept) for id, kept in there if kept is not None]

    async def compact(
        self, owned: Owned, snapshot: Record, entry: IndexEntry, messages: Messages | None = None
    ) -> Owned:
        kept = self._claimed(owned)
        if owned.last_seq != kept.last_seq:
            raise StoreConflict(
                agent_id=owned.agent_id, expected=kept.last_seq + 1, got=owned.last_seq + 1
            )
        self._changed.add(owned.agent_id)
        kept.floor = kept.last_seq
        following = () if messages is None else parts_of(messages, snapshot.at)
        kept.records[:] = [snapshot, *following]
        if kept.blobs:
            used = in_use(hashes_of(snapshot), kept.blobs)
            kept.blobs = {hash: blob for hash, blob in kept.blobs.items() if hash in used}
        kept.left = None
        return replace(owned, last_seq=kept.last_seq)

    async def delete(self, agent_id: str, by: str | None = None) -> bool:
        kept = self._kept.pop(agent_id, None)
        if kept is None:
            return False
        kept.epoch += 1  # its journal is fenced
        at = self.feed_clock.now()
        self._deleted[agent_id] = kept.incarnation, kept.epoch, Deletion(at=at, by=by)
        if len(self._deleted) > MOST_DELETED:
            incarnation, epoch, _ = self._deleted.pop(next(iter(self._deleted)))
            self._gone = max(self._gone[0], incarnation), max(self._gone[1], epoch)
        self.keys.leave(agent_id)
        self.decided.leave(agent_id)
        if self._spending is not None:
            self._spending.books.leave(agent_id)
        self._changed.discard(agent_id)
        self._index.remove(agent_id)
        if self._feed is not None:
            self._feed.add_deletion(agent_id, kept.agent, at)
            self.feed_hint.tell()
        return True

    async def retire(self, agents: Sequence[StoredAgent], by: str | None = None) -> set[str]:
        return await super().retire([each for each in agents if not self._has_more(each)], by)

    def _has_more(self, agent: StoredAgent) -> bool:
        """Whether something of an agent at rest is reserved, or is to be told."""
        spending, outbox = self._spending, self._outbox
        is_reserved = spending is not None and spending.books.open_spending(agent.agent_id)
        return bool(is_reserved) or (outbox is not None and outbox.has_new(agent.agent_id))

    async def deletion(self, agent_id: str) -> Deletion | None:
        found = self._deleted.get(agent_id)
        return None if found is None else found[2]

    async def delete_old_keys(self, before: datetime) -> None:
        self.keys.delete_old(before)

    async def due(self, until: datetime) -> AsyncIterator[StoredAgent]:
        for stored in self._up_to_date().due(until):
            yield stored

    async def ask_index(self, question: Callable[[Backend | MemoryIndex], T]) -> T:
        return question(self._up_to_date())

    async def list_decided(
        self, query: DecidedQuery, after: DecidedKey | None, limit: int
    ) -> Sequence[StoredDecided]:
        return self.decided.list(query, after, limit)

    async def count_decided(self, query: DecidedQuery) -> int:
        return self.decided.count(query)

    def use(self, used: Iterable[Used]) -> None:
        """Add to the sums what requests to models have used."""
        for each in used:
            self._used = summed([*self._used, each])

    async def read_usage(self, first: int, end: int) -> Sequence[Used]:
        return [each for each in self._used if first <= each.day < end]

    async def change_outbox(self, change: Callable[[Outbox], T]) -> T:
        self._outbox = self._outbox or self._make_outbox()
        self._up_to_date()
        return change(self._outbox)

    def _make_outbox(self) -> MemoryOutbox:
        from understudy.journal.memory_notices import MemoryOutbox  # few stores have one

        return MemoryOutbox(self._index, self._notices)

    async def notices(
        self, states: Sequence[NoticeState], after: int | None, limit: int
    ) -> Sequence[StoredNotice]:
        return () if self._outbox is None else self._outbox.listed(states, after, limit)

    async def add_note(self, agent_id: str, request_id: str, note: RequestNote) -> bool:
        if agent_id not in self._kept:
            return False
        self._index.notes.add(agent_id, request_id, note)
        return True

    async def notes(
        self, requests: Collection[tuple[str, str]], *, texts: bool
    ) -> Sequence[StoredNote]:
        return self._index.notes.of(requests, texts=texts)

    async def sweep_notes(self, now: datetime) -> None:
        index = self._up_to_date()
        index.notes.sweep(now, lambda *asked: index.ask_of(*asked) is not None)

    @property
    def keeps_feed(self) -> bool:
        return self._feed is not None

    async def turn_feed(self, on: bool) -> None:
        self._feed = (self._feed or MemoryFeed()) if on else None

    async def trim_feed(self, before: datetime, keep: int) -> None:
        if self._feed is not None:
            self._feed.trim(before, keep)

    async def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        return None if self._feed is None else self._feed.read(after, limit)

    async def turn_search(self, on: bool) -> None:
        if on and self._search is None:
            from understudy.journal.memory_search import MemorySearch  # few stores have one

            self._search = MemorySearch()
        elif not on:
            self._search = None

    async def search_state(self) -> SearchState:
        from understudy.journal.search import SearchState

        return SearchState(is_on=self._search is not None)

    async def search(
        self, query: SearchQuery, before: int | None, limit: int
    ) -> Sequence[StoredHit]:
        found, index = self._search, self._up_to_date()
        if found is None:
            return []
        found.keep(self._kept)
        for agent_id, kept in self._kept.items():
            about = agent_id, kept.agent, kept.incarnation, kept.floor
            found.follow(*about, kept.records, index.asks.get(agent_id, {}).values())
        return found.hits(query, before, limit)

    @property
    def trust_seen(self) -> int:
        return len(self._trust)

    async def trust_after(self, number: int) -> Sequence[TrustFact]:
        return self._trust[number:]

    async def add_trust(self, fact: TrustFact) -> bool:
        is_next = fact.number == len(self._trust) + 1
        if is_next:
            self._trust.append(fact)
        return is_next

    def _note_asks(self) -> None:
        """What is asked, and is over before anybody looks, is told of all the same."""
        self._notes_soon = False
        self._up_to_date()

    def _up_to_date(self) -> MemoryIndex:
        changed, index = sorted(self._changed), self._index
        self._changed.clear()
        for agent_id in changed:
            kept = self._kept[agent_id]
            entry = kept.entry_now
            stored, before = _stored(agent_id, kept, entry), index.get(agent_id)
            is_other = before is None or before.agent_status != stored.agent_status
            if kept.status_at is None and is_other and kept.records:
                kept.status_at = kept.records[-1].at
                stored = replace(stored, status_at=kept.status_at)
            index.put(stored, entry.asks)
        return index


def _of_these(kept: Mapping[str, T], wanted: Collection[str] | None) -> dict[str, T]:
    """What is kept under these keys; None = all of it."""
    return {key: kept[key] for key in (kept if wanted is None else wanted) if key in kept}


def _stored(agent_id: str, kept: _AgentRecords, entry: IndexEntry | None = None) -> StoredAgent:
    entry = entry or kept.entry_now
    return StoredAgent(
        agent_id=agent_id,
        agent=kept.agent,
        incarnation=kept.incarnation,
        epoch=kept.epoch,
        last_seq=kept.last_seq,
        floor=kept.floor,
        index_status=entry.status,
        host=None,
        due=entry.due,
        agent_status=entry.status_word,
        status_at=kept.status_at,
        run_version=entry.run_version,
    )


class MemoryAgentJournal(OwnedJournal):
    """The journal in which the owner of one agent writes in a `MemoryStore`."""

    __slots__ = ("_agent", "_held", "_kept", "_owned", "_store")

    def __init__(
        self, kept: _AgentRecords, owned: Owned, agent: JournalledAgent, store: MemoryStore
    ) -> None:
        self._kept = kept
        self._owned = owned
        self._agent = agent
        self._store = store
        self._held: set[str] | None = None
        """The calls whose keys are noted when they are over, by call key; None where none of the
        agent's has ever had one."""

    @property
    def owned(self) -> Owned:
        return replace(self._owned, last_seq=self._kept.last_seq)

    @property
    def has_unflushed(self) -> bool:
        return False

    def append(self, records: Sequence[Record]) -> None:
        if self._kept.epoch != self._owned.epoch:
            raise Fenced(agent_id=self._owned.agent_id, why="it was claimed again")
        if self._held is not None:
            self._note_keys()  # of the records before: these are not folded yet
        self._store.appended(self._owned, self._kept.last_seq + 1, records)
        self._kept.records.extend(records)
        if self._store.counts_usage and self._agent.is_noted:
            state = self._agent.ledger_state()
            for record in records:
                self._store.use(used_by(record, self._owned.agent, state))
        for record in records:
            if status_in(record) is not None:
                self._kept.status_at = record.at
            if type(record) is MessagesArchived:
                self._kept.message_runs.update(record.runs)
            elif type(record) in MAY_DECIDE and self._agent.is_noted:
                for decided in decided_in(record, records, self._agent.ledger_state()):
                    self._store.decided.add(self._owned, decided)

    @property
    def call_keys(self) -> CallKeys:
        return _MemoryCallKeys(self, self._store)

    def follow_keys(self) -> None:
        if self._held is None:
            keys, owned = self._store.keys, self._owned
            # Race: the actor has died between a record and the next one, which would have noted
            # what became of a key.
            self._held = keys.held_by(owned.agent_id, owned.incarnation)
            keys.note[owned.agent_id] = self._note_keys

    def _note_keys(self) -> None:
        """Note which of the calls are over that had a key. The next look is told of it."""
        state, owned = self._agent.ledger_state(), self._owned
        ends = key_ends(self._held or set(), state)
        self._held = open_keys(state)
        if ends:
            at = self._kept.records[-1].at
            self._store.keys.end(owned.agent_id, owned.incarnation, ends, at)

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        self._kept.blobs.update(blobs)

    async def load_blobs(self, hashes: Collection[str]) -> Mapping[str, bytes]:
        return _of_these(self._kept.blobs, hashes)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        spending, owned = self._store.spending, self._owned
        spending.note_settled(settlements, owned.agent_id, owned.incarnation)
        spending.settled(settlements)

    async def durable(self) -> None:
        return

    def write_last_checkpoint(self) -> None:
        kept = self._kept
        if kept.epoch != self._owned.epoch:
            return
        # To fold 1,000 steps takes 6 ms of the loop. The state costs little: its messages are those
        # of the records.
        if kept.last_seq - (kept.left[0] if kept.left is not None else 0) >= LAST_RECORDS:
            kept.left = kept.last_seq, self._agent.ledger_state()

    def fence(self, why: str) -> None:
        self._owned = replace(self._owned, epoch=0)  # no agent has that


class _MemoryCallKeys(KeysOfJournal):
    """The keys of a `MemoryStore`, for the calls of the agent of a journal."""

    def __init__(self, journal: MemoryAgentJournal, store: MemoryStore) -> None:
        super().__init__(journal, store)
        self._keys = store.keys

    async def key_hash(self, key: str) -> str:
        return key_hash(key, self._keys.secret)

    async def key_uses(self, key_hash: str, at: datetime) -> Sequence[KeyUse]:
        return self._keys.uses(key_hash, at)

    async def take_key(self, taking: KeyTaking) -> Sequence[KeyUse]:
        self._journal.follow_keys()
        return self._keys.take(*self.of, taking)

    async def free_key(self, key_hash: str, use: KeyUse) -> None:
        self._keys.free(key_hash, use)

"""`Store`: keeps the records of a runtime's agents. What it may do besides are protocols, too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Protocol, cast, runtime_checkable

from understudy.journal.call_keys import KeyTaking, KeyUse
from understudy.journal.contracts import (
    IndexEntry,
    IndexStatus,
    Journal,
    LostAttempt,
    Owned,
    StoredAgent,
)
from understudy.journal.loaded import NEWEST, Loaded
from understudy.journal.shared import HostedDefinition
from understudy.state.agent_state import AgentState, hashes_in
from understudy.state.records import Record, Snapshot


class Readable(Protocol):
    """The part of a store that reads."""

    async def load(self, agent_id: str, after: int = 0) -> Loaded | None:
        """As `Store.load`."""

    def agents(
        self, index_statuses: Collection[IndexStatus] | None = None
    ) -> AsyncIterator[StoredAgent]:
        """As `Store.agents`."""


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


@runtime_checkable
class AgentFinder(Protocol):
    """An optional part of a store: it tells what its index says of some agents, by their ids."""

    async def find_agents(self, agent_ids: Collection[str]) -> Sequence[StoredAgent]:
        """Those of these agents that there are, in any order."""


@runtime_checkable
class PartStore(Protocol):
    """An optional part of a store: it brings some of an agent's records, however many it has."""

    async def load_part(self, agent_id: str, after: int, limit: int) -> Loaded | None:
        """As `Store.load`, but no more than the first `limit` of those records."""


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
class MessageStore(Protocol):
    """An optional part of a store, or of what reads one: it keeps the ids of old messages.

    It puts what a `MessagesArchived` record says into an index, in the commit of the record.
    """

    @property
    def indexes_messages(self) -> bool:
        """Whether its backend keeps them."""

    async def message_runs(
        self, agent_id: str, message_ids: Collection[str] | None = None
    ) -> Mapping[str, str]:
        """By message id, the run that took the message, of these that are kept; None = all."""


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
class KeyStore(Protocol):
    """An optional part of a store: it keeps the keys of calls, of all agents."""

    async def delete_old_keys(self, before: datetime) -> None:
        """Delete the keys of calls whose time was over before."""


@runtime_checkable
class KeyJournal(Protocol):
    """An optional part of a journal: calls of its agent take keys, which are of the whole store.

    See `understudy.journal.call_keys`.
    """

    @property
    def owned(self) -> Owned:
        """As of `OwnedJournal`."""

    def follow_keys(self) -> None:
        """From now on, what the records say becomes of the keys of calls is in their commits.

        It is called where an agent wakes that has keys, and follows from `take_key`.
        """

    async def key_hash(self, key: str) -> str:
        """The hash under which the store keeps a key."""

    async def key_uses(self, key_hash: str, at: datetime) -> Sequence[KeyUse]:
        """As `KeepsKeys.key_uses`, after all that was appended so far."""

    async def take_key(self, taking: KeyTaking) -> Sequence[KeyUse]:
        """Take the key for a call, durably; if it is empty, the call has it, else these have."""

    async def free_key(self, key_hash: str, use: KeyUse) -> None:
        """As `KeepsKeys.free_key`, after all that was appended so far."""

    async def state_of_use(self, use: KeyUse) -> AgentState | None:
        """The state of the agent whose call has a key; None if it is gone, or cannot be read."""


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

        The next owner finds it.
        """


@cache
def _write_checkpoints(journals: type[OwnedJournal]) -> bool:
    return issubclass(journals, CheckpointJournal)


def checkpoints_of(journal: OwnedJournal) -> CheckpointJournal | None:
    """The journal, if it writes checkpoints."""
    # Asked once for each class: to ask whether an object has a protocol takes as long as a record.
    return cast("CheckpointJournal", journal) if _write_checkpoints(type(journal)) else None


@runtime_checkable
class HostStore(Protocol):
    """An optional part of a store that hosts share: they know of each other.

    See `understudy.journal.shared.SharedBackend`.
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


async def load_latest(store: Readable, agent_id: str) -> Loaded | None:
    """The newest state of an agent, as short as the store can tell it; None if there is none."""
    if isinstance(store, CheckpointStore):
        return await store.load_latest(agent_id)
    return await store.load(agent_id)


async def load_part(store: Readable, agent_id: str, after: int, limit: int) -> Loaded | None:
    """As `store.load`, but no more than the first `limit` of those records."""
    if isinstance(store, PartStore):
        return await store.load_part(agent_id, after, limit)
    loaded = await store.load(agent_id, after)
    return None if loaded is None else replace(loaded, records=loaded.records[:limit])


async def find_agent(store: Readable, agent_id: str) -> StoredAgent | None:
    """What the index says of an agent now; None if there is none."""
    if isinstance(store, AgentFinder):
        return next(iter(await store.find_agents([agent_id])), None)
    loaded = await store.load(agent_id, NEWEST)
    return None if loaded is None else loaded.agent


def hashes_of(snapshot: Record) -> frozenset[str]:
    """The hashes of the files that a snapshot's state has."""
    assert isinstance(snapshot, Snapshot), "what takes the place of an agent's records"
    return hashes_in(snapshot.state)

"""The contracts between a run, the store of its records, and the database under the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args, runtime_checkable

from understudy._base.json_values import is_storable_text, is_time_span, shown, storable_text
from understudy.errors import Fenced, StoreConflict, StoreDamaged, UsageError
from understudy.journal.asks import Ask
from understudy.journal.call_keys import KeyEnd, KeyTaking, KeyUse
from understudy.journal.checkpoints import Checkpoint
from understudy.journal.codec import EncodedRecord
from understudy.state.records import Record

Durability = Literal["full", "normal", "off"]
"""What a commit survives; each backend says what that means for its database."""


def check_durability(durability: object) -> None:
    """Raise `UsageError` for what is not a `Durability`."""
    if durability not in get_args(Durability):
        known = ", ".join(map(repr, get_args(Durability)))
        raise UsageError(f"`durability` must be one of {known}, got {durability!r}")


LEASE = 10.0
"""Seconds, by default."""
LONGEST_LEASE = 86_400.0
"""Seconds."""


def check_lease(lease: object) -> float:
    """The seconds of a lease; raise `UsageError` for what cannot be those."""
    if is_time_span(lease) and 0.1 <= lease <= LONGEST_LEASE:
        return lease
    raise UsageError(f"`lease` must be 0.1 to 86,400 seconds, got {shown(lease)}")


class Journal(Protocol):
    """Keeps the records of one agent, in order.

    An error of `append` stops the run at once; nothing after it is recorded.
    """

    def append(self, records: Sequence[Record]) -> None:
        """Accept records, in order. They need not be durable on return. Never waits."""

    @property
    def has_unflushed(self) -> bool:
        """Whether there are appended records that are not durable yet."""

    async def durable(self) -> None:
        """Wait until everything appended so far is durable."""


class IndexStatus(str, Enum):
    """What an agent waits for, in the index of its store: `recover` finds by it what to resume.

    It is equal to its text: `IndexStatus.REST == "rest"`.
    """

    REST = "rest"  # its last run is over, and no message is queued
    QUEUED = "queued"  # messages are queued, and no run is open
    OPEN = "open"  # a run is open, and can continue by itself
    SUSPECT = "suspect"  # as OPEN, and it crashed before without progress
    WAITS = "waits"  # its run waits for a person, the outside or a time, or is paused
    QUARANTINED = "quarantined"  # its run crashed too often in a row without progress


AGENT_STATUS: Mapping[IndexStatus, str] = MappingProxyType(
    {
        IndexStatus.REST: "idle",
        IndexStatus.QUEUED: "idle",
        IndexStatus.OPEN: "running",
        IndexStatus.SUSPECT: "running",
        IndexStatus.WAITS: "interrupted",
        IndexStatus.QUARANTINED: "failed",
    }
)
"""The status of an agent, as far as its index status tells it."""


class IndexEntry(NamedTuple):
    """What the index of a store says about the state of an agent."""

    status: IndexStatus
    due: datetime | None = None
    """When the agent has something to record by itself; see `AgentState.next_due`."""
    agent_status: str = ""
    """A value of `Status`; as `AGENT_STATUS` says where it is empty."""
    asks: tuple[Ask, ...] = ()
    """What it waits for from outside."""
    run_version: str | None = None
    """The fingerprint of the definition that has begun its open run; None where none is open."""
    takeable: bool = False
    """Nothing of the agent goes on: another host may take it, though its owner lives."""


_INDEX_STATUSES = frozenset(status.value for status in IndexStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The right to write to one agent, for as long as its epoch is the current one."""

    agent_id: str
    agent: str
    """The name of its definition."""
    incarnation: int
    epoch: int
    last_seq: int
    """Of its newest record; 0 = there is none."""
    has_posts: bool = False
    """When it was claimed, calls of other hosts waited for it: see `SharedBackend.posted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAgent:
    """What the store's index says about one agent."""

    agent_id: str
    agent: str
    incarnation: int
    epoch: int
    last_seq: int
    floor: int
    """Records up to this number were compacted away: the next one is a snapshot. 0 = none were."""
    index_status: IndexStatus
    host: str | None
    """The runtime that owns it now; None = it may be claimed."""
    due: datetime | None = None
    """When it has something to record by itself; None if nothing is due."""
    agent_status: str = "idle"
    """A value of `Status`."""
    status_at: datetime | None = None
    """When that changed last; None where it is not known."""
    run_version: str | None = None
    """As of `IndexEntry`."""
    damage: StoreDamaged | None = None
    """Why its row in the index cannot be what a store has written: then its id alone is sure."""


def stored_agent(row: tuple[Any, ...]) -> StoredAgent:
    """The agent of a database's row: its columns in the order of the fields.

    Raises:
        StoreDamaged: if they cannot be what a store has written.

    """
    agent_id, agent, incarnation, epoch, last_seq, floor, index_status, host, due, *told = row
    agent_status, status_at, run_version = told
    numbers = (incarnation, epoch, last_seq, floor)
    texts = (agent_id, agent, agent_status)
    if (
        index_status not in _INDEX_STATUSES
        or not all(isinstance(number, int) and 0 <= number < 1 << 63 for number in numbers)
        or floor > last_seq
        or not all(isinstance(text, str) and is_storable_text(text) for text in texts)
        or any(time is not None and time_of(time) is None for time in (due, status_at))
        or not isinstance(run_version, str | None)
    ):
        raise StoreDamaged(what=f"agent {agent_id!r}", cause=f"its row in the index is {row!r}")
    return StoredAgent(
        agent_id=agent_id,
        agent=agent,
        incarnation=incarnation,
        epoch=epoch,
        last_seq=last_seq,
        floor=floor,
        index_status=IndexStatus(index_status),
        host=host,
        due=time_of(due),
        agent_status=agent_status,
        status_at=time_of(status_at),
        run_version=run_version,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


NO_TIME = 1 - (1 << 63)
"""In the place of a time's number where there is none. It is less than that of each time."""


def time_number(time: datetime) -> int:
    """A time as a database keeps it: microseconds since 1970, in UTC; below 0 before that."""
    return (time - _EPOCH) // _MICROSECOND


_EARLIEST = time_number(datetime.min.replace(tzinfo=timezone.utc))
_LATEST = time_number(datetime.max.replace(tzinfo=timezone.utc))


def time_of(number: object) -> datetime | None:
    """The time that a database keeps; None also where it cannot be one."""
    if not isinstance(number, int) or not _EARLIEST <= number <= _LATEST:
        return None
    return _EPOCH + number * _MICROSECOND


def listed_agent(row: tuple[Any, ...]) -> StoredAgent:
    """The agent of a row, for a list: one damaged row is told as such, and hides no other.

    Raises:
        StoreDamaged: if the row does not even have an id.

    """
    try:
        return stored_agent(row)
    except StoreDamaged as damage:
        agent_id, agent, *_, due, _, _, _ = row
        if not isinstance(agent_id, str):
            raise
        return StoredAgent(
            agent_id=storable_text(agent_id),
            agent=storable_text(agent) if isinstance(agent, str) else "",
            incarnation=0,
            epoch=0,
            last_seq=0,
            floor=0,
            index_status=IndexStatus.REST,
            host=None,
            due=time_of(due),  # an index of dues goes on behind it
            damage=damage,
        )


def key_use(row: tuple[Any, ...]) -> KeyUse:
    """The call of a database's row that has a key: its columns in the order of the fields.

    Raises:
        StoreDamaged: if they cannot be what a store has written.

    """
    agent_id, incarnation, call_key, tool_name, tool_call_id, taken_at, done_at, is_left = row
    taken, done = time_of(taken_at), time_of(done_at)
    if taken is None or (done_at is not None and done is None):
        raise StoreDamaged(what="the keys of calls", cause=f"a row is {row!r}")
    return KeyUse(
        agent_id=agent_id,
        incarnation=incarnation,
        call_key=call_key,
        tool_name=tool_name,
        tool_call_id=tool_call_id,
        taken_at=taken,
        done_at=done,
        is_left=bool(is_left),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecords:
    """The records of one agent above some number, in order, without a gap."""

    agent: StoredAgent
    first_seq: int
    records: tuple[EncodedRecord, ...]


class FeedRow(NamedTuple):
    """A row that a batch adds to the feed."""

    agent: str
    """The name of the agent's definition."""
    seq: int
    """The number of the record."""
    at: datetime | None
    record: EncodedRecord


@dataclass(slots=True, kw_only=True)
class Batch:
    """The records that one agent adds in one commit. Never changed."""

    # Not frozen: one is made for each commit, and each field of a frozen class is set by a call.

    agent_id: str
    incarnation: int
    epoch: int
    first_seq: int
    """Of the first of `records`: one more than the newest that the store has."""
    records: tuple[EncodedRecord, ...]
    index_status: IndexStatus
    due: datetime | None = None
    """As of `IndexEntry`."""
    agent_status: str = ""
    """As of `IndexEntry`."""
    status_noted: bool = False
    """Whether a record of it is about the status. Else that has changed if it is another one."""
    at: datetime | None = None
    """When the last of its records was recorded; None where that is not known."""
    asks: tuple[Ask, ...] = ()
    """As of `IndexEntry`."""
    feed: tuple[FeedRow, ...] = ()
    run_version: str | None = None
    """As of `IndexEntry`."""
    takeable: bool = False
    """As of `IndexEntry`."""
    blobs: Mapping[str, bytes] | None = None
    """Bytes of files that its records name, by hash, of a backend that `KeepsBlobs`."""
    message_runs: Mapping[str, str] | None = None
    """As of `MessagesArchived.runs`, of its records; of a backend that `IndexesMessages`."""
    key_ends: tuple[KeyEnd, ...] = ()
    """What becomes of keys by its records; of a backend that `KeepsKeys`."""
    blobs_in_use: Collection[str] = ()
    """Of a snapshot: the hashes of those that it needs. The others of the agent are deleted."""

    @property
    def last_seq(self) -> int:
        """Of the last of `records`."""
        return self.first_seq + len(self.records) - 1

    @property
    def due_number(self) -> int | None:
        """The due time as a database keeps it."""
        return None if self.due is None else time_number(self.due)

    @property
    def at_number(self) -> int | None:
        """The time of its last record as a database keeps it."""
        return None if self.at is None else time_number(self.at)

    @property
    def status_word(self) -> str:
        """The agent's status, in any case."""
        return self.agent_status or AGENT_STATUS[self.index_status]


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt at a run that ended because another host took over, while its own host lived."""

    run_id: str
    number: int


Refusal: TypeAlias = Fenced | StoreConflict
"""Why a batch was not added."""


@runtime_checkable
class TellsTime(Protocol):
    """An optional part of a backend: its database has a clock, by which those who share it go."""

    @property
    def time_offset(self) -> float:
        """Seconds by which the database's clock is ahead of what this machine's shows now."""


@runtime_checkable
class OpensToRead(Protocol):
    """An optional part of a backend: it can be read while another process has it open."""

    def open_to_read(self) -> None:
        """Connect the reader alone: take no lock, change nothing. `close` disconnects.

        Raises:
            StoreUnavailable, StoreBroken, StoreDamaged: if it cannot be read.
            SchemaVersionError: if the store has another format.

        """


class Backend(Protocol):
    """A database that keeps records. Plain blocking calls: the store calls them in its threads.

    One thread calls the *writer's* methods, another one the *reader's*, a third one `renew`: each
    needs a connection of its own. A fourth one calls `open` before they start, and `close` after.
    A writer's change is made between `begin` and `commit`; one transaction holds the changes of
    several agents. Such a change raises:

    - `Fenced`, `OwnedElsewhere`, `StoreConflict`: this change was not made; the other changes of
      the transaction continue.
    - `StoreUnavailable`: the database cannot be reached, or is locked. The transaction is rolled
      back, and retried after `reconnect`.
    - `StoreBroken` (disk full, read-only, an I/O error, damaged): the transaction is rolled back,
      and not retried.

    No other exception leaves these methods.
    """

    @property
    def host(self) -> str:
        """The name of this runtime, which other runtimes see as the owner of its agents."""

    # ------------------------------------------------------------------- the writer

    def open(self) -> None:
        """Connect, create missing tables, and become a host.

        Raises:
            StoreInUse: if the database is for one runtime, and another one has it.
            SchemaVersionError: if the store has another format.

        """

    def close(self) -> None:
        """Release what this host owns, and disconnect. Raises nothing."""

    def reconnect(self) -> None:
        """After `StoreUnavailable`: connect the writer again, as the same host.

        The reader and the heartbeat reconnect by themselves, and try once more.
        """

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit it. On return it is durable."""

    def rollback(self) -> None:
        """Roll it back. Raises nothing: with the connection lost it is rolled back already."""

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """Become the owner of an agent, in a new epoch.

        A compare-and-set: it succeeds only if no other host with an unexpired lease owns the agent.
        An agent that this host owns already is claimed again, in a new epoch.

        Args:
            agent: the name of its definition. It begins the first incarnation of an unknown agent
                (after a deletion the next one, above the epoch of the tombstone). None: there is no
                such agent to begin, and the result is None.

        Raises:
            OwnedElsewhere: naming the host.
            Fenced: if this host's own lease is lost.
            StoreUnavailable: if it has ended and may still be renewed, by `renew`.

        """

    def append(self, batch: Batch) -> None:
        """Add records, if the epoch is the current one and `first_seq` the next number.

        Raises:
            Fenced: if the epoch or the incarnation is another one by now, or the agent was deleted.
            StoreConflict: if `first_seq` is not the next number.

        """

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """`append` for each, in order, in one round trip where the database is remote.

        Returns:
            For each batch, in the same order: None, or the error that `append` raises for it.

        """

    def release(self, owned: Owned) -> bool:
        """Give up the agent, if this is still its epoch. Any host may claim it then.

        Returns:
            Whether it is: no other copy has gone on from it.

        """

    def compact(self, batch: Batch) -> None:
        """Add a snapshot, the one record of `batch`, and delete all records before it.

        As `append`; the floor is `batch.first_seq - 1` then.
        """

    def delete(self, agent_id: str) -> bool:
        """Delete an agent's records, and keep a tombstone with its highest epoch.

        Returns:
            Whether there was such an agent.

        Raises:
            OwnedElsewhere: if another host owns it.

        """

    def is_committed(self, batch: Batch) -> bool:
        """After a commit with unknown outcome: whether the store has exactly these records."""

    def renew(self) -> float:
        """Renew the lease of this host, in a transaction of its own.

        Called by a third thread. It needs a connection of its own, unless the lease is only a lock.

        Returns:
            Seconds until the lease ends; infinity if only this host can have the store.

        Raises:
            Fenced: if the lease had ended and another host has claimed an agent of this one since,
                or may have. Its `agent_id` is `"*"`. The next call makes this a new host, which
                owns nothing yet. A lease that ended with all agents unclaimed is renewed: a claim
                and a late renewal are a compare-and-set on the same row.

        """

    # ------------------------------------------------------------------- the reader

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        """The records of an agent above a number; None if there is no such agent.

        From the snapshot on, if `after` is below the floor.
        """

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        """Up to `limit` agents with one of these statuses (None: any), by id, above `after_id`.

        A row that cannot be what the store has written has its `damage`, and hides no other one.
        """


@runtime_checkable
class LoadsParts(Protocol):
    """An optional part of a backend: it brings some of an agent's records, however many it has."""

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None:
        """The reader's: as `load`, but no more than the first `limit` of those records."""


@runtime_checkable
class FindsText(Protocol):
    """An optional part of a backend: it looks for a text in records, and brings none of them."""

    def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        """Whether a record of the agent, of one of these kinds, has this ASCII text in it.

        For what strangers may ask: it costs neither memory nor decoding, however long the journal.
        """


@runtime_checkable
class FindsDue(Protocol):
    """An optional part of a backend: it finds the agents that are due."""

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        """The reader's: agents that are due by a time, in order of due time and id.

        A damaged row is listed as by `agents`, with its due time.

        Args:
            until: the last due time that counts.
            after: the due time and id of the last agent of the page before; None for the first.
            limit: how many at most.

        """


@runtime_checkable
class FindsAgents(Protocol):
    """An optional part of a backend: it tells what the index says of some agents, by their ids."""

    def find_agents(self, agent_ids: Collection[str]) -> list[StoredAgent]:
        """The reader's: those of these agents that there are, in any order.

        A damaged row is listed as by `Backend.agents`.
        """


@runtime_checkable
class KeepsLostAttempts(Protocol):
    """An optional part of a backend that hosts share: it keeps which attempts were no crash.

    The next owner cannot see whether the owner died or only lost its lease. The owner itself
    can say so when it is fenced, but not in the journal, where it must not write any more.
    """

    def note_lost_attempt(self, agent_id: str, lost: LostAttempt) -> None:
        """Keep it, beside those of the same run. A writer's change, by any host."""

    def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        """The numbers of those of this run. Called by the reader's thread."""


@runtime_checkable
class KeepsCheckpoints(Protocol):
    """An optional part of a backend: it keeps one checkpoint of each agent, as a cache.

    Whatever replaces or deletes an agent's records deletes its checkpoint: `compact` and `delete`.
    """

    def write_checkpoint(self, owned: Owned, checkpoint: Checkpoint) -> None:
        """The writer's: put it in the place of the agent's last checkpoint.

        Its segments take the place of those with their numbers and above. Nothing happens where
        another epoch or incarnation is the current one by now, or where the store does not have
        the record `checkpoint.seq`.
        """

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        """The reader's: the last checkpoint of an agent, and the records after it, of one moment.

        All records, as by `load`, where it has none, or none of this incarnation from the floor up
        to the newest record. None if there is no such agent. What is returned may be damaged.
        """


@runtime_checkable
class KeepsBlobs(Protocol):
    """An optional part of a backend: it keeps the bytes of files, each by its hash, of each agent.

    `append` adds those of `Batch.blobs`, each once, with the records; `compact` deletes those that
    are not in `Batch.blobs_in_use`, and `delete` all.
    """

    def load_blobs(self, agent_id: str, hashes: Collection[str] | None) -> Mapping[str, bytes]:
        """The reader's: those of the agent that there are of these; None = all of them."""


@runtime_checkable
class IndexesMessages(Protocol):
    """An optional part of a backend: it keeps the ids of old messages, each with its run.

    `append` adds those of `Batch.message_runs` with the records; `compact` keeps all, and `delete`
    deletes them.
    """

    def message_runs(self, agent_id: str, message_ids: Collection[str] | None) -> Mapping[str, str]:
        """The reader's: by message id, the run that took it, of these; None = of all."""


@runtime_checkable
class KeepsKeys(Protocol):
    """An optional part of a backend: it keeps which calls have taken a key, of all agents.

    `append` does what `Batch.key_ends` says of the agent's own: a key is given back, or its call is
    done, and the key is kept for the time that it was taken with. `compact` keeps all. `delete`
    keeps those of calls that are done. Those that calls still have are left then: they are kept for
    that time, from when they were taken.
    """

    def key_secret(self) -> bytes:
        """The reader's: the secret that the store was made with. It is never shown."""

    def key_uses(self, key_hash: str, at: datetime) -> list[KeyUse]:
        """The writer's: the calls that have a key, in the order in which they took it.

        Those whose time is over at `at` are left out.
        """

    def take_key(self, owned: Owned, taking: KeyTaking) -> list[KeyUse] | None:
        """The writer's: take a key for a call, as `may_take` says.

        A call has one key: what it took before is given back. It waits for nobody: hosts that wait
        for each other's transactions would stand still with whichever of them does.

        Returns:
            Empty if the call has the key now; else the calls that have it, as by `key_uses`. None
            if another host is about to take the key: try again.

        Raises:
            Fenced: if the agent has another epoch or incarnation by now, or was deleted.

        """

    def free_key(self, key_hash: str, use: KeyUse) -> None:
        """The writer's: give back the key of a call that is over, unless it is done or left."""

    def has_old_keys(self, before: datetime) -> bool:
        """The reader's: whether there are keys whose time was over before."""

    def delete_old_keys(self, before: datetime) -> None:
        """The writer's: delete those."""

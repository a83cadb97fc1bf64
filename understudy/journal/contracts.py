"""The contracts between a run, the store of its records, and the database under that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from understudy.errors import Fenced, StoreConflict
from understudy.journal.codec import EncodedRecord
from understudy.state.records import Record

__all__ = [
    "Backend",
    "Batch",
    "IndexStatus",
    "Journal",
    "Owned",
    "StoredAgent",
    "StoredRecords",
]


class Journal(Protocol):
    """Keeps the records of one agent, in order.

    What `append` raises stops the run at once, with nothing after it recorded.
    """

    def append(self, records: Sequence[Record]) -> None:
        """Take records, in order; they need not be durable yet. Never waits."""

    @property
    def has_unflushed(self) -> bool:
        """Whether something was appended that is not durable yet."""

    async def durable(self) -> None:
        """Wait until everything appended so far is durable."""


class IndexStatus(Enum):
    """What an agent is waiting for, as its store indexes it: how `recover` finds who needs it."""

    REST = "rest"  # its last run is over, and nothing is queued
    QUEUED = "queued"  # messages wait, and no run is open
    OPEN = "open"  # a run is open, and can go on by itself
    SUSPECT = "suspect"  # the same, and it was cut off before, without having got further
    WAITS = "waits"  # its run waits for a person, or stands still
    QUARANTINED = "quarantined"  # its run crashed too often in a row (J10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The right to write to one agent, while its epoch is the current one (J6)."""

    agent_id: str
    agent: str
    """The name of its definition."""
    incarnation: int
    epoch: int
    last_seq: int
    """Of its newest record; 0 where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAgent:
    """What the store's index says of one agent."""

    agent_id: str
    agent: str
    incarnation: int
    epoch: int
    last_seq: int
    floor: int
    """The records up to here are gone: the next one is a snapshot. 0 = none are gone."""
    index_status: IndexStatus
    host: str | None
    """The runtime that owns it now; None where it may be claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecords:
    """The records of one agent after some number, in order, without a gap."""

    agent: StoredAgent
    first_seq: int
    records: tuple[EncodedRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one agent adds in one commit."""

    agent_id: str
    incarnation: int
    epoch: int
    first_seq: int
    """Of the first of `records`: one more than the newest that the store has (J7)."""
    records: tuple[EncodedRecord, ...]
    index_status: IndexStatus


class Backend(Protocol):
    """A database that keeps records. Plain blocking calls; the store brings the threads.

    The *writer's* methods are called by one thread, the *reader's* by another: let each have a
    connection of its own. A writer's change is made between `begin` and `commit`, several agents'
    changes in one transaction. What such a change raises:

    - `Fenced`, `OwnedElsewhere`, `StoreConflict`: nothing of this change was made; the other
      changes of the transaction go on.
    - `StoreUnavailable`: the database cannot be reached or is locked just now. The transaction is
      rolled back and tried again, after `reconnect`.
    - `StoreBroken` (disk full, read-only, an I/O error, damaged): the transaction is rolled back,
      and nobody tries again.

    No other exception leaves these methods.
    """

    @property
    def host(self) -> str:
        """What other runtimes are told of who owns an agent."""

    # ------------------------------------------------------------------- the writer

    def open(self) -> None:
        """Connect, make the tables where there are none, and become a host.

        Raises:
            StoreInUse: if the database is for one runtime, and another one has it.
            SchemaVersionError: if a newer version of this library made the tables.

        """

    def close(self) -> None:
        """Give up what this host owns, and disconnect. Raises nothing."""

    def reconnect(self) -> None:
        """After `StoreUnavailable`: connect the writer anew, as the same host.

        The reader and the heartbeat mend their connections themselves, and try once more.
        """

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Make it durable. On return it is."""

    def rollback(self) -> None:
        """Undo it. Raises nothing: with the connection gone it is undone already."""

    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """Become the owner of an agent, in a new epoch (J6).

        Compare-and-set: it succeeds only where no other host with an unexpired lease owns it. What
        this host owns already is claimed anew, in a new epoch.

        Args:
            agent: the name of its definition, to begin its first incarnation (or, after a
                deletion, its next one, above the epoch of the tombstone) where there is none;
                with None an unknown agent gives None.

        Raises:
            OwnedElsewhere: naming the host.
            Fenced: if this host's own lease has ended.

        """

    def append(self, batch: Batch) -> None:
        """Add records, if the epoch is the current one and `first_seq` the next (J7).

        Raises:
            Fenced: if epoch or incarnation is another one by now, or it was deleted.
            StoreConflict: if `first_seq` is not the next number.

        """

    def append_all(self, batches: Sequence[Batch]) -> list[Fenced | StoreConflict | None]:
        """`append` for each, in order, in one round trip where the database is far away.

        Each answer stands where its batch stands: None, or what `append` would have raised.
        """

    def release(self, owned: Owned) -> None:
        """Give the agent up, if this is still its epoch; any host may claim it then."""

    def compact(self, batch: Batch) -> None:
        """Put a snapshot (the one record of `batch`) down, and delete all before it (J17).

        As `append`, and then the floor is `batch.first_seq - 1`.
        """

    def delete(self, agent_id: str) -> bool:
        """Delete an agent's records, and leave a tombstone with its highest epoch (J7).

        Returns:
            Whether there was such an agent.

        Raises:
            OwnedElsewhere: if another host owns it.

        """

    def is_committed(self, batch: Batch) -> bool:
        """After a commit with unknown outcome: whether it holds exactly these records (J16)."""

    def renew(self) -> float:
        """Prolong the lease of this host, in a transaction of its own.

        Called by a third thread, which needs a connection of its own where the lease is no mere
        lock.

        Returns:
            Seconds until the lease ends; infinity where only this host can have the store.

        Raises:
            Fenced: if it had ended already: other hosts may own its agents by now. The next
                call makes this a host anew, which owns nothing yet. `agent_id` of it is `"*"`.

        """

    # ------------------------------------------------------------------- the reader

    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        """The records of an agent above a number, or None where there is no such agent.

        From the snapshot on, where `after` is below the floor.
        """

    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        """The agents that stand so (None: all), by id, from behind `after_id` on."""

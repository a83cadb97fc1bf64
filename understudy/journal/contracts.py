"""The contracts between a run, the store of its records, and the database under the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import cache
from types import MappingProxyType, NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from understudy._base.json_values import is_storable_text, is_time_span, shown, storable_text
from understudy.errors import Fenced, StoreConflict, StoreDamaged, UsageError
from understudy.interrupts import DecisionRecord
from understudy.journal.asks import Ask
from understudy.journal.call_keys import KeyEnd
from understudy.journal.codec import EncodedRecord
from understudy.state.records import Record

if TYPE_CHECKING:
    from understudy.journal.spending import Settlement
    from understudy.journal.usage import Used

_Row = TypeVar("_Row")

Durability = Literal["full", "normal", "off"]
"""What a commit survives; each backend says what that means for its database."""


def check_durability(durability: object) -> None:
    """Raise `UsageError` for what is not a `Durability`."""
    if durability not in get_args(Durability):
        known = ", ".join(map(repr, get_args(Durability)))
        raise UsageError(f"`durability` must be one of {known}, got {durability!r}")


LEASE = 10.0
"""The seconds of a lease, by default."""
LONGEST_LEASE = 86_400.0
"""The most seconds of a lease."""


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
    """The asks of the agent: what it waits for from outside."""
    run_version: str | None = None
    """The fingerprint of the definition that has begun its open run; None where none is open."""
    takeable: bool = False
    """Whether nothing of the agent goes on: another host may take it, though its owner lives."""

    @property
    def due_number(self) -> int | None:
        """The due time as a database keeps it."""
        return None if self.due is None else time_number(self.due)

    @property
    def status_word(self) -> str:
        """The agent's status, in any case."""
        return self.agent_status or AGENT_STATUS[self.status]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """The right to write to one agent, for as long as its epoch is the current one."""

    agent_id: str
    agent: str
    """The name of its definition."""
    incarnation: int
    """The number of the agent under this id, from 1: one more after each deletion."""
    epoch: int
    """The number of the claim, from 1: one more at each claim, and never less again."""
    last_seq: int
    """The number of its newest record; 0 = there is none."""
    has_posts: bool = False
    """Whether calls of other hosts waited for the agent when it was claimed. Only a `SharedBackend`
    sets it: see `SharedBackend.posted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAgent:
    """What the store's index says about one agent."""

    agent_id: str
    agent: str
    """The name of its definition."""
    incarnation: int
    """The number of the agent under this id, from 1; as of `Owned`."""
    epoch: int
    """The number of its last claim, from 1; as of `Owned`."""
    last_seq: int
    """The number of its newest record; 0 = there is none."""
    floor: int
    """Records up to this number were compacted away: the next one is a snapshot. 0 = none were."""
    index_status: IndexStatus
    """The status of the agent in the index: `IndexEntry.status` of its last batch."""
    host: str | None
    """The runtime that owns it now; None = it may be claimed."""
    due: datetime | None = None
    """The time at which the agent has something to record by itself; None if nothing is due."""
    agent_status: str = "idle"
    """The status of the agent: a value of `Status`."""
    status_at: datetime | None = None
    """When `agent_status` changed or was noted last; None where it is not known."""
    run_version: str | None = None
    """The fingerprint of the definition that has begun its open run; None where none is open."""
    damage: StoreDamaged | None = None
    """Why its row in the index cannot be what a store has written: then its id alone is sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What is kept of an agent that was deleted."""

    at: datetime | None
    """The time at which the agent was deleted; None where it cannot be read."""
    by: str | None
    """The person who deleted it; None where nobody was named."""


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


NO_TIME = 1 - (1 << 63)
"""The number in the place of a time where there is none. It is less than the number of each
time."""


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


def _number(column: object) -> int:
    if isinstance(column, int) and 0 <= column < 1 << 63:
        return column
    raise ValueError(column)


def _text(column: object) -> str:
    if isinstance(column, str) and (column.isascii() or is_storable_text(column)):
        return column
    raise ValueError(column)


def _time(column: object) -> datetime:
    time = time_of(column)
    if time is None:
        raise ValueError(column)
    return time


_Reader: TypeAlias = Callable[[Any], Any]
_READERS: Mapping[object, _Reader] = {int: _number, str: _text, datetime: _time, bool: bool}


def _reader(hint: Any) -> _Reader | None:
    """What makes a value of this type of a column; None for a type that no column has."""
    if get_origin(hint) is Literal:
        return {each: each for each in get_args(hint)}.__getitem__
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {each.value: each for each in hint}.__getitem__
    return _READERS.get(hint)


@cache
def _readers(cls: Any) -> tuple[tuple[str, _Reader | None, bool], ...]:
    """The name of each field, what reads its column, and whether the column may be null."""
    found: list[tuple[str, _Reader | None, bool]] = []
    for name, hint in get_type_hints(cls).items():
        options = get_args(hint) if NoneType in get_args(hint) else (hint,)
        read = _reader(next(each for each in options if each is not NoneType))
        found.append((name, read, len(options) > 1))
    return tuple(found)


def from_row(cls: type[_Row], row: Sequence[Any], what: str, **given: Any) -> _Row:
    """The object of a database's row, whose columns are in the order of the fields.

    Args:
        cls: the type of the object. The types of its fields say what a column may be.
        row: the columns. Fields behind the last column have their defaults.
        what: the row is of, for the error.
        given: fields that are not read of their columns.

    Raises:
        StoreDamaged: if a column cannot be what a store has written.

    """
    readers: tuple[tuple[str, _Reader | None, bool], ...] = _readers(cls)  # type: ignore[arg-type]
    try:
        found = {
            name: None if column is None and may_be_null else read(column)
            for (name, read, may_be_null), column in zip(readers, row, strict=False)
            if read is not None and name not in given
        }
    except (LookupError, TypeError, ValueError) as error:
        raise StoreDamaged(what=what, cause=f"its row is {shown(tuple(row))}") from error
    return cls(**found, **given)


def stored_agent(row: tuple[Any, ...]) -> StoredAgent:
    """The agent of a database's row.

    Raises:
        StoreDamaged: if it cannot be what a store has written.

    """
    agent = from_row(StoredAgent, row, f"agent {row[0]!r}")
    if agent.floor > agent.last_seq:
        raise StoreDamaged(what=f"agent {row[0]!r}", cause=f"its row in the index is {row!r}")
    return agent


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
    """The records that one agent adds in one commit. A backend never changes it."""

    # Not frozen: one is made for each commit, and each field of a frozen class is set by a call.

    agent_id: str
    incarnation: int
    """The incarnation in which the writer claimed the agent; another one is `Fenced`."""
    epoch: int
    """The epoch in which the writer claimed the agent; another one is `Fenced`."""
    first_seq: int
    """The number of the first of `records`: one more than the newest that the store has."""
    records: Sequence[EncodedRecord]
    """The records, in order; empty where only the index changes."""
    entry: IndexEntry
    """The row of the agent in the index, as it is after the records."""
    status_noted: bool = False
    """Whether a record of the batch is about the status: `StoredAgent.status_at` becomes `at` then.
    Else `status_at` changes only with another status."""
    at: datetime | None = None
    """The time at which the last record was recorded; None where it is not known."""
    feed: tuple[FeedRow, ...] = ()
    """The rows that the feed gets, where the backend keeps it and it is on."""
    blobs: Mapping[str, bytes] | None = None
    """The bytes of files that its records name, by hash (hexadecimal SHA-256), where the backend
    keeps files. Some may be there already."""
    message_runs: Mapping[str, str] | None = None
    """The runs that took old messages, by message id, where the backend keeps message ids."""
    key_ends: tuple[KeyEnd, ...] = ()
    """The calls of the agent that are over by its records and had a key, where the backend keeps
    keys. A call that is done at `at` keeps its key for `KeyTaking.kept`."""
    settlements: tuple[Settlement, ...] = ()
    """What calls have spent by its records, where the backend keeps spending."""
    decided: tuple[DecisionRecord, ...] = ()
    """What is decided by its records, where the backend keeps decisions."""
    used: tuple[Used, ...] = ()
    """What requests to models have used by its records, where a runtime counts it."""
    blobs_in_use: Collection[str] = ()
    """The hashes of the bytes that a snapshot needs. `compact` deletes the agent's other bytes, and
    only these; `append` does not look at it."""
    asks_before: Mapping[str, tuple[int, int]] | None = None
    """What the agent asked before it: the reminders and escalations by the id of each ask, as the
    index has them. None: who made the batch does not know, and the index is read."""

    def add(self, later: Batch) -> None:
        """Add what is recorded later to a batch that no backend has yet."""
        self.records = [*self.records, *later.records]
        self.at, self.entry = later.at or self.at, later.entry
        self.status_noted |= later.status_noted
        self.feed += later.feed
        self.key_ends += later.key_ends
        self.settlements += later.settlements
        self.decided += later.decided
        self.used += later.used
        if later.blobs is not None:
            self.blobs = {**(self.blobs or {}), **later.blobs}
        if later.message_runs is not None:
            self.message_runs = {**(self.message_runs or {}), **later.message_runs}

    @property
    def last_seq(self) -> int:
        """The number of the last of `records`."""
        return self.first_seq + len(self.records) - 1

    @property
    def at_number(self) -> int | None:
        """The time of its last record as a database keeps it."""
        return None if self.at is None else time_number(self.at)


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt at a run that ended because another host took over, while its own host lived."""

    run_id: str
    number: int


Refusal: TypeAlias = Fenced | StoreConflict
"""Why a batch was not added."""

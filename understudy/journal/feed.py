"""The feed of a store: what happened to all its agents, in the order of its commits.

Its rows are copies of the records that it tells, written in the same transaction, and kept for some
time. So it outlives the compaction and the deletion of an agent. A store keeps none until a runtime
turns its feed on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from understudy._base.json_values import storable_text
from understudy._base.lookout import Hints
from understudy.journal.codec import EncodedRecord, decode, encode_again
from understudy.journal.contracts import FeedRow, time_of
from understudy.state import records as r

FeedKey: TypeAlias = tuple[int, int]
"""The place of a row: the number of its transaction (0 where commits come in the order of the
rows), and its own."""

_TOLD: frozenset[type[r.Record]] = frozenset(
    {
        r.StatusNoted,
        r.RunStarted,
        r.Attempt,
        r.Requested,
        r.Reminded,
        r.Escalated,
        r.Voted,
        r.GlassBroken,
        r.ReviewClosed,
        r.Decided,
        r.Withdrawn,
        r.RunEnded,
    }
)
MAY_BE_TOLD: frozenset[type[r.Record]] = _TOLD | {r.ChildRecord, r.InterruptsChecked, r.Result}
"""The kinds of which the feed tells some records."""
DELETED = "deleted"
"""The kind of the row that tells of a deletion. It has no record."""


def told_record(record: r.Record) -> r.Record | None:
    """The record that the feed tells for this one; None if it tells nothing."""
    inner = r.innermost(record)
    if isinstance(inner, r.InterruptsChecked):
        return record if inner.requests else None
    if isinstance(inner, r.Result):  # a halt asks, too
        return None if inner.halt is None else r.Requested(request=inner.halt, at=record.at)
    if isinstance(inner, r.RunEnded) and inner is not record:
        return None  # of a run inside the agent's
    if isinstance(inner, r.RunStarted | r.Attempt):  # by it the agent runs
        status = inner.status
        return None if status is None else r.StatusNoted(status=status, at=record.at)
    return record if type(inner) in _TOLD else None


def feed_row(agent: str, seq: int, record: r.Record, encoded: EncodedRecord) -> FeedRow | None:
    """The row of a record that was accepted; None if the feed does not tell of it."""
    told = told_record(record)
    if told is None:
        return None
    return FeedRow(agent, seq, record.at, encoded if told is record else encode_again(told))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFeedRow:
    """A row of the feed."""

    key: FeedKey
    agent_id: str
    agent: str
    seq: int | None
    at: datetime | None
    kept: EncodedRecord | r.Record | None
    """The record; None: the agent was deleted."""

    @property
    def mark(self) -> str:
        """The text that tells the row from another row that gets its key if it is lost.

        A restored copy of the store may have lost it, say.
        """
        text = f"{self.agent_id} {self.seq} {self.at}"
        return f"{zlib.crc32(text.encode(errors='replace')):08x}"

    def record(self) -> r.Record | None:
        """The record; None: the agent was deleted.

        Raises:
            SchemaVersionError: if it has a later format.
            StoreDamaged: if it cannot be read.

        """
        return decode(self.kept) if isinstance(self.kept, EncodedRecord) else self.kept


def stored_feed_row(row: tuple[Any, ...]) -> StoredFeedRow:
    """The feed's row of a database's."""
    xid, no, agent_id, agent, seq, at, kind, version, payload = row
    return StoredFeedRow(
        key=(xid, no),
        agent_id=_text(agent_id),
        agent=_text(agent),
        seq=None if kind == DELETED else seq,
        at=time_of(at),
        kept=None if kind == DELETED else EncodedRecord(kind, version, payload),
    )


def _text(column: object) -> str:
    """The text of a column; in a damaged row it may be anything."""
    return storable_text(column) if isinstance(column, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """Some rows of the feed, in order."""

    feed: str
    """The id of the feed. It is another one after the feed was turned off and on."""
    floor: FeedKey
    """Rows up to this key were removed."""
    end: FeedKey
    """The key that was asked for. Without a key: the key of the last row, or the floor if there is
    no row."""
    mark: str
    """The mark of the row with the key `end`; empty if there is none."""
    rows: Sequence[StoredFeedRow] = ()
    is_held_up: bool = False
    """Whether there are rows that cannot be read yet: an open transaction may come before them."""


class FeedHint(Hints):
    """Hints that the feed may have new rows."""

    def __init__(self) -> None:
        super().__init__()
        self.on_added: Callable[[], None] | None = None
        """Called when rows were added here."""
        self.on_wait: Callable[[], None] | None = None
        """Called when somebody begins to wait."""

    def tell(self) -> None:
        """Rows were added here."""
        self.give()
        if self.on_added is not None:
            self.on_added()

    async def wait(self, seconds: float | None, count: int) -> int:
        if self.on_wait is not None and self.count == count:
            self.on_wait()
        return await super().wait(seconds, count)

"""`Loaded`: the records of an agent as they are folded, with the checkpoint before them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from understudy._base.pieces import THREAD_ITEMS, at_once, each, give_way
from understudy.errors import StoreDamaged, UnderstudyError
from understudy.journal.checkpoints import WokenState
from understudy.journal.codec import decode
from understudy.journal.contracts import StoredAgent, StoredRecords
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import HistoryReplaced, Record, SnapshotMessages

NEWEST = 1 << 62
"""No record has a number above it, and every database takes it: of an agent that is loaded from
there the row alone is read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The records of an agent above a number, or from its last snapshot on if that is later."""

    agent: StoredAgent
    first_seq: int
    records: tuple[Record, ...]
    checkpoint: WokenState | None = None
    """The state right before these records, if the store had a checkpoint of it; else None."""

    def folded(self) -> AgentState:
        """Return the state after these records.

        Raises:
            StoreDamaged: if the records do not fit together.

        """
        return at_once(self.folding())

    def folding(self) -> Generator[None, None, AgentState]:
        """Return the work of `folded` as a generator for `in_pieces`, because there may be many
        records.
        """
        checkpoint = self.checkpoint
        with self.as_damage():
            state = AgentState() if checkpoint is None else checkpoint.state.copied()
            yield from each(self.records, partial(apply, state), size=size_of)
            return state

    @contextmanager
    def as_damage(self) -> Iterator[None]:
        """Turn errors of this block into `StoreDamaged`: the records do not fit together."""
        try:
            yield
        except (UnderstudyError, LookupError, TypeError, ValueError, AssertionError) as error:
            cause = f"its records do not fit together: {error!r}"
            raise StoreDamaged(what=f"agent {self.agent.agent_id!r}", cause=cause) from error


def size_of(record: Record) -> int:
    """As how many records it counts, by the time that it takes."""
    kind = type(record)
    if kind is SnapshotMessages or kind is HistoryReplaced:
        return len(record.messages)  # type: ignore[union-attr]  # by its kind
    return 1


def decoded(stored: StoredRecords, checkpoint: WokenState | None = None) -> Loaded:
    """Records as they are folded. In the reader's thread: thousands would block the loop."""
    seq = stored.first_seq
    records: list[Record] = []
    try:
        done = 0
        for stored_record in stored.records:
            record = decode(stored_record)
            records.append(record)
            seq += 1
            done += size_of(record)
            if done >= THREAD_ITEMS:
                give_way()
                done = 0
    except StoreDamaged as error:
        raise StoreDamaged(
            what=f"record {seq} of agent {stored.agent.agent_id!r}", cause=error.cause
        ) from error
    return Loaded(stored.agent, stored.first_seq, tuple(records), checkpoint)

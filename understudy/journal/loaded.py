"""`Loaded`: the records of an agent as they are folded, with the checkpoint before them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from understudy.errors import StoreDamaged, UnderstudyError
from understudy.journal.checkpoints import WokenState
from understudy.journal.codec import decode
from understudy.journal.contracts import StoredAgent, StoredRecords
from understudy.state.agent_state import AgentState
from understudy.state.fold import replay
from understudy.state.records import Record

NEWEST = 1 << 62
"""No record has a number above it, and every database takes it: of an agent that is loaded from
there the row alone is read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The records of an agent above a number, or from its last snapshot on if that is higher."""

    agent: StoredAgent
    first_seq: int
    records: tuple[Record, ...]
    checkpoint: WokenState | None = None
    """The state right before these records, where the store had a checkpoint of it."""

    def folded(self) -> AgentState:
        """The state after these records.

        Raises:
            StoreDamaged: if they do not fit together.

        """
        checkpoint = self.checkpoint
        with self.as_damage():
            before = checkpoint.state.copied() if checkpoint is not None else None
            return replay(self.records, before)

    @contextmanager
    def as_damage(self) -> Iterator[None]:
        """What raises because these records do not fit together is `StoreDamaged`."""
        try:
            yield
        except (UnderstudyError, LookupError, TypeError, ValueError, AssertionError) as error:
            cause = f"its records do not fit together: {error!r}"
            raise StoreDamaged(what=f"agent {self.agent.agent_id!r}", cause=cause) from error


def decoded(stored: StoredRecords, checkpoint: WokenState | None = None) -> Loaded:
    """Records as they are folded. In the reader's thread: thousands would block the loop."""
    seq = stored.first_seq
    records = []
    try:
        for record in stored.records:
            records.append(decode(record))
            seq += 1
    except StoreDamaged as error:
        raise StoreDamaged(
            what=f"record {seq} of agent {stored.agent.agent_id!r}", cause=error.cause
        ) from error
    return Loaded(stored.agent, stored.first_seq, tuple(records), checkpoint)

"""`CheckpointWriter`: when checkpoints of an agent are written while it is in memory.

The loop writes the head, which is small. The messages since the last checkpoint, which nobody
changes, are encoded in the committer's thread, in the transaction of the records next to them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial

from understudy._base.log_fields import log_extra
from understudy.errors import StoreError
from understudy.journal.backend import Backend
from understudy.journal.checkpoints import (
    Checkpoint,
    KeptMessages,
    WokenState,
    after_writing,
    dump_head,
    make_checkpoint,
)
from understudy.journal.committer import Job
from understudy.journal.contracts import Batch, Owned
from understudy.journal.loaded import Loaded
from understudy.state.agent_state import AgentState
from understudy.state.records import Snapshot

logger: logging.Logger = logging.getLogger(__name__)

CHECKPOINT_EVERY = 256
"""Records between two checkpoints of an agent that stays in memory. To read them takes 2 ms."""
BYTES_PER_RECORD = 32
"""One record lies between a head and the next checkpoint for so many of its bytes. A record has 100
bytes and more, so heads that grow with the records cost a third of them at most."""
MAX_HEAD_BYTES = 16 * 1024 * 1024
"""A larger head is not written."""
MAX_SEGMENTS_BYTES = 256 * 1024 * 1024
"""Bytes of the messages of one checkpoint, at most: databases limit what is written at once."""
MAX_INNER_MESSAGES = 500
"""Messages of the agents that this one runs now, at most: the loop writes them, in the head."""


class CheckpointWriter:
    """Makes the checkpoints of one agent. Used on the loop.

    Args:
        state: of the agent, when the first of them is still to come.
        loaded: from what it was folded when the agent woke; None if it is new.
        every: so many records lie between two checkpoints, at least; a quarter of them before the
            last one.

    """

    __slots__ = ("_every", "_kept", "_seq", "due")

    due: int
    """The number of the record at which the next checkpoint is to be written."""

    def __init__(self, state: AgentState, loaded: Loaded | None, *, every: int) -> None:
        self._every = every
        self._kept: KeptMessages | None = None
        self._seq = 0
        if loaded is not None:
            self._seq = loaded.first_seq - 1
            if loaded.checkpoint is not None:
                self._kept, self._seq = loaded.checkpoint.kept, loaded.checkpoint.since
            elif loaded.records and isinstance(loaded.records[0], Snapshot):
                # It holds all messages: to read it takes as long as the records that it replaced.
                self._seq -= len(state.messages)
        self.due = self._seq + every

    def next(self, owned: Owned, state: AgentState) -> CheckpointJob | None:
        """The next checkpoint; None if it has to wait.

        Args:
            owned: the claim to write under.
            state: what all appended records fold to.

        """
        if state.children or state.left:
            inner = sum(map(_written, state.whole_tree)) - len(state.messages)
            if inner > MAX_INNER_MESSAGES:
                self.due = owned.last_seq + self._every
                return None
        messages, kept = state.messages, self._kept
        if kept is None or kept.lineage is not messages.lineage:
            kept = KeptMessages(messages.lineage, owned.last_seq, 0, 0)
        added = messages.since(kept.messages)
        after = after_writing(kept, len(added))
        try:
            head = dump_head(state, after)
        except Exception:  # a hook or tool has put an object into what it was given to read
            _log_failure(owned.agent_id)
            self.stop()
            return None
        if len(head) > MAX_HEAD_BYTES:
            id = owned.agent_id
            why = "its state is too large"
            logger.warning("agent %r gets no checkpoint: %s", id, why, extra=log_extra(id))
            self.stop()
            return None
        self._kept, self._seq = after, owned.last_seq
        self.due = self._seq + max(self._every, len(head) // BYTES_PER_RECORD)
        make = partial(make_checkpoint, owned.incarnation, owned.last_seq, head, kept, added)
        return CheckpointJob(owned, make, on_failure=self.stop)

    def last(self, owned: Owned, state: AgentState) -> CheckpointJob | None:
        """The last checkpoint; None if too little was recorded since the one before."""
        enough = (self.due - self._seq) // 4
        return self.next(owned, state) if owned.last_seq - self._seq >= max(1, enough) else None

    @property
    def in_store(self) -> int:
        """The number of the record that the store's checkpoint is of; 0 = it has none."""
        return 0 if self._kept is None else self._seq

    def left(self, owned: Owned, state: AgentState) -> WokenState | None:
        """The state at the newest record, from which another writer may continue.

        None where no checkpoint of it can be written: it may hold what its records do not.
        """
        if self._seq == sys.maxsize:
            return None
        return WokenState(state, owned.last_seq, self._kept, self._seq)

    def stop(self) -> None:
        """Write none any more."""
        self._seq = self.due = sys.maxsize


def _written(state: AgentState) -> int:
    """How many messages are written of it: those that an agent was told are made again."""
    shared = state.run.shared if state.run is not None else None
    told = shared is not None and shared.told is not None
    return len(state.messages) - (shared.inherited if shared is not None and told else 0)


def _log_failure(agent_id: str) -> None:
    logger.exception("agent %r gets no checkpoint", agent_id, extra=log_extra(agent_id))


class CheckpointJob(Job):
    """A checkpoint to be written in the next transaction. To write it twice does no harm.

    Its own failures are not those of the records next to it.
    """

    def __init__(
        self, owned: Owned, make: Callable[[], Checkpoint], *, on_failure: Callable[[], None]
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._owned = owned
        self._make = make
        self._on_failure = on_failure
        self._checkpoint: Checkpoint | None = None
        self._failed = False

    # ------------------------------------------------------ in the committer's thread

    def execute(self, backend: Backend) -> None:
        if self._checkpoint is None and not self._failed:
            self._checkpoint = self._made()
            self._failed = self._checkpoint is None
        if self._checkpoint is not None:
            backend.write_checkpoint(self._owned, self._checkpoint)

    def _made(self) -> Checkpoint | None:
        """The checkpoint; None if it cannot be made, or is too large."""
        try:
            made = self._make()
        except Exception:  # as of the head
            _log_failure(self._owned.agent_id)
            return None
        is_small = sum(len(each.payload) for each in made.segments) <= MAX_SEGMENTS_BYTES
        return made if is_small else None

    # ------------------------------------------------------------------- on the loop

    def end(self, batch: Batch | None, error: StoreError | None) -> None:
        # An error is that of the records next to it, and told by their journal; this agent leaves
        # memory. After a failure of its own, the segments would have a gap.
        if self._failed:
            self._on_failure()

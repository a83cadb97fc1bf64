"""The checkpoints of a SQLite store: one of each agent, a cache beside its records."""

from __future__ import annotations

import sqlite3

from understudy.journal.checkpoints import Checkpoint, Segment
from understudy.journal.contracts import Owned, StoredAgent
from understudy.journal.sqlite.schema import SEQ_BITS

_WRITE = """
    INSERT OR REPLACE INTO checkpoints (agent, incarnation, seq, head, crc)
    SELECT no, incarnation, ?, ?, ? FROM agents
    WHERE id = ? AND epoch = ? AND incarnation = ? AND last_seq >= ? AND NOT deleted
    RETURNING agent
"""
_WRITE_SEGMENT = """
    INSERT INTO checkpoint_segments (id, messages, payload, crc) VALUES (?, ?, ?, ?)
"""
_DELETE = "DELETE FROM checkpoints WHERE agent = ?"
_DELETE_SEGMENTS = "DELETE FROM checkpoint_segments WHERE id BETWEEN ? AND ?"
_HEAD = "SELECT seq, head, crc FROM checkpoints WHERE agent = ? AND incarnation = ?"
_SEGMENTS = """
    SELECT id, messages, payload, crc FROM checkpoint_segments WHERE id BETWEEN ? AND ? ORDER BY id
"""


def write(db: sqlite3.Connection, owned: Owned, checkpoint: Checkpoint) -> None:
    """See `Backend.write_checkpoint`. Called inside a transaction."""
    seq = checkpoint.seq
    values = (seq, checkpoint.head, checkpoint.crc)
    mine = (owned.agent_id, owned.epoch, owned.incarnation, seq)
    rows = db.execute(_WRITE, (*values, *mine)).fetchall()
    for (no,) in rows:
        first, last = _segments_of(no)
        db.execute(_DELETE_SEGMENTS, (first + checkpoint.first_segment, last))
        db.executemany(
            _WRITE_SEGMENT,
            [(first + s.number, s.messages, s.payload, s.crc) for s in checkpoint.segments],
        )


def delete(db: sqlite3.Connection, no: int) -> None:
    """Delete the checkpoint of the agent with this number, if it has one."""
    db.execute(_DELETE, (no,))
    db.execute(_DELETE_SEGMENTS, _segments_of(no))


def read(db: sqlite3.Connection, no: int, agent: StoredAgent) -> Checkpoint | None:
    """The checkpoint of the agent with this number, if it is one of its records of today."""
    found = db.execute(_HEAD, (no, agent.incarnation)).fetchone()
    if found is None or not agent.floor <= found[0] <= agent.last_seq:
        return None
    seq, head, crc = found
    first, last = _segments_of(no)
    segments = tuple(
        Segment(number=id - first, messages=messages, payload=payload, crc=crc)
        for id, messages, payload, crc in db.execute(_SEGMENTS, (first, last))
    )
    return Checkpoint(seq=seq, head=head, crc=crc, segments=segments)


def _segments_of(no: int) -> tuple[int, int]:
    """The first and the last id that a segment of this agent can have."""
    return no << SEQ_BITS, ((no + 1) << SEQ_BITS) - 1

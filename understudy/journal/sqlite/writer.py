"""The changes of a SQLite store, one function for each, and the tenure in which they are made.

Each function but `end_tenure` is called inside a transaction. It raises what `Backend` says about
it, or `sqlite3.Error`. `mark` is the number of that transaction.

A tenure is the time of one host with a database, from `open` to `close`. Each has a number, and the
row of an agent has the number of the tenure that claimed it last. So a new number in one row ends
all claims at once, however many agents there are and however the last host ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from sys import intern

from understudy.errors import Fenced, StoreConflict, StoreDamaged, StoreError
from understudy.journal.asks import Ask, changes
from understudy.journal.contracts import Batch, Owned, time_number
from understudy.journal.lists import NEVER
from understudy.journal.sqlite import blobs, call_keys, checkpoints, feed
from understudy.journal.sqlite.lock import Watermark
from understudy.journal.sqlite.schema import SEQ_BITS

_CLAIM_EXISTING = """
    UPDATE agents SET epoch = epoch + 1, tenure = ? WHERE id = ? AND NOT deleted
    RETURNING definition, incarnation, epoch, last_seq
"""
_CLAIM_NEW = """
    INSERT INTO agents (id, definition, tenure, mark) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET definition = excluded.definition, incarnation = incarnation + 1,
        epoch = epoch + 1, last_seq = 0, floor = 0, index_status = 'rest', tenure = excluded.tenure,
        mark = excluded.mark, deleted = 0, due = NULL, status = 'idle', status_at = NULL,
        run_version = NULL
    RETURNING definition, incarnation, epoch, last_seq
"""
_FIND = """
    SELECT no, ask_count, index_status, due, status, run_version FROM agents
    WHERE id = ? AND epoch = ? AND incarnation = ? AND last_seq = ? AND NOT deleted
"""
# Most batches change neither status nor due time: then their indexes are not written.
_ADD = "UPDATE agents SET last_seq = ?1, mark = ?2 WHERE no = ?3"
_ADD_WITH_ENTRY = """
    UPDATE agents SET last_seq = ?1, mark = ?2, index_status = ?4, due = ?5, status = ?6,
        run_version = ?7,
        status_at = CASE WHEN ?8 OR status <> ?6 OR last_seq = 0 THEN ?9 ELSE status_at END
    WHERE no = ?3
"""
_NEW_ASK = """
    INSERT INTO asks (agent, id, definition, kind, tool, asked_at, expires_at, reminders,
        escalations, version, payload)
    SELECT ?, ?, definition, ?, ?, ?, ?, ?, ?, ?, ? FROM agents WHERE no = ?
"""
_RECORD = "INSERT INTO records (id, epoch, version, kind, payload) VALUES (?, ?, ?, ?, ?)"
_DELETE_RECORDS = "DELETE FROM records WHERE id BETWEEN ? AND ?"


def claim_existing(db: sqlite3.Connection, agent_id: str, tenure: int) -> Owned | None:
    """Claim an agent that is in the store; None if it is not. No other host can own it."""
    row = db.execute(_CLAIM_EXISTING, (tenure, agent_id)).fetchone()
    return None if row is None else _owned(agent_id, row)


def claim_new(db: sqlite3.Connection, agent_id: str, agent: str, tenure: int, mark: int) -> Owned:
    """Begin the first incarnation of an agent, or the next one after a deletion."""
    return _owned(agent_id, db.execute(_CLAIM_NEW, (agent_id, agent, tenure, mark)).fetchone())


def _owned(agent_id: str, row: tuple[str, int, int, int]) -> Owned:
    agent, incarnation, epoch, last_seq = row
    if not (isinstance(agent, str) and all(isinstance(number, int) for number in row[1:])):
        raise StoreDamaged(what=f"agent {agent_id!r}", cause=f"its row in the index is {row!r}")
    return Owned(  # the names of agents are few, and their ids many
        agent_id=agent_id,
        agent=intern(agent),
        incarnation=incarnation,
        epoch=epoch,
        last_seq=last_seq,
    )


def append(db: sqlite3.Connection, batch: Batch, mark: int) -> int:
    """See `Backend.append`. Returns the agent's number."""
    last = batch.first_seq - 1
    # Found first, and changed by its number: `UPDATE ... RETURNING` costs more than both.
    agent_is = (batch.agent_id, batch.epoch, batch.incarnation, last)
    row = db.execute(_FIND, agent_is).fetchone()
    if row is None:
        raise _refusal(db, batch)
    no, ask_count, *stored = row
    said = batch.entry
    entry = [said.status.value, said.due_number, said.status_word, said.run_version]
    numbers = (last + len(batch.records), mark, no)
    if last and not batch.status_noted and stored == entry:
        db.execute(_ADD, numbers)
    else:
        db.execute(_ADD_WITH_ENTRY, (*numbers, *entry, batch.status_noted, batch.at_number))
    first, epoch = (no << SEQ_BITS) + batch.first_seq, batch.epoch
    # A bytearray: `sqlite3` looks for an adapter of each other object of bytes, ten times as long.
    rows = [
        (first + n, epoch, record.version, record.kind, bytearray(record.payload))
        for n, record in enumerate(batch.records)
    ]
    db.executemany(_RECORD, rows)
    if ask_count or batch.entry.asks:
        _put_asks(db, no, batch.entry.asks)
    if batch.blobs:
        blobs.add(db, no, batch.blobs)
    if batch.message_runs:
        taken = [(no, *run) for run in batch.message_runs.items()]
        db.executemany("INSERT OR IGNORE INTO message_runs VALUES (?, ?, ?)", taken)
    if batch.key_ends:
        call_keys.end(db, no, batch)
    return int(no)


def _put_asks(db: sqlite3.Connection, no: int, asks: Sequence[Ask]) -> None:
    """Make these the asks of an agent: what differs is written."""
    stored = {
        id: (reminders, escalations)
        for id, reminders, escalations in db.execute(
            "SELECT id, reminders, escalations FROM asks WHERE agent = ?", (no,)
        )
    }
    gone, new, told = changes(stored, asks)
    db.executemany("DELETE FROM asks WHERE agent = ? AND id = ?", [(no, id) for id in gone])
    db.executemany(_NEW_ASK, [(no, *_columns(ask), no) for ask in new])
    db.executemany(
        "UPDATE asks SET reminders = ?, escalations = ? WHERE agent = ? AND id = ?",
        [(ask.told.reminders, ask.told.escalations, no, ask.id) for ask in told],
    )
    if gone or new:
        db.execute("UPDATE agents SET ask_count = ? WHERE no = ?", (len(asks), no))


def _columns(ask: Ask) -> tuple[object, ...]:
    record, expires_at = ask.encode(), ask.expires_at
    return (
        *(ask.id, ask.kind, ask.tool, time_number(ask.asked_at)),
        NEVER if expires_at is None else time_number(expires_at),
        *(ask.told.reminders, ask.told.escalations, record.version, record.payload),
    )


def _refusal(db: sqlite3.Connection, batch: Batch) -> StoreError:
    """Why `_FIND` found no row: the error to raise."""
    row = db.execute(
        "SELECT incarnation, epoch, last_seq FROM agents WHERE id = ? AND NOT deleted",
        (batch.agent_id,),
    ).fetchone()
    if row is None:
        return Fenced(agent_id=batch.agent_id, why="it was deleted")
    incarnation, epoch, last = row
    if incarnation != batch.incarnation:
        why = f"its incarnation is {incarnation} by now, not {batch.incarnation}"
        return Fenced(agent_id=batch.agent_id, why=why)
    if epoch != batch.epoch:
        why = f"its epoch is {epoch} by now, not {batch.epoch}"
        return Fenced(agent_id=batch.agent_id, why=why)
    return StoreConflict(agent_id=batch.agent_id, expected=last + 1, got=batch.first_seq)


def compact(db: sqlite3.Connection, batch: Batch, mark: int) -> None:
    """See `Backend.compact`."""
    first, floor = append(db, batch, mark) << SEQ_BITS, batch.first_seq - 1
    db.execute(_DELETE_RECORDS, (first, first + floor))
    checkpoints.delete(db, first >> SEQ_BITS)
    blobs.delete(db, first >> SEQ_BITS, but=batch.blobs_in_use)
    db.execute("UPDATE agents SET floor = ? WHERE id = ?", (floor, batch.agent_id))


def release(db: sqlite3.Connection, owned: Owned) -> bool:
    """See `Backend.release`."""
    released = db.execute(
        "UPDATE agents SET tenure = NULL WHERE id = ? AND epoch = ? AND incarnation = ? "
        "AND NOT deleted",
        (owned.agent_id, owned.epoch, owned.incarnation),
    )
    return released.rowcount > 0


def delete(db: sqlite3.Connection, agent_id: str, mark: int) -> bool:
    """See `Backend.delete`. The row stays, as the tombstone."""
    row = db.execute(
        "UPDATE agents SET deleted = 1, tenure = NULL, mark = ?, due = NULL, ask_count = 0, "
        "run_version = NULL WHERE id = ? AND NOT deleted RETURNING no",
        (mark, agent_id),
    ).fetchone()
    if row is None:
        return False
    first = row[0] << SEQ_BITS
    db.execute(_DELETE_RECORDS, (first, first + (1 << SEQ_BITS) - 1))
    db.execute("DELETE FROM asks WHERE agent = ?", row)
    checkpoints.delete(db, row[0])
    blobs.delete(db, row[0])
    db.execute("DELETE FROM message_runs WHERE agent = ?", (row[0],))
    call_keys.leave(db, row[0])
    return True


def is_committed(db: sqlite3.Connection, batch: Batch) -> bool:
    """See `Backend.is_committed`."""
    row = db.execute(
        "SELECT no, last_seq, index_status FROM agents WHERE id = ? AND incarnation = ? "
        "AND NOT deleted",
        (batch.agent_id, batch.incarnation),
    ).fetchone()
    if row is None:
        return False
    no, last, index_status = row
    if not batch.records:
        return bool((last, index_status) == (batch.first_seq - 1, batch.entry.status.value))
    first = (no << SEQ_BITS) + batch.first_seq
    found = db.execute(
        "SELECT epoch, version, kind, payload FROM records WHERE id BETWEEN ? AND ? ORDER BY id",
        (first, first + len(batch.records) - 1),
    ).fetchall()
    return found == [(batch.epoch, r.version, r.kind, r.payload) for r in batch.records]


# The newest mark of all agents, and the oldest of those with an open run or something due.
_MARKS = """
    SELECT coalesce(max(mark), 0),
        min(mark) FILTER (
            WHERE NOT deleted AND (index_status NOT IN ('rest', 'queued') OR due IS NOT NULL))
    FROM agents
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """A tenure that has begun."""

    number: int
    database: str
    """The id of the database."""
    mark: int
    """The newest transaction ever, of this history or of one that a restored copy replaced."""
    was_older: bool
    """Whether the database is older than its watermark."""
    restored: bool
    """Whether it is or was older, and some agent with an open run was not written since."""


def begin_tenure(db: sqlite3.Connection, host: str, watermark: Watermark | None) -> Tenure:
    """Begin the next tenure.

    Args:
        watermark: of the database that was last used at this path.

    """
    database, last, restored_mark = db.execute(
        "SELECT database, tenure, restored_mark FROM meta"
    ).fetchone()
    newest, oldest = db.execute(_MARKS).fetchone()
    mark, was_older = newest, False
    if watermark is not None and watermark.database == database and watermark.mark > newest:
        # Numbers continue above those of the history that was replaced, so that a copy of that
        # history counts as older too
        # (test_a_copy_from_a_history_that_was_left_behind_is_restored_too).
        restored_mark, mark, was_older = newest, watermark.mark, True
        feed.rename(db)
    db.execute(
        "UPDATE meta SET tenure = ?, host = ?, restored_mark = ?", (last + 1, host, restored_mark)
    )
    return Tenure(
        number=last + 1,
        database=database,
        mark=mark,
        was_older=was_older,
        restored=oldest is not None and oldest <= restored_mark,
    )


def end_tenure(db: sqlite3.Connection) -> None:
    """Release all agents that were claimed in it, in a transaction of its own."""
    db.execute("UPDATE meta SET tenure = tenure + 1, host = NULL")

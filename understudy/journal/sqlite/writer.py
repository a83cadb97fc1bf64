"""Claims and appends in a SQLite store, in the tenure in which they are made.

A tenure is the time of one host with a database, from `open` to `close`. Each has a number, and the
row of an agent has the number of the tenure that claimed it last. So a new number in one row ends
all claims at once, however many agents there are and however the last host ended.
"""

from __future__ import annotations

import sqlite3
from sys import intern
from typing import Any

from understudy.errors import StoreDamaged
from understudy.journal.contracts import Batch, Owned
from understudy.journal.sql_backend import Rows, changed_asks, refusal
from understudy.journal.sqlite.schema import SEQ_BITS

CLAIM_EXISTING = """
    UPDATE agents SET epoch = epoch + 1, tenure = ? WHERE agent_id = ? AND NOT deleted
    RETURNING definition, incarnation, epoch, last_seq
"""
CLAIM_NEW = """
    INSERT INTO agents (agent_id, definition, tenure, mark, incarnation, epoch)
    SELECT ?, ?, ?, ?, gone_incarnation + 1, gone_epoch + 1 FROM meta WHERE true
    ON CONFLICT (agent_id) DO UPDATE SET definition = excluded.definition,
        incarnation = incarnation + 1, epoch = epoch + 1, last_seq = 0, floor = 0,
        index_status = 'rest', tenure = excluded.tenure, mark = excluded.mark, deleted = 0,
        due = NULL, status = 'idle', status_at = NULL, run_version = NULL
    RETURNING definition, incarnation, epoch, last_seq
"""
_FIND = """
    SELECT key, ask_count, deleted, incarnation, epoch, last_seq, index_status, due, status,
        run_version
    FROM agents WHERE agent_id = ?
"""
# Most batches change neither status nor due time: then their indexes are not written.
# No statement numbers its values, as by `?1`: Python 3.12.0 to 3.12.3 takes that for a name, and
# warns (test_no_statement_warns_in_a_python_that_takes_numbered_values_for_names).
_ADD = "UPDATE agents SET last_seq = ?, mark = ? WHERE key = ?"
_ADD_WITH_ENTRY = """
    UPDATE agents SET last_seq = ?, mark = ?, index_status = ?, due = ?, status = ?,
        run_version = ?,
        status_at = CASE WHEN ? OR status <> ? OR last_seq = 0 THEN ? ELSE status_at END
    WHERE key = ?
"""
_ASKS = "SELECT agent, id, reminders, escalations FROM asks WHERE agent = ?"
_PUT_ASKS = (
    "DELETE FROM asks WHERE agent = ? AND id = ?",
    """
    INSERT INTO asks (agent, id, definition, kind, tool, request_kind, words, asked_at, expires_at,
        reminders, escalations, version, payload)
    SELECT column1, column2, definition, column3, column4, column5, column6, column7, column8,
        column9, column10, column11, column12
    FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) JOIN agents ON key = column1
    """,
    """
    UPDATE asks SET reminders = column3, escalations = column4 FROM (VALUES (?, ?, ?, ?))
    WHERE agent = column1 AND id = column2
    """,
    "UPDATE agents SET ask_count = column2 FROM (VALUES (?, ?)) WHERE key = column1",
)
"""What is done with the rows of `changed_asks`."""
_ADD_BLOB = "INSERT OR IGNORE INTO blobs (agent, hash, payload) VALUES (?, ?, ?)"
_RECORD = "INSERT INTO records (id, epoch, version, kind, payload) VALUES (?, ?, ?, ?, ?)"


def owned(agent_id: str, row: tuple[str, int, int, int]) -> Owned:
    """The claim by a row of `CLAIM_EXISTING` or `CLAIM_NEW`."""
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
    """Add the records of a batch; see `Backend.append`. Returns the key of the agent's row."""
    last = batch.first_seq - 1
    # Found first, and changed by its number: `UPDATE ... RETURNING` costs more than both.
    row: tuple[Any, ...] | None = db.execute(_FIND, (batch.agent_id,)).fetchone()
    key, ask_count, *found = row or (0, 0)
    there, stored = found[:4], found[4:]
    if (refused := refusal(batch, there)) is not None:
        raise refused
    said = batch.entry
    entry = [said.status.value, said.due_number, said.status_word, said.run_version]
    numbers = (last + len(batch.records), mark)
    if last and not batch.status_noted and stored == entry:
        db.execute(_ADD, (*numbers, key))
    else:
        status_at = (batch.status_noted, said.status_word, batch.at_number)
        db.execute(_ADD_WITH_ENTRY, (*numbers, *entry, *status_at, key))
    first, epoch = (key << SEQ_BITS) + batch.first_seq, batch.epoch
    # A bytearray: `sqlite3` looks for an adapter of each other object of bytes, ten times as long.
    rows = [
        (id, epoch, version, kind, bytearray(payload))
        for id, (kind, version, payload) in enumerate(batch.records, first)
    ]
    db.executemany(_RECORD, rows)
    asked: Rows = []
    if batch.asks_before is None and ask_count:
        asked = db.execute(_ASKS, (key,)).fetchall()
    if asked or batch.asks_before or said.asks:
        for query, rows in zip(_PUT_ASKS, changed_asks({key: batch}, asked), strict=True):
            db.executemany(query, rows)
    if batch.blobs:
        blobs = [(key, bytes.fromhex(hash), kept) for hash, kept in batch.blobs.items()]
        db.executemany(_ADD_BLOB, blobs)
    if batch.message_runs:
        taken = [(key, *run) for run in batch.message_runs.items()]
        db.executemany("INSERT OR IGNORE INTO message_runs VALUES (?, ?, ?)", taken)
    return int(key)

"""Keys of calls in a SQLite store. But for those that read alone, called inside a transaction."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

from understudy.errors import Fenced
from understudy.journal.call_keys import KeyTaking, KeyUse, may_take
from understudy.journal.contracts import Batch, Owned, key_use, time_number

_MICROSECOND = timedelta(microseconds=1)
_AGENT = """
    SELECT no FROM agents WHERE id = ? AND epoch = ? AND incarnation = ? AND NOT deleted
"""
_USES = """
    SELECT a.id, k.incarnation, k.call_key, k.tool, k.tool_call_id, k.taken_at, k.done_at,
        k.done_at IS NULL AND k.kept_until IS NOT NULL
    FROM call_keys k JOIN agents a ON a.no = k.agent
    WHERE k.hash = ? AND (k.kept_until IS NULL OR k.kept_until > ?) ORDER BY k.place
"""
_OTHER = """
    DELETE FROM call_keys
    WHERE agent = ? AND incarnation = ? AND call_key = ? AND hash <> ? AND kept_until IS NULL
"""
_TAKE = """
    INSERT INTO call_keys (hash, place, agent, incarnation, call_key, tool, tool_call_id, taken_at,
        kept)
    SELECT ?1, coalesce(max(place) + 1, 0), ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM call_keys
    WHERE hash = ?1
    ON CONFLICT (agent, incarnation, call_key) DO NOTHING
"""
_FREE = """
    DELETE FROM call_keys WHERE hash = ? AND agent = (SELECT no FROM agents WHERE id = ?)
        AND incarnation = ? AND call_key = ? AND kept_until IS NULL
"""
_DONE = """
    UPDATE call_keys
    SET done_at = coalesce(?1, taken_at), kept_until = coalesce(?1, taken_at) + kept
    WHERE agent = ?2 AND incarnation = ?3 AND call_key = ?4 AND kept_until IS NULL
"""
_GIVEN_BACK = """
    DELETE FROM call_keys
    WHERE agent = ? AND incarnation = ? AND call_key = ? AND kept_until IS NULL
"""


def uses(db: sqlite3.Connection, key_hash: str, at: datetime) -> list[KeyUse]:
    """See `Backend.key_uses`."""
    rows = db.execute(_USES, (bytes.fromhex(key_hash), time_number(at)))
    return [key_use(row) for row in rows]


def take(db: sqlite3.Connection, owned: Owned, taking: KeyTaking) -> list[KeyUse]:
    """See `Backend.take_key`. No other host is about to take one."""
    agent_id, incarnation = owned.agent_id, owned.incarnation
    row = db.execute(_AGENT, (agent_id, owned.epoch, incarnation)).fetchone()
    if row is None:
        raise Fenced(agent_id=agent_id, why="it has another epoch by now, or was deleted")
    found = uses(db, taking.key_hash, taking.at)
    if not may_take(taking, agent_id, incarnation, found):
        return found
    hash, call = bytes.fromhex(taking.key_hash), (row[0], incarnation, taking.call_key)
    db.execute(_OTHER, (*call, hash))
    told = (taking.tool_name, taking.tool_call_id)
    times = (time_number(taking.at), taking.kept // _MICROSECOND)
    db.execute(_TAKE, (hash, *call, *told, *times))
    return []


def free(db: sqlite3.Connection, key_hash: str, use: KeyUse) -> None:
    """See `Backend.free_key`."""
    db.execute(_FREE, (bytes.fromhex(key_hash), *use[:3]))


def end(db: sqlite3.Connection, no: int, batch: Batch) -> None:
    """Make what a batch of the agent with this number says of its keys."""
    for call_key, is_done in batch.key_ends:
        call = (no, batch.incarnation, call_key)
        if is_done:
            db.execute(_DONE, (batch.at_number, *call))
        else:
            db.execute(_GIVEN_BACK, call)


def leave(db: sqlite3.Connection, no: int) -> None:
    """The agent with this number is deleted: nobody will know what its open calls did."""
    db.execute(
        "UPDATE call_keys SET kept_until = taken_at + kept WHERE agent = ? AND kept_until IS NULL",
        (no,),
    )


def has_old(db: sqlite3.Connection, before: datetime) -> bool:
    """See `Backend.has_old_keys`."""
    found = db.execute(
        "SELECT 1 FROM call_keys WHERE kept_until <= ? LIMIT 1", (time_number(before),)
    )
    return found.fetchone() is not None


def delete_old(db: sqlite3.Connection, before: datetime) -> None:
    """See `Backend.delete_old_keys`."""
    db.execute("DELETE FROM call_keys WHERE kept_until <= ?", (time_number(before),))


def secret(db: sqlite3.Connection) -> bytes:
    """See `Backend.key_secret`."""
    ((found,),) = db.execute("SELECT key_secret FROM meta").fetchall()
    return bytes(found)

"""The feed of a SQLite store. Commits come in the order of its rows: one runtime writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from understudy.journal.contracts import FeedRow, time_number
from understudy.journal.feed import DELETED

_ADD = """
    INSERT INTO feed (agent_id, definition, seq, at, kind, version, payload)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_DELETED = f"""
    INSERT INTO feed (agent_id, definition, seq, at, kind, version, payload)
    SELECT agent_id, definition, 0, ?, '{DELETED}', 1, x'' FROM agents WHERE agent_id = ?
"""  # noqa: S608 - of a constant
STATE = "SELECT feed, 0, feed_floor, 0, 0 FROM meta WHERE feed_on"
# The last row to go: before a time, or behind the newest ones.
_LAST = """
    SELECT max(
        coalesce((SELECT no FROM feed WHERE at < ? ORDER BY no DESC LIMIT 1), 0),
        coalesce((SELECT no FROM feed ORDER BY no DESC LIMIT 1 OFFSET ?), 0)
    )
"""


def is_on(db: sqlite3.Connection) -> bool:
    """Whether the store keeps a feed."""
    return bool(db.execute("SELECT feed_on FROM meta").fetchone()[0])


def add(db: sqlite3.Connection, agent_id: str, rows: Sequence[FeedRow]) -> None:
    """Add rows about an agent."""
    values = [
        (
            *(agent_id, row.agent, row.seq, None if row.at is None else time_number(row.at)),
            *(row.record.kind, row.record.version, row.record.payload),
        )
        for row in rows
    ]
    db.executemany(_ADD, values)


def add_deletion(db: sqlite3.Connection, agent_id: str, at: datetime) -> None:
    """Add that the agent was deleted."""
    db.execute(_DELETED, (time_number(at), agent_id))


def turn(db: sqlite3.Connection, on: bool) -> None:
    """See `Backend.turn_feed`."""
    if on:
        db.execute("UPDATE meta SET feed_on = 1")
        return
    db.execute("DELETE FROM feed")
    db.execute("UPDATE meta SET feed_on = 0, feed_floor = 0")
    rename(db)


def rename(db: sqlite3.Connection) -> None:
    """Make it another feed: the cursors of before are answered by a gap."""
    db.execute("UPDATE meta SET feed = lower(hex(randomblob(8)))")


def trim(db: sqlite3.Connection, before: datetime, keep: int) -> None:
    """See `Backend.trim_feed`."""
    (last,) = db.execute(_LAST, (time_number(before), keep)).fetchone()
    (newest,) = db.execute("SELECT coalesce(max(no), 0) FROM feed").fetchone()
    last = min(last, newest - 1)
    if db.execute("DELETE FROM feed WHERE no <= ?", (last,)).rowcount:
        db.execute("UPDATE meta SET feed_floor = ?", (last,))

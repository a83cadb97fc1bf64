"""A tenure: one host's time with a SQLite database, from `open` to `close`.

Each has a number, and an agent's row the number of the one that claimed it last. So a new number,
in one row, ends all claims at once, however many agents there are and however the last host ended.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from understudy.journal.sqlite_lock import Watermark

__all__ = ["Tenure", "begin_tenure", "end_tenure"]

# The newest transaction of all, and the oldest that was the last one of an agent with an open run.
_MARKS = """
    SELECT coalesce(max(mark), 0),
        min(mark) FILTER (WHERE NOT deleted AND standing NOT IN ('rest', 'queued'))
    FROM agents
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """What a host learns when it begins."""

    number: int
    database: str
    """The id of the database."""
    mark: int
    """The newest transaction there ever was, in this history or in one that was left behind."""
    was_older: bool
    """The database is older than its watermark."""
    restored: bool
    """Now or earlier it was, and some agent with an open run has not been written since."""


def begin_tenure(db: sqlite3.Connection, host: str, watermark: Watermark | None) -> Tenure:
    """Begin the next tenure. Call it inside a transaction.

    Args:
        watermark: of the database that was last used in this place.

    """
    database, last, restored_mark = db.execute(
        "SELECT database, tenure, restored_mark FROM meta"
    ).fetchone()
    newest, oldest = db.execute(_MARKS).fetchone()
    mark, was_older = newest, False
    if watermark is not None and watermark.database == database and watermark.mark > newest:
        # Numbers go on above those of the history that was left behind, so that a copy of that
        # one is known as older too.
        restored_mark, mark, was_older = newest, watermark.mark, True
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
    """Give up all that was claimed in it."""
    db.execute("UPDATE meta SET tenure = tenure + 1, host = NULL")

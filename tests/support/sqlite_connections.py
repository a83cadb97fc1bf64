"""Which connections to SQLite a test has opened and left open.

A connection that nobody closes warns when it is collected: in a later test, or never.
"""

from __future__ import annotations

import functools
import sqlite3
from typing import Any

_made: list[tuple[str, sqlite3.Connection]] = []


def note_connections() -> None:
    """From now on, note each connection that this process opens."""
    connect = sqlite3.connect

    @functools.wraps(connect)
    def noted(database: Any, *given: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(database, *given, **options)
        _made.append((str(database), connection))
        return connection

    sqlite3.connect = noted  # type: ignore[assignment]  # for the tests of this process


def left_open() -> list[str]:
    """The files of the connections that were opened since the last call, and are open."""
    made = _made.copy()
    _made.clear()
    return [file for file, connection in made if _is_open(connection)]


def close_left_open() -> None:
    """Close what a test left open that had to fail: it did not come to its end."""
    made = _made.copy()
    _made.clear()
    for _, connection in made:
        if _is_open(connection):
            connection.close()


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        # Any thread may ask for it, also of a connection that belongs to another thread.
        return connection.total_changes >= 0
    except sqlite3.ProgrammingError:
        return False

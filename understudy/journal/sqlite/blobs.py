"""The bytes of files in a SQLite store, each by its agent and its hash."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

_ADD = "INSERT OR IGNORE INTO blobs (agent, hash, payload) VALUES (?, ?, ?)"
_HASHES = "SELECT hash FROM blobs WHERE agent = ?"
_DELETE = "DELETE FROM blobs WHERE agent = ? AND hash = ?"
_DELETE_ALL = "DELETE FROM blobs WHERE agent = ?"
_READ = "SELECT payload FROM blobs WHERE agent = ? AND hash = ?"
_READ_ALL = "SELECT hash, payload FROM blobs WHERE agent = ?"


def add(db: sqlite3.Connection, no: int, blobs: Mapping[str, bytes]) -> None:
    """Add those that the agent with this number does not have. Called inside a transaction."""
    db.executemany(_ADD, [(no, bytes.fromhex(hash), kept) for hash, kept in blobs.items()])


def delete(db: sqlite3.Connection, no: int, *, but: Collection[str] = ()) -> None:
    """Delete those of the agent with this number, but these."""
    if not but:
        db.execute(_DELETE_ALL, (no,))
        return
    kept = {bytes.fromhex(hash) for hash in but}
    gone = [(no, hash) for (hash,) in db.execute(_HASHES, (no,)) if hash not in kept]
    db.executemany(_DELETE, gone)


def read(db: sqlite3.Connection, no: int, hashes: Collection[str] | None) -> dict[str, bytes]:
    """See `Backend.load_blobs`.

    Raises:
        TypeError: if a row is damaged.

    """
    if hashes is None:
        return {bytes.hex(hash): kept for hash, kept in db.execute(_READ_ALL, (no,))}
    found = ((hash, db.execute(_READ, (no, bytes.fromhex(hash))).fetchone()) for hash in hashes)
    return {hash: row[0] for hash, row in found if row is not None}

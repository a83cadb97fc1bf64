"""What SQLite says, told as whose move is next."""

from __future__ import annotations

import sqlite3

from understudy.errors import StoreBroken, StoreDamaged, StoreError, StoreUnavailable

__all__ = ["is_io_error", "read_only", "store_error"]

_PASSES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
_REMEDIES = {
    sqlite3.SQLITE_FULL: "Make room on its disk (or raise max_pages, if that was given).",
    sqlite3.SQLITE_READONLY: "Let this user write the file and its folder, on a disk that is not "
    "mounted read-only; if the file was moved or replaced, open the store anew.",
    sqlite3.SQLITE_IOERR: "Look after the disk, then open the store anew: after an I/O error "
    "nobody knows which bytes it kept, so nothing is written until then.",
    sqlite3.SQLITE_CANTOPEN: "Give the path of a file in a folder that exists, and that this "
    "user may write.",
}


def store_error(error: sqlite3.Error, path: str) -> StoreError:
    """The error of ours that says the same, with a remedy."""
    code = _primary(error)
    told = f"SQLite file {path!r}: {error}"
    if code in _PASSES:
        return StoreUnavailable(cause=told)
    if code in _DAMAGE:
        return StoreDamaged(what=f"the SQLite file {path!r}", cause=str(error))
    remedy = _REMEDIES.get(code, "Open the store anew; if that fails too, restore a copy of it.")
    return StoreBroken(cause=told, remedy=remedy, is_final=is_io_error(error))


def read_only(path: str) -> StoreBroken:
    """The error for a file that may be read alone."""
    return StoreBroken(
        cause=f"the SQLite file {path!r} is read-only", remedy=_REMEDIES[sqlite3.SQLITE_READONLY]
    )


def is_io_error(error: sqlite3.Error) -> bool:
    """Whether the disk failed, so that what it keeps is unknown."""
    return _primary(error) == sqlite3.SQLITE_IOERR


def _primary(error: sqlite3.Error) -> int:
    # Errors of the Python module itself (a closed connection) carry no code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF

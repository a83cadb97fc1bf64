"""SQLite's errors as the store's: retry, repair first, or damaged."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from understudy._base.descriptors import lacks_descriptors, no_descriptor
from understudy._base.json_values import text_of
from understudy.errors import StoreBroken, StoreDamaged, StoreError, StoreUnavailable

T = TypeVar("T")
_logger = logging.getLogger(__name__)

_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
_REMEDIES = {
    sqlite3.SQLITE_FULL: "Make room on its disk (or raise `max_pages`, if that is set).",
    sqlite3.SQLITE_READONLY: "Let this user write the file and its folder, on a disk that is not "
    "mounted read-only; if the file was moved or replaced, open the store again.",
    sqlite3.SQLITE_IOERR: "Check the disk, then open the store again: after an I/O error it is "
    "unknown which bytes are on it, so nothing is written until then.",
    sqlite3.SQLITE_CANTOPEN: "Give the path of a file in a folder that exists and that this "
    "user may write to.",
}

# Where a page is read, and not the first one, SQLite says for these that the file is malformed.
_FAILED_READS = {
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
}
_OPENED = 4
"""The files that a connection has open at most: the database, its journal, its write-ahead log and
the index of that."""


def store_error(error: sqlite3.Error, path: str, what: str = "") -> StoreError:
    """The store's error for one of SQLite's, with a remedy; `what` was read or written."""
    code = _primary(error)
    cause = f"SQLite file {path!r}: {text_of(error)}"
    if is_undecodable(error):
        return damaged(error, path, what)
    if getattr(error, "sqlite_errorcode", None) in _FAILED_READS:
        return StoreUnavailable(cause=f"{cause}; its disk could not be read: see the disk's log")
    if code in _TRANSIENT:
        return StoreUnavailable(cause=cause)
    if code in _DAMAGE:
        return damaged(error, path, what)
    # SQLite does not say why it cannot open a file.
    if code == sqlite3.SQLITE_CANTOPEN and lacks_descriptors(_OPENED):
        return StoreUnavailable(cause=no_descriptor(f"the SQLite file {path!r} ({text_of(error)})"))
    remedy = _REMEDIES.get(code, "Open the store again; if that fails too, restore a copy of it.")
    return StoreBroken(cause=cause, remedy=remedy, is_final=is_io_error(error))


UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError)
"""What reading a damaged row raises: a flipped bit makes another type of a column, a number that is
too large, or a text that is not UTF-8, also in an error message of SQLite's own."""


def damaged(error: Exception, path: str, what: str = "") -> StoreDamaged:
    """The error for what `UNREADABLE` names, and for what SQLite says of a damaged file."""
    file = f"the SQLite file {path!r}"
    cause = text_of(error)
    if not isinstance(error, sqlite3.Error):
        cause = f"{type(error).__name__}: {cause}"
    elif _primary(error) == sqlite3.SQLITE_CORRUPT:
        cause = f"{cause}, by SQLite, which says so of a disk that cannot be read, too: see its log"
    elif _primary(error) == sqlite3.SQLITE_NOTADB:
        cause = f"{cause}; perhaps it is another file, and never was a store"
    return StoreDamaged(what=f"{what} in {file}" if what else file, cause=cause)


def read_only(path: str) -> StoreBroken:
    """The error for a file that this user may only read."""
    return StoreBroken(
        cause=f"the SQLite file {path!r} is read-only", remedy=_REMEDIES[sqlite3.SQLITE_READONLY]
    )


def is_undecodable(error: sqlite3.Error) -> bool:
    """Whether a text is not UTF-8. The Python module says so, and not SQLite."""
    return not hasattr(error, "sqlite_errorcode") and "decode" in str(error)


def is_io_error(error: sqlite3.Error) -> bool:
    """Whether the disk failed, so that it is unknown which bytes are on it. A read changes none."""
    code = getattr(error, "sqlite_errorcode", None)
    return _primary(error) == sqlite3.SQLITE_IOERR and code not in _FAILED_READS


def read_twice(read: Callable[[], T]) -> T:
    """What `read` gives; at a second attempt if it finds the file malformed.

    SQLite says so, too, where one read of the disk has failed.
    """
    try:
        return read()
    except sqlite3.DatabaseError as error:
        if _primary(error) != sqlite3.SQLITE_CORRUPT:
            raise
        _logger.warning("a part of a SQLite file is read again: %s", text_of(error))
    return read()


def _primary(error: sqlite3.Error) -> int:
    # Errors of the Python module itself (a closed connection) carry no code.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF

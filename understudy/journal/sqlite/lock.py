"""The sidecar of a SQLite database: one runtime has it, and how far the database had come.

The lock is a `flock` on a file beside the database, not a lock on the database itself: SQLite's own
are POSIX locks, which a process loses when it closes *any* descriptor of that file. The kernel
releases it when the process ends, however it ends.

The file is one line of fixed width and one with the holder's name:

    understudy 1 <database's id> <watermark>
    <host>

The *watermark* is the newest transaction that this database had. A database that is older than its
sidecar is a restored copy.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import StoreBroken, StoreInUse

if sys.platform != "win32":
    import fcntl

__all__ = ["SidecarLock", "Watermark"]

_logger = logging.getLogger(__name__)
_MAGIC = b"understudy 1 "
_MARK_AT = len(_MAGIC) + 17  # behind the id of 16 digits and a space
_HEAD = _MARK_AT + 21


@dataclass(frozen=True, slots=True)
class Watermark:
    """What the sidecar says of the database that was last used beside it."""

    database: str
    """Its id: 16 hexadecimal digits, made with the database and copied with it."""
    mark: int
    """The number of its newest transaction."""


class SidecarLock:
    """The right to write to one SQLite database; at most one holder on this machine.

    Args:
        database: its path, resolved, so that there is one lock by whatever link one comes.

    """

    def __init__(self, database: str) -> None:
        self._database = database
        self.path = f"{database}.lock"
        self._file: int | None = None

    def take(self, host: str) -> Watermark | None:
        """Take the lock, without waiting, and write our name into it.

        Returns:
            The watermark of the last holder, where there is one.

        Raises:
            StoreInUse: naming the holder.
            StoreBroken: if the file cannot be made or locked.

        """
        self.check_process()
        try:
            file = self._file = self._locked()
            _held.add(self)
            head = os.pread(file, _HEAD, 0)
            os.ftruncate(file, _HEAD)
            os.pwrite(file, f"{host}\n".encode(errors="backslashreplace"), _HEAD)
        except BlockingIOError:
            raise StoreInUse(path=self._database, holder=self._holder()) from None
        except OSError as error:
            raise StoreBroken(
                cause=f"{self.path!r} cannot be locked: {error.strerror}",
                remedy="Give the path of a file in a folder that exists and may be written, on a "
                "disk of this machine.",
            ) from error
        return _read(head)

    def _locked(self) -> int:
        if sys.platform == "win32":
            raise OSError(0, "this system has no flock; use a PostgreSQL store")
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)  # closed on exec, as all are
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file), Path(self.path).stat()):
                    return file
            except FileNotFoundError:  # removed between the two lines: this one locks nobody out
                pass
            except OSError:
                os.close(file)
                raise
            os.close(file)

    def _holder(self) -> str:
        text = Path(self.path).read_bytes()[_HEAD:]
        return text.decode(errors="replace").strip("\0\n")

    def begin(self, watermark: Watermark) -> None:
        """Say which database this is, and how far it has come; durable on return."""
        assert self._file is not None
        line = f"{watermark.database} {watermark.mark:020d}\n"
        try:
            os.pwrite(self._file, _MAGIC + line.encode(), 0)
            os.fsync(self._file)
        except OSError as error:
            raise StoreBroken(
                cause=f"{self.path!r} cannot be written: {error.strerror}",
                remedy="Make room on its disk, then open the store anew.",
            ) from error

    def note(self, mark: int) -> None:
        """Move the watermark on. It is not synced: it survives the process, not the machine."""
        assert self._file is not None
        try:
            os.pwrite(self._file, b"%020d" % mark, _MARK_AT)
        except OSError as error:  # the commit itself is durable: it must not fail for this
            _logger.warning("The watermark in %r cannot be moved on: %s", self.path, error)

    @property
    def forked(self) -> bool:
        """Whether this process is a child of one that had the database open at the fork."""
        return self.path in _inherited

    def check_process(self) -> None:
        """Refuse to go on in a forked child.

        SQLite keeps what it locked in the memory of the process, so that in the child it would
        believe in locks that only the parent has.

        Raises:
            StoreBroken: if this process was forked from one that had the database open.

        """
        if self.forked:
            raise StoreBroken(
                cause=f"this process was forked while {self._database!r} was open",
                remedy="Open the store after the fork, or start the process by spawn.",
            )

    def check_held(self) -> None:
        """Refuse to go on without the lock.

        Raises:
            StoreBroken: if it is not held, or by the parent of this process.

        """
        self.check_process()
        if self._file is None:
            raise StoreBroken(cause=f"{self._database!r} is not open", remedy="Open the store.")

    def drop(self) -> None:
        """Give the lock up. Raises nothing."""
        file, self._file = self._file, None
        _held.discard(self)
        if file is None:
            return
        try:
            os.ftruncate(file, _HEAD)
            os.fsync(file)
        except OSError as error:
            _logger.warning("The sidecar %r cannot be synced: %s", self.path, error)
        os.close(file)

    def abandon_in_child(self) -> None:
        """Let the parent's lock end with the parent: a forked child shares the open file."""
        _inherited.add(self.path)
        if self._file is not None:
            os.close(self._file)  # unlocks nothing: the parent has the same file open
            self._file = None


def _read(head: bytes) -> Watermark | None:
    try:
        magic, version, database, mark = head.decode("ascii").split()
        if f"{magic} {version} ".encode() == _MAGIC and len(database) == 16:
            return Watermark(database, int(mark))
    except ValueError:
        pass
    if head.strip(b"\0"):
        _logger.warning("The sidecar of a SQLite store holds no watermark; it gets a new one")
    return None


_held: weakref.WeakSet[SidecarLock] = weakref.WeakSet()
_inherited: set[str] = set()


def _in_child() -> None:
    for lock in list(_held):
        lock.abandon_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

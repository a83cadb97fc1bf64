"""The sidecar of a SQLite database: the lock of its one runtime, and the newest transaction.

The lock is a `flock` on a file next to the database, not a lock on the database: SQLite's own
are POSIX locks, which a process loses when it closes *any* descriptor of that file. The kernel
releases a `flock` when the process ends, however it ends.

The file is one line of fixed width, and one with the holder's name:

    understudy 1 <database's id> <watermark>
    <host>

The *watermark* is the number of the database's newest transaction. A database that is older than
its sidecar is a restored copy.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path

from understudy._base.descriptors import is_out_of_descriptors, no_descriptor
from understudy._base.forks import call_in_child
from understudy.errors import StoreBroken, StoreInUse, StoreUnavailable

if sys.platform == "win32":
    raise ImportError("understudy.journal.sqlite needs flock, which Windows does not have")

import fcntl

_logger = logging.getLogger(__name__)
_MAGIC = b"understudy 1 "
_MARK_AT = len(_MAGIC) + 17  # after the id of 16 digits and a space
_HEAD = _MARK_AT + 21


@dataclass(frozen=True, slots=True)
class Watermark:
    """What the sidecar says about the database that was last used with it."""

    database: str
    """The id of the database: 16 hexadecimal digits, made with it and copied with it."""
    mark: int
    """The number of the newest transaction of the database."""


class SidecarLock:
    """The right to write to one SQLite database; at most one holder on this machine.

    Args:
        database: its resolved path, so that all links to a database share one lock.

    """

    def __init__(self, database: str) -> None:
        self._database = database
        self.path: str = f"{database}.lock"
        self._file: int | None = None

    def acquire(self, host: str) -> Watermark | None:
        """Acquire the lock without waiting, and write our name into it.

        Returns:
            The watermark of the last holder; None if there is none.

        Raises:
            StoreInUse: naming the holder.
            StoreBroken: if the file cannot be made or locked, or this process was forked.
            StoreUnavailable: if no file descriptor is left for it.

        """
        self.check_process()
        try:
            file = self._file = self._open_locked()
            _held.add(self)
            head = os.pread(file, _HEAD, 0)
            os.ftruncate(file, _HEAD)
            os.pwrite(file, f"{host}\n".encode(errors="backslashreplace"), _HEAD)
        except BlockingIOError:
            raise StoreInUse(path=self._database, holder=self._holder()) from None
        except OSError as error:
            if is_out_of_descriptors(error):
                raise StoreUnavailable(cause=no_descriptor(repr(self.path))) from error
            raise StoreBroken(
                cause=f"{self.path!r} cannot be locked: {error.strerror}",
                remedy="Give the path of a file in a folder that exists and may be written, on a "
                "local disk.",
            ) from error
        return _read(head)

    def _open_locked(self) -> int:
        while True:
            # Python opens it non-inheritable, so a program that is started does not keep the lock
            # (test_a_program_that_was_started_meanwhile_does_not_keep_the_lock).
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Race: the file may be deleted, or replaced, between the two lines above. A lock on
                # a file that is not at the path excludes no other runtime: try again
                # (test_a_lock_file_that_vanishes_while_it_is_taken_locks_nobody_in).
                if os.path.samestat(os.fstat(file), Path(self.path).stat()):
                    return file
            except FileNotFoundError:
                pass
            except OSError:
                os.close(file)
                raise
            os.close(file)

    def _holder(self) -> str:
        text = Path(self.path).read_bytes()[_HEAD:]
        return text.decode(errors="replace").strip("\0\n")

    def write_watermark(self, watermark: Watermark) -> None:
        """Write which database this is, and its newest transaction. Durable on return."""
        assert self._file is not None
        line = f"{watermark.database} {watermark.mark:020d}\n"
        try:
            os.pwrite(self._file, _MAGIC + line.encode(), 0)
            _sync(self._file)
        except OSError as error:
            raise StoreBroken(
                cause=f"{self.path!r} cannot be written: {error.strerror}",
                remedy="Make room on its disk, then open the store again.",
            ) from error

    def advance_watermark(self, mark: int) -> None:
        """Write the number of a newer transaction. Not synced: it survives the process alone."""
        assert self._file is not None
        try:
            os.pwrite(self._file, b"%020d" % mark, _MARK_AT)
        except OSError as error:  # the commit itself is durable, so it must not fail
            _logger.warning("The watermark in %r cannot be written: %s", self.path, error)

    @property
    def forked(self) -> bool:
        """Whether this process is a child of one that had the database open at the fork."""
        return self.path in _inherited

    def check_process(self) -> None:
        """Raise an error in a forked child.

        SQLite keeps its locks in the memory of the process. In the child it would count on locks
        that only the parent has.

        Raises:
            StoreBroken: if this process was forked from one that had the database open.

        """
        if self.forked:
            raise StoreBroken(
                cause=f"this process was forked while {self._database!r} was open",
                remedy="Open the store after the fork, or start the process with spawn.",
            )

    def check_held(self) -> None:
        """Raise an error unless this process holds the lock.

        Raises:
            StoreBroken: if it is not held, or held by the parent of this process.

        """
        self.check_process()
        if self._file is None:
            raise StoreBroken(cause=f"{self._database!r} is not open", remedy="Open the store.")

    def release(self) -> None:
        """Release the lock. Raises nothing."""
        file, self._file = self._file, None
        _held.discard(self)
        if file is None:
            return
        try:
            os.ftruncate(file, _HEAD)
            _sync(file)
        except OSError as error:
            _logger.warning("The sidecar %r cannot be synced: %s", self.path, error)
        # Race: this against a program that is being started. Its process has the file open too
        # until the kernel closes that, which may come after we know that it was started
        # (test_a_program_that_was_started_meanwhile_does_not_keep_the_lock).
        try:
            fcntl.flock(file, fcntl.LOCK_UN)
        except OSError as error:
            _logger.warning("The lock %r cannot be released: %s", self.path, error)
        os.close(file)

    def abandon_in_child(self) -> None:
        """Close the file that a forked child shares with its parent. It is called in the child.

        Else the child would keep the lock when the parent is dead
        (test_a_forked_child_neither_keeps_the_lock_nor_uses_the_store).
        """
        _inherited.add(self.path)
        if self._file is not None:
            # This does not release the lock: the parent has the same open file
            # (test_a_fork_leaves_the_store_of_the_parent_alone).
            os.close(self._file)
            self._file = None


def _sync(file: int) -> None:
    if sys.platform == "darwin":  # there `fsync` does not wait for the disk's own cache
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fsync(file)


def _read(head: bytes) -> Watermark | None:
    try:
        magic, version, database, mark = head.decode("ascii").split()
        if f"{magic} {version} ".encode() == _MAGIC and len(database) == 16:
            return Watermark(database, int(mark))
    except ValueError:
        pass
    if head.strip(b"\0"):
        _logger.warning("The sidecar of a SQLite store has no watermark: a new one is written")
    return None


_held: weakref.WeakSet[SidecarLock] = weakref.WeakSet()
_inherited: set[str] = set()
"""The paths of locks that the parent held at the fork."""


def _abandon_all() -> None:
    for lock in list(_held):
        lock.abandon_in_child()


call_in_child(_abandon_all)

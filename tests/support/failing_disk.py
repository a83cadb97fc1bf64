"""A disk of which SQLite cannot read for a while."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["failing_reads"]

_POINTERS = 16
"""Pointers of `sqlite3_vfs` from `pNext` to `xCurrentTimeInt64`."""


class _Vfs(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        ("size", ctypes.c_int),
        ("longest", ctypes.c_int),
        ("before", ctypes.c_void_p * _POINTERS),
        ("set_call", ctypes.c_void_p),
    )


_Read = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int64,
    use_errno=True,
)
_SetCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@contextmanager
def failing_reads(path: Path, times: int, *, after: int = 0) -> Iterator[Callable[[], int]]:
    """So many reads of this file end with EIO, behind the next ones. Gives how many have failed."""
    import _sqlite3

    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None)
    set_call = _SetCall(vfs.contents.set_call)
    pread = ctypes.CDLL(None, use_errno=True).pread64
    pread.restype = ctypes.c_ssize_t
    pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
    seen = 0

    def read(file: int, into: int, size: int, at: int) -> int:
        nonlocal seen
        if Path(f"/proc/self/fd/{file}").readlink() == path:
            seen += 1
            if after < seen <= after + times:
                ctypes.set_errno(errno.EIO)
                return -1
        return int(pread(file, into, size, at))

    given = _Read(read)
    names = (b"pread", b"pread64")
    for name in names:
        set_call(ctypes.cast(vfs, ctypes.c_void_p), name, ctypes.cast(given, ctypes.c_void_p))
    try:
        yield lambda: min(max(seen - after, 0), times)
    finally:
        for name in names:
            set_call(ctypes.cast(vfs, ctypes.c_void_p), name, None)

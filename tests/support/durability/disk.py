"""A power cut, played: what was written and never synced is gone.

SQLite syncs its log within a commit where its `synchronous` is FULL, and not otherwise. So after
each commit the connection itself is asked for that, and the files as they are then become the image
that a power cut leaves behind. `kill -9` alone would prove nothing: the kernel keeps what a dead
process wrote.
"""

from __future__ import annotations

import functools
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from understudy.journal.sqlite.backend import SqliteBackend
from understudy.journal.sqlite.lock import SidecarLock

__all__ = ["cut_power", "watch_syncs"]

FULL = 2
_FILES = ("store.db", "store.db-wal")


def watch_syncs(folder: Path) -> None:
    """From now on, in this process, keep an image of what is synced."""
    connections: list[sqlite3.Connection] = []
    files: dict[tuple[str, int], int] = {}
    images = folder / "images"
    images.mkdir(exist_ok=True)

    class Watched(sqlite3.Connection):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            connections.append(self)

    def keep_image() -> None:
        number = 1 + max((int(each.stem) for each in images.iterdir()), default=0)
        draft = images / f"{number:05d}.draft"
        draft.mkdir()
        for name in _FILES:
            (draft / name).write_bytes(_bytes_of(folder / name, files))
        draft.rename(images / f"{number:05d}")

    def keep_if_synced() -> None:
        (level,) = connections[-1].execute("PRAGMA synchronous").fetchone()
        if level >= FULL:
            keep_image()

    connect, commit, note = sqlite3.connect, SqliteBackend.commit, SidecarLock.advance_watermark

    @functools.wraps(connect)
    def connected(*given: Any, **options: Any) -> sqlite3.Connection:
        if options.get("uri"):  # a reader
            reader: sqlite3.Connection = connect(*given, **options)
            return reader
        return connect(*given, factory=Watched, **options)

    @functools.wraps(commit)
    def committed(backend: SqliteBackend) -> None:
        commit(backend)
        keep_if_synced()

    @functools.wraps(note)
    def noted(lock: SidecarLock, mark: int) -> None:
        keep_if_synced()  # the watermark is written after the commit, and reaches the disk later
        note(lock, mark)

    sqlite3.connect = connected  # type: ignore[assignment]  # only in this process
    SqliteBackend.commit = committed  # type: ignore[method-assign, assignment]  # so is this
    SidecarLock.advance_watermark = noted  # type: ignore[method-assign, assignment]  # and this


def _bytes_of(path: Path, files: dict[tuple[str, int], int]) -> bytes:
    """What is in the file. It stays open: closing it would drop SQLite's own locks on it."""
    if not path.exists():
        return b""
    key = (path.name, path.stat().st_ino)
    file = files.setdefault(key, -1)
    if file == -1:
        file = files[key] = os.open(path, os.O_RDONLY)
    return os.pread(file, os.fstat(file).st_size, 0)


def cut_power(folder: Path) -> None:
    """After the process is gone: leave of the store what was synced."""
    images = folder / "images"
    kept = [image for image in sorted(images.iterdir()) if image.suffix != ".draft"]
    for name in (*_FILES, "store.db-shm"):
        (folder / name).unlink(missing_ok=True)
    for name in _FILES if kept else ():
        shutil.copyfile(kept[-1] / name, folder / name)
    for image in images.iterdir():
        if not kept or image != kept[-1]:
            shutil.rmtree(image)

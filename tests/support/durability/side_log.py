"""What really happened, written down beside the store: it survives whatever the store loses."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Entry", "SideLog"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: in which process of the story, what, and of what."""

    life: int
    what: str
    of: tuple[str, ...]


class SideLog:
    """Lines in a file that is only ever appended to; each is on the disk when `write` returns.

    Args:
        path: of the file.
        life: the number of this process in its story.

    """

    def __init__(self, path: Path, life: int) -> None:
        self.life = life
        self._read: list[Entry] = []
        self._upto = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, what: str, *of: str) -> None:
        """Add a line."""
        os.write(self._file, f"{json.dumps([self.life, what, *of])}\n".encode())
        os.fsync(self._file)

    def read(self, *whats: str) -> list[Entry]:
        """All lines so far of these kinds, oldest first."""
        self._catch_up()
        return [entry for entry in self._read if entry.what in whats]

    def _catch_up(self) -> None:
        news = os.pread(self._file, os.fstat(self._file).st_size - self._upto, self._upto)
        whole = news[: news.rfind(b"\n") + 1]
        self._upto += len(whole)
        for line in whole.splitlines():
            life, what, *of = json.loads(line)
            self._read.append(Entry(life, what, tuple(of)))

    def has(self, what: str, *of: str) -> bool:
        """Whether there is such a line."""
        self._catch_up()
        return any(entry.what == what and entry.of == of for entry in self._read)

"""Files of a folder, read without following a link: what is read is in the folder."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path


def read_without_links(root: Path, parts: Sequence[str], limit: int) -> bytes | None:
    """At most `limit` + 1 bytes of a file; None for what is no regular file, such as a pipe.

    A part that is a link, or has become one since it was looked at, is an error.

    Args:
        root: the folder; its own path may have links.
        parts: the names on the way from it to the file.
        limit: one byte more says that there are more.

    Raises:
        OSError: if there is no such file, if it cannot be read, or if a part is a link.

    """
    number = _open(root, parts)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            return None
        with os.fdopen(number, "rb", closefd=False) as opened:
            return opened.read(limit + 1)
    finally:
        os.close(number)


def _open(root: Path, parts: Sequence[str]) -> int:
    if sys.platform == "win32":  # nothing can be opened there from a folder on
        return os.open(root.joinpath(*parts), os.O_RDONLY | os.O_BINARY)
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        *folders, name = parts
        for folder in folders:
            inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inside
        # A pipe that nobody writes to would block.
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)

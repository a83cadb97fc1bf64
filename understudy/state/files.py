"""The files of an agent, as its records and its state have them: without their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file: its bytes are elsewhere, under their hash."""

    hash: str
    """SHA-256 of its bytes, in hexadecimal; empty for a folder."""
    size: int
    """In bytes."""


FOLDER = StoredFile(hash="", size=0)
"""What is kept of a folder that was made by itself: its path ends with a slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What a path is from now on."""

    path: str
    file: StoredFile | None = None
    """None: it is gone."""


def listed(files: Mapping[str, StoredFile] | None) -> list[tuple[str, StoredFile]]:
    """The files by path, without the folders that were made by themselves."""
    return [(path, file) for path, file in sorted((files or {}).items()) if file != FOLDER]


def changed(
    files: Mapping[str, StoredFile] | None, changes: Iterable[FileChange]
) -> dict[str, StoredFile]:
    """The files after these changes, by path."""
    after = dict(files or {})
    for change in changes:
        if change.file is None:
            after.pop(change.path, None)
        else:
            after[change.path] = change.file
    return after

"""The files of an agent in its records and its state: without their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file without its bytes, which are stored under their hash."""

    hash: str
    """SHA-256 of its bytes, in hexadecimal; empty for a folder."""
    size: int
    """The size in bytes."""


FOLDER = StoredFile(hash="", size=0)
"""The entry of a folder that was made without a file in it. Its path ends with a slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """The record that a path has a new content, or none."""

    path: str
    file: StoredFile | None = None
    """The new file; None if the file is gone."""


def listed(files: Mapping[str, StoredFile] | None) -> list[tuple[str, StoredFile]]:
    """The files by path, without the folders that were made on their own."""
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

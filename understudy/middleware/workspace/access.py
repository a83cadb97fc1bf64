"""Access to files: the files of the conversation, or of another backend."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from understudy._base.relative_paths import Names, checked_path, is_inside
from understudy.errors import UsageError
from understudy.state.blobs import chunks_of, pack, unpack
from understudy.state.files import FOLDER, StoredFile

MIB = 1024 * 1024
_TRIES = 5
"""The number of tries of a read: it begins again if a compaction took what it was about to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """The limits of a workspace."""

    file: int = 10 * MIB
    """The maximum bytes of one file."""
    total: int = 100 * MIB
    """The maximum bytes of all files together."""
    number: int = 10_000
    """The maximum number of files."""

    def check_size(self, path: str, size: int) -> None:
        """Raise `UsageError` if the file is too large."""
        if size > self.file:
            raise UsageError(f"{path!r} would have {size:,} bytes: at most {self.file:,} are kept")

    def check(self, files: Mapping[str, int]) -> None:
        """Raise `UsageError` if these files, each with its size, are too many or too large."""
        if len(files) > self.number:
            raise UsageError(
                f"there would be {len(files):,} files: at most {self.number:,} are kept"
            )
        total = sum(files.values())
        if total > self.total:
            raise UsageError(
                f"the files would have {total:,} bytes: at most {self.total:,} are kept"
            )


class Access(ABC):
    """Access to files by paths, which are checked already. Each method raises `UsageError`."""

    @abstractmethod
    async def entries(self) -> Mapping[str, int]:
        """The sizes of all files, by path. The path of a folder that was made on its own ends with
        a slash.
        """

    @abstractmethod
    async def read(self, path: str) -> bytes:
        """The bytes of a file."""

    @abstractmethod
    async def write(self, files: Mapping[str, bytes]) -> None:
        """Write these bytes into these files."""

    @abstractmethod
    async def edit(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file by a function of its bytes. No other change comes in between."""

    @abstractmethod
    async def delete(self, path: str) -> int:
        """Delete a file, or a folder with all its files. Returns the number of files."""

    @abstractmethod
    async def move(self, path: str, to: str) -> int:
        """Move a file, or a folder with all its files. Returns the number of files."""

    @abstractmethod
    async def make_folder(self, path: str) -> None:
        """Make a folder. It may exist already."""


class StoredAccess(Access):
    """Files that the journal of an agent knows, and whose bytes are beside it."""

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits

    @abstractmethod
    async def look(self) -> Mapping[str, StoredFile]:
        """The files as they are now."""

    @abstractmethod
    async def load(self, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """The stored values of these hashes, as far as they still exist."""

    @abstractmethod
    async def change(
        self,
        files: Mapping[str, StoredFile | None],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None],
    ) -> None:
        """Change these paths: see `FileEdits.add`."""

    async def entries(self) -> Mapping[str, int]:
        return {path: file.size for path, file in (await self.look()).items()}

    async def read(self, path: str) -> bytes:
        return (await self._read(path))[1]

    async def _read(self, path: str) -> tuple[StoredFile, bytes]:
        for _ in range(_TRIES):
            file = found(await self.look(), path)
            kept = dict(await self.load([file.hash]))
            if file.hash not in kept:
                continue  # the file was changed since, and a compaction has removed the old bytes
            pieces = chunks_of(kept[file.hash])
            if pieces:
                kept.update(await self.load(pieces))
            if all(piece in kept for piece in pieces):
                return file, unpack(file, kept)
        raise UsageError(f"{path!r} changes all the time, or its bytes are gone")

    async def write(self, files: Mapping[str, bytes]) -> None:
        known = await self.look()
        changes: dict[str, StoredFile | None] = {}
        blobs: dict[str, bytes] = {}
        names = Names(known) if files.keys() - known.keys() else None
        for path, data in files.items():
            self._limits.check_size(path, len(data))
            if names is not None and path not in known:
                names.add(path)
            changes[path], kept = await _packed(data)
            blobs.update(kept)
        await self._change(known, changes, blobs)

    async def edit(self, path: str, change: Callable[[bytes], bytes]) -> None:
        before, data = await self._read(path)
        data = change(data)
        self._limits.check_size(path, len(data))
        after, blobs = await _packed(data)
        await self._change(await self.look(), {path: after}, blobs, {path: before})

    async def delete(self, path: str) -> int:
        known = await self.look()
        gone = inside(known, path)
        await self._change(known, dict.fromkeys(gone), {})
        return sum(not each.endswith("/") for each in gone)

    async def move(self, path: str, to: str) -> int:
        known = await self.look()
        moved = inside(known, path)
        if is_inside(to, path):
            raise UsageError(f"{path!r} cannot be moved into itself, to {to!r}")
        gone = set(moved)
        rest = {other: file for other, file in known.items() if other not in gone}
        names = Names(rest)
        changes: dict[str, StoredFile | None] = dict.fromkeys(moved)
        expected: dict[str, StoredFile | None] = {}
        for before in moved:
            after = to + before[len(path) :]
            checked_path(after.rstrip("/"), what="to")  # with the folder it may be too long
            if after in rest:
                raise UsageError(f"there is {after!r} already: delete it first")
            if not after.endswith("/"):
                names.add(after)
            expected |= {before: known[before], after: known.get(after)}
            changes[after] = known[before]
        await self._change(known, changes, {}, expected)
        return sum(not each.endswith("/") for each in moved)

    async def make_folder(self, path: str) -> None:
        known = await self.look()
        if not is_folder(known, path):
            Names(known).add(path, is_file=False)
            await self._change(known, {path + "/": FOLDER}, {})

    async def _change(
        self,
        known: Mapping[str, StoredFile],
        changes: Mapping[str, StoredFile | None],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None] | None = None,
    ) -> None:
        if any(file is not None for file in changes.values()):
            after = {**known, **changes}
            self._limits.check({path: file.size for path, file in after.items() if file})
        await self.change(changes, blobs, expected or {})


async def _packed(data: bytes) -> tuple[StoredFile, dict[str, bytes]]:
    """The bytes, packed by `pack`; in a thread if that takes long."""
    return pack(data) if len(data) <= MIB else await asyncio.to_thread(pack, data)


def found(files: Mapping[str, StoredFile], path: str) -> StoredFile:
    """The file of this path.

    Raises:
        UsageError: if there is no such file; the error names the files that there are.

    """
    file = files.get(path)
    if file is None:
        raise missing(files, path)
    return file


def missing(known: Mapping[str, object], path: str) -> UsageError:
    """The error for a path without a file."""
    if is_folder(known, path):
        return UsageError(f"{path!r} is a folder: list it, or name a file in it")
    near = [other for other in known if other.casefold() == path.casefold()]
    hint = f"; there is {near[0]!r}" if near else ": list the files that there are"
    return UsageError(f"there is no file {path!r}{hint}")


def is_folder(known: Mapping[str, object], path: str) -> bool:
    """Whether there is a folder of this path."""
    return not path or path + "/" in known or any(is_inside(other, path) for other in known)


def inside(known: Mapping[str, object], path: str) -> list[str]:
    """The file of this path, or all files of this folder.

    Raises:
        UsageError: if there is neither a file nor a folder.

    """
    all_of_it = [other for other in known if other == path or is_inside(other, path)]
    if not all_of_it:
        raise missing(known, path)
    return all_of_it

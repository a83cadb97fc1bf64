"""The files of a conversation as a backend of `pydantic_ai.workspaces`, and the other way round.

The module is imported only where it is used.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_ai.workspaces import FileEntry, SupportsFilesystem, WorkspaceBackend, WorkspaceRef

from understudy._base.relative_paths import checked_path, is_inside
from understudy.errors import UsageError
from understudy.middleware.workspace.access import Access, FileLimits, is_folder, missing

ROOT = "/workspace"
"""The folder of the files in the backend, whose protocol knows only absolute paths."""
MAX_ENTRIES = 10_000
"""The maximum number of entries of another backend that are listed."""


class FilesBackend(SupportsFilesystem, WorkspaceBackend):
    """A `WorkspaceBackend` with the file part, for code that takes a workspace of Pydantic AI.

    Paths are absolute, below `/workspace`; there are no commands, and no symlinks.
    """

    def __init__(self, access: Access, do: Callable[[Any], Any], id: str) -> None:
        self._access = access
        self._do = do
        self._ref = WorkspaceRef(provider="understudy", id=id)

    @property
    def ref(self) -> WorkspaceRef:
        return self._ref

    async def working_dir(self) -> str:
        return ROOT

    async def read_bytes(self, path: str) -> bytes:
        inner = await self._file(path)
        data: bytes = await self._do(lambda: self._access.read(inner))
        return data

    async def write_bytes(self, path: str, data: bytes) -> None:
        inner, entries = _inner(path), await self._entries()
        if is_folder(entries, inner):
            raise IsADirectoryError(path)
        _check_above(entries, inner, path)
        await self._do(lambda: self._access.write({checked_path(inner): bytes(data)}))

    async def stat(self, path: str) -> FileEntry:
        inner, entries = _inner(path), await self._entries()
        if inner not in entries and not is_folder(entries, inner):
            raise FileNotFoundError(path)
        return _entry(path, entries.get(inner))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        inner, entries = _inner(path), await self._entries()
        if inner in entries:
            raise NotADirectoryError(path)
        if not is_folder(entries, inner):
            raise FileNotFoundError(path)
        start = len(inner) + 1 if inner else 0
        names: dict[str, int | None] = {}
        for other, size in entries.items():
            name, slash, _ = other[start:].partition("/")
            if is_inside(other, inner) and name:
                names[name] = None if slash else size
        base = posixpath.join(ROOT, inner)
        return [_entry(posixpath.join(base, name), size) for name, size in sorted(names.items())]

    async def make_dir(self, path: str) -> None:
        inner, entries = _inner(path), await self._entries()
        if inner in entries:
            raise FileExistsError(path)
        _check_above(entries, inner, path)
        if inner:
            await self._do(lambda: self._access.make_folder(checked_path(inner)))

    async def remove(self, path: str) -> None:
        if is_inside(ROOT, path.rstrip("/")) or posixpath.normpath(path) == ROOT:
            raise ValueError("cannot remove the workspace itself, or a folder around it")
        inner, entries = _inner(path), await self._entries()
        if inner not in entries and not is_folder(entries, inner):
            raise FileNotFoundError(path)
        await self._do(lambda: self._access.delete(inner))

    async def exists(self, path: str) -> bool:
        try:
            inner = _inner(path)
        except FileNotFoundError:
            return False
        entries = await self._entries()
        return inner in entries or is_folder(entries, inner)

    async def _entries(self) -> Mapping[str, int]:
        entries: Mapping[str, int] = await self._do(self._access.entries)
        return entries

    async def _file(self, path: str) -> str:
        inner, entries = _inner(path), await self._entries()
        if is_folder(entries, inner):
            raise IsADirectoryError(path)
        if inner not in entries:
            raise FileNotFoundError(path)
        return inner


def _inner(path: str) -> str:
    """The path in the workspace; empty for the whole.

    Raises:
        FileNotFoundError: for a path outside of the workspace, where nothing is.

    """
    path = posixpath.normpath(path)
    if path == ROOT:
        return ""
    if not is_inside(path, ROOT):
        raise FileNotFoundError(path)
    return path.removeprefix(ROOT + "/")


def _check_above(entries: Mapping[str, int], inner: str, path: str) -> None:
    while "/" in inner:
        inner = inner.rpartition("/")[0]
        if inner in entries:
            raise NotADirectoryError(path)


def _entry(path: str, size: int | None) -> FileEntry:
    name = posixpath.basename(posixpath.normpath(path))
    return FileEntry(name=name, path=path, is_dir=size is None, size=size)


class OtherBackend(Access):
    """Files of another backend of `pydantic_ai.workspaces`: no journal has them."""

    def __init__(self, backend: SupportsFilesystem, limits: FileLimits) -> None:
        self._backend = backend
        self._limits = limits
        self._root = ""

    async def entries(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in await self._backend.list_dir(await self._path(folder)):
                inner = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir:
                    folders.append(inner)
                    found[inner + "/"] = 0
                else:
                    found[inner] = entry.size or 0
                if len(found) > MAX_ENTRIES:
                    raise UsageError(f"the workspace has more than {MAX_ENTRIES:,} files")
        return found

    async def read(self, path: str) -> bytes:
        try:
            return await self._backend.read_bytes(await self._path(path))
        except OSError as error:
            raise await self._error(path, error) from error

    async def write(self, files: Mapping[str, bytes]) -> None:
        for path, data in files.items():
            self._limits.check_size(path, len(data))
            try:
                await self._backend.write_bytes(await self._path(path), data)
            except OSError as error:
                raise await self._error(path, error) from error

    async def edit(self, path: str, change: Callable[[bytes], bytes]) -> None:
        await self.write({path: change(await self.read(path))})

    async def delete(self, path: str) -> int:
        entries = await self.entries()
        number = sum(is_inside(e, path) or e == path for e in entries if not e.endswith("/"))
        try:
            await self._backend.remove(await self._path(path))
        except OSError as error:
            raise await self._error(path, error) from error
        return number

    async def move(self, path: str, to: str) -> int:
        entries = await self.entries()
        if to in entries or is_folder(entries, to):
            raise UsageError(f"there is {to!r} already: delete it first")
        if is_inside(to, path):
            raise UsageError(f"{path!r} cannot be moved into itself, to {to!r}")
        moved = [e for e in entries if e == path or (is_inside(e, path) and e[-1] != "/")]
        if not moved:
            raise missing(entries, path)
        targets = {each: checked_path(to + each[len(path) :], what="to") for each in moved}
        for each, target in targets.items():
            await self.write({target: await self.read(each)})
        await self.delete(path)
        return len(moved)

    async def make_folder(self, path: str) -> None:
        await self._backend.make_dir(await self._path(path))

    async def _path(self, inner: str) -> str:
        if not self._root:
            assert isinstance(self._backend, WorkspaceBackend), "checked when the agent is made"
            self._root = await self._backend.working_dir()
        return posixpath.join(self._root, inner) if inner else self._root

    async def _error(self, path: str, error: OSError) -> UsageError:
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            return missing(await self.entries(), path)
        return UsageError(f"{path!r}: {error.strerror or type(error).__name__}")

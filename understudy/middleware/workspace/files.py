"""`Files`: the files of a conversation, for tools and for the application."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from understudy._base.json_values import shown
from understudy._base.relative_paths import checked_folder, checked_path, is_inside
from understudy.errors import UsageError
from understudy.loop_actors.future import Future
from understudy.middleware.base import RefOfAgent
from understudy.middleware.workspace.access import (
    Access,
    FileLimits,
    StoredAccess,
    is_folder,
    missing,
)
from understudy.run.file_edits import FileEdits
from understudy.run.run import Run, inside_run
from understudy.state.agent_state import AgentState
from understudy.state.blobs import chunks_of
from understudy.state.files import FileChange, StoredFile
from understudy.tools import ToolContext

if TYPE_CHECKING:
    from understudy.middleware.workspace.backend import FilesBackend

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A file of a workspace."""

    path: str
    size: int
    """The size in bytes."""


class Files:
    """The files of one conversation.

    Each method returns an awaitable. For a ref it is a `Future`, whose `.get()` waits in a thread;
    in a tool it is a coroutine. Paths are relative, with `/` between their parts. Bad paths,
    missing files, and exceeded limits raise `UsageError`.
    """

    def __init__(self, access: Access, do: Callable[[Any], Any]) -> None:
        self._access = access
        self._do = do

    def list(self, folder: str = "") -> Awaitable[builtins.list[FileInfo]]:
        """The files in a folder and its subfolders, ordered by path."""

        async def work() -> builtins.list[FileInfo]:
            top = checked_folder(folder)
            entries = await self._access.entries()
            if not is_folder(entries, top):
                raise missing(entries, top) if top in entries else _no_folder(top)
            return [
                FileInfo(path=path, size=size)
                for path, size in sorted(entries.items())
                if is_inside(path, top) and not path.endswith("/")
            ]

        return self._do(work)  # type: ignore[no-any-return]

    def read(self, path: str) -> Awaitable[str]:
        """The text of a file. `UsageError` if it is not UTF-8: see `read_bytes`."""

        async def work() -> str:
            checked = checked_path(path)
            return text_of_file(checked, await self._access.read(checked))

        return self._do(work)  # type: ignore[no-any-return]

    def read_bytes(self, path: str) -> Awaitable[bytes]:
        """The bytes of a file."""
        return self._do(lambda: self._access.read(checked_path(path)))  # type: ignore[no-any-return]

    def write(self, path: str, content: str | bytes) -> Awaitable[None]:
        """Write the content of a new or existing file. Text is written in UTF-8."""
        return self.write_all({path: content})

    def write_all(self, files: Mapping[str, str | bytes]) -> Awaitable[None]:
        """Write several files, by path: all of them or none."""

        async def work() -> None:
            await self._access.write(
                {checked_path(path): as_bytes(path, content) for path, content in files.items()}
            )

        return self._do(work)  # type: ignore[no-any-return]

    def delete(self, path: str) -> Awaitable[int]:
        """Delete a file, or a folder with all its files. Returns the number of files."""
        return self._do(lambda: self._access.delete(checked_path(path)))  # type: ignore[no-any-return]

    def move(self, path: str, to: str) -> Awaitable[int]:
        """Move a file, or a folder with all its files. Returns the number of files."""
        return self._do(lambda: self._access.move(checked_path(path), checked_path(to, what="to")))  # type: ignore[no-any-return]

    def exists(self, path: str) -> Awaitable[bool]:
        """Whether there is a file or a folder of this path."""

        async def work() -> bool:
            checked = checked_folder(path)
            entries = await self._access.entries()
            return checked in entries or is_folder(entries, checked)

        return self._do(work)  # type: ignore[no-any-return]

    def backend(self) -> FilesBackend:
        """The same files as a backend for `pydantic_ai.workspaces.Workspace`."""
        from understudy.middleware.workspace.backend import FilesBackend

        return FilesBackend(self._access, self._do, _id_of(self._access))


class AgentFiles(Files):
    """The files of an agent, for the application: also while it runs, and from any host."""

    def __init__(self, ref: RefOfAgent, limits: FileLimits) -> None:
        super().__init__(_AtRef(ref, limits), ref.on_loop)
        self._ref = ref

    if TYPE_CHECKING:

        def list(self, folder: str = "") -> Future[builtins.list[FileInfo]]: ...
        def read(self, path: str) -> Future[str]: ...
        def read_bytes(self, path: str) -> Future[bytes]: ...
        def write(self, path: str, content: str | bytes) -> Future[None]: ...
        def write_all(self, files: Mapping[str, str | bytes]) -> Future[None]: ...
        def delete(self, path: str) -> Future[int]: ...
        def move(self, path: str, to: str) -> Future[int]: ...
        def exists(self, path: str) -> Future[bool]: ...

    def state(self) -> Future[AgentState]:
        """The state of the agent with the bytes of its files, to continue without a store.

        `to_dict()` has the bytes too, up to 8 MiB.
        """

        async def work() -> AgentState:
            state: AgentState = await self._ref.state()
            kept = dict(await self._ref.load_blobs(sorted(state.file_hashes)))
            pieces = {piece for each in kept.values() for piece in chunks_of(each)}
            kept.update(await self._ref.load_blobs(sorted(pieces)))
            state.blobs = kept
            return state

        return self._ref.on_loop(work)


class _AtRef(StoredAccess):
    def __init__(self, ref: RefOfAgent, limits: FileLimits) -> None:
        super().__init__(limits)
        self.ref = ref

    async def look(self) -> Mapping[str, StoredFile]:
        state: AgentState = await self.ref.state()
        return state.files or {}

    async def load(self, hashes: Sequence[str]) -> Mapping[str, bytes]:
        return dict(await self.ref.load_blobs(hashes))

    async def change(
        self,
        files: Mapping[str, StoredFile | None],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None],
    ) -> None:
        changes = [FileChange(path=path, file=file) for path, file in files.items()]
        await self.ref.change_files(changes, blobs, expected)


class InCall(StoredAccess):
    """The files as one attempt at a tool call sees them. The call's result records the changes."""

    def __init__(self, run: Run, ctx: ToolContext[Any], limits: FileLimits) -> None:
        super().__init__(limits)
        self._run = run
        self._ctx = ctx

    @property
    def _edits(self) -> FileEdits | None:
        edits = self._run.file_edits.get(self._ctx.call_key)
        return edits if edits is not None and edits.attempt is self._ctx else None

    async def look(self) -> Mapping[str, StoredFile]:
        files, edits = self._run.ledger.files, self._edits
        return files if edits is None else edits.seen_over(files)

    async def load(self, hashes: Sequence[str]) -> Mapping[str, bytes]:
        edits = self._edits
        own = {} if edits is None else {h: edits.blobs[h] for h in hashes if h in edits.blobs}
        rest = [hash for hash in hashes if hash not in own]
        return {**own, **(await self._run.ledger.load_blobs(rest) if rest else {})}

    async def change(
        self,
        files: Mapping[str, StoredFile | None],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None],
    ) -> None:
        edits = self._edits
        if edits is None:  # this attempt has changed nothing yet
            edits = self._run.file_edits[self._ctx.call_key] = FileEdits(self._ctx)
        edits.add(files, blobs, expected)


def files_in_call(ctx: ToolContext[Any], limits: FileLimits) -> Files:
    """The files as a tool sees them.

    Raises:
        UsageError: outside the call.

    """
    run = inside_run.get()
    if run is None:
        raise UsageError("Workspace.of(ctx) is for an async tool, while its call runs")
    return Files(InCall(run, ctx, limits), lambda work: work())


def as_bytes(path: str, content: object) -> bytes:
    """The content of a file as bytes."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        with suppress(UnicodeEncodeError):
            return content.encode()
        raise UsageError(f"the text of {path!r} is not valid Unicode: it has a lone surrogate")
    raise UsageError(f"the content of {path!r} must be text or bytes, got {shown(content)}")


def text_of_file(path: str, data: bytes) -> str:
    """The text of a file.

    Raises:
        UsageError: if it is not text; the error says what the file is.

    """
    if b"\0" not in data:
        with suppress(UnicodeDecodeError):
            return data.decode()
    raise UsageError(f"{path!r} is no text: it has {len(data):,} bytes that are not UTF-8")


def _no_folder(path: str) -> UsageError:
    return UsageError(f"there is no folder {path!r}: list the files that there are")


def _id_of(access: Access) -> str:
    return access.ref.id if isinstance(access, _AtRef) else "call"

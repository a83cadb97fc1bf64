"""`Workspace`: files that belong to the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, overload

from understudy._base.json_values import shown
from understudy._base.type_variables import DepsT_contra
from understudy.errors import UsageError
from understudy.middleware.base import Middleware, Prepared, RefOfAgent
from understudy.middleware.workspace.access import Access, FileLimits
from understudy.middleware.workspace.files import (
    AgentFiles,
    FileInfo,
    Files,
    files_in_call,
)
from understudy.middleware.workspace.mounts import Mount
from understudy.middleware.workspace.tools import make_tools, tools_of_conversations
from understudy.run.definition import AgentDefinition
from understudy.run.run import Run
from understudy.state.files import FileChange
from understudy.state.records import FilesChanged
from understudy.tools import ToolContext

__all__ = ["AgentFiles", "FileInfo", "FileLimits", "Files", "Workspace"]

_DEFAULT = FileLimits()
LARGEST_FILE: int = _DEFAULT.file
"""The default maximum bytes of a file. A file is one part of a commit, and of a call to another
host."""
_INSTRUCTIONS = (
    "You have files, which belong to this conversation. Paths are relative, such as "
    "'notes/plan.md'. Read a file before you edit it."
)


class Workspace(Middleware[DepsT_contra]):
    """A middleware that gives the conversation files, and the model tools to work on them.

    The tools are `list_files`, `read_file`, `search_files`, `write_file`, `edit_file`,
    `delete_file` and `move_file`. Rules of `HumanInTheLoop` with these names ask a person first.
    The changes of a call are recorded with its result in one record, and the bytes in the same
    commit: a crash neither loses a write nor makes it twice.

    `Workspace.of(ref)` has the files for the application, `Workspace.of(ctx)` for other tools.

    Args:
        mounts: real folders that are shown under these paths, read-only.
        max_file: the maximum bytes of one file.
        max_total: the maximum bytes of all files together.
        max_files: the maximum number of files.
        sub_agents: the files of a sub-agent that has this middleware, such as the
            general-purpose agent: the same files (`"share"`), or its own `"copy"`, which ends
            with it.
        backend: another `pydantic_ai.workspaces` backend with `SupportsFilesystem`, whose files
            replace those of the conversation. No journal has them.

    Raises:
        UsageError: if an option is invalid.

    """

    def __init__(
        self,
        *,
        mounts: Mapping[str, str | Path] | None = None,
        max_file: int = _DEFAULT.file,
        max_total: int = _DEFAULT.total,
        max_files: int = _DEFAULT.number,
        sub_agents: Literal["share", "copy"] = "share",
        backend: Any = None,
    ) -> None:
        for name, value in (
            ("max_file", max_file),
            ("max_total", max_total),
            ("max_files", max_files),
        ):
            if type(value) is not int or value < 1:
                raise UsageError(f"Workspace: `{name}` must be 1 or more, got {shown(value)}")
        if max_file > LARGEST_FILE:
            raise UsageError(f"Workspace: `max_file` is at most {LARGEST_FILE:,}, got {max_file:,}")
        if sub_agents not in ("share", "copy"):
            raise UsageError(
                f"Workspace: `sub_agents` must be 'share' or 'copy', got {shown(sub_agents)}"
            )
        if mounts is not None and not isinstance(mounts, Mapping):
            raise UsageError(f"Workspace: `mounts` must map paths to folders, got {shown(mounts)}")
        self._limits = FileLimits(file=max_file, total=max_total, number=max_files)
        self._mounts = tuple(Mount(path, folder) for path, folder in (mounts or {}).items())
        self._copies = sub_agents == "copy"
        self._backend = _checked_backend(backend) if backend is not None else None

    def prepare(self, definition: AgentDefinition) -> Prepared:
        text = _INSTRUCTIONS
        for mount in self._mounts:
            text += f" {mount.path!r} is a folder that is read-only."
        if self._backend is None and not self._mounts:
            tools = tools_of_conversations(self._limits)
        else:
            access = None if self._backend is None else _of_backend(self._backend, self._limits)
            tools = make_tools(access, self._mounts, self._limits)
        return Prepared(instructions=text.replace("{", "{{").replace("}", "}}"), tools=tools)

    async def on_run_start(self, run: Run[DepsT_contra]) -> None:
        if self._copies and run.parent is not None and run.state.files is None:
            files = run.ledger.files.items()
            copied = tuple(FileChange(path=path, file=file) for path, file in files)
            run.ledger.record(FilesChanged(files=copied, own=True))  # a hook has no `run.record`
            await run.durable()

    @overload
    @staticmethod
    def of(place: RefOfAgent) -> AgentFiles: ...
    @overload
    @staticmethod
    def of(place: ToolContext[Any]) -> Files: ...
    @staticmethod
    def of(place: RefOfAgent | ToolContext[Any]) -> Files:
        """Return the files of an agent, by its ref; or, in an async tool, the files of its
        conversation.

        The changes that a tool makes are recorded with its result, if the result is not an error.

        Raises:
            UsageError: if it is neither a ref nor the context of a call.

        """
        if isinstance(place, ToolContext):
            return files_in_call(place, FileLimits())
        if not callable(getattr(place, "change_files", None)):
            raise UsageError(
                f"Workspace.of takes the ref of an agent, or `ctx`, got {shown(place)}"
            )
        return AgentFiles(place, FileLimits())


def _checked_backend(backend: Any) -> Any:
    from pydantic_ai.workspaces import SupportsFilesystem, WorkspaceBackend

    if not isinstance(backend, SupportsFilesystem) or not isinstance(backend, WorkspaceBackend):
        raise UsageError(
            "Workspace: `backend` must be a WorkspaceBackend with SupportsFilesystem of "
            f"pydantic_ai.workspaces, got {shown(backend)}"
        )
    return backend


def _of_backend(backend: Any, limits: FileLimits) -> Any:
    from understudy.middleware.workspace.backend import OtherBackend

    def access(run: Run, ctx: ToolContext[Any]) -> Access:
        return OtherBackend(backend, limits)

    return access

"""The tools of a workspace, for the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from understudy._base.relative_paths import checked_folder, checked_path, is_inside
from understudy.errors import UsageError
from understudy.middleware.workspace.access import Access, FileLimits, is_folder, missing
from understudy.middleware.workspace.files import InCall, as_bytes, text_of_file
from understudy.middleware.workspace.mounts import Mount, mount_of
from understudy.middleware.workspace.search import MAX_LINE, Search, line_search, path_filter
from understudy.run.run import Run, inside_run
from understudy.tools import Tool, ToolContext, ToolFailed

MAX_LINES = 2000
"""The maximum lines of a file that one call reads."""
MAX_SHOWN = 100_000
"""The maximum characters of a result."""
MAX_LISTED = 1000
MAX_FOUND = 100
MAX_SEARCHED = 20 * 1024 * 1024
"""The maximum bytes of files that one search reads."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The files on which one call of a tool works."""

    run: Run
    access: Access
    mounts: tuple[Mount, ...]
    limits: FileLimits

    async def entries(self) -> Mapping[str, int]:
        found = dict(await self.access.entries())
        for mount in self.mounts:
            found |= await self.run.threads.run(mount.entries)
        return found

    async def read(self, path: str) -> bytes:
        mount = mount_of(self.mounts, path)
        if mount is None:
            return await self.access.read(path)
        data: bytes = await self.run.threads.run(mount.read, path, self.limits.file)
        return data

    def to_change(self, path: str, *, what: str = "path") -> str:
        """The checked path of a file that may be changed.

        Raises:
            UsageError: if the path is in a mount.

        """
        checked = checked_path(path, what=what)
        for mount in self.mounts:
            if mount_of((mount,), checked) or is_inside(mount.path, checked):
                raise UsageError(f"{mount.path!r} is read-only: write to another folder")
        return checked


@lru_cache(maxsize=8)
def tools_of_conversations(limits: FileLimits) -> Sequence[Tool]:
    """The tools over the files of the conversation that calls them, without mounts.

    They are made once for all agents: reading their signatures takes most of the time to make an
    agent.
    """
    return make_tools(None, (), limits)


def make_tools(
    access: Callable[[Run, ToolContext[Any]], Access] | None,
    mounts: tuple[Mount, ...],
    limits: FileLimits,
) -> Sequence[Tool]:
    """The tools over these files; None = the files of the conversation."""

    async def call(ctx: ToolContext[Any], work: Callable[[_Call], Awaitable[str]]) -> str:
        run = inside_run.get()
        assert run is not None, "a tool runs inside a run"
        files = InCall(run, ctx, limits) if access is None else access(run, ctx)
        try:
            return await work(_Call(run, files, mounts, limits))
        except UsageError as error:
            raise ToolFailed(error.message) from error

    async def list_files(ctx: ToolContext[Any], folder: str = "", pattern: str = "") -> str:
        """List files with their sizes in bytes.

        Args:
            ctx: the call.
            folder: only those in this folder, at any depth; all by default.
            pattern: only those that fit, such as `*.md` or `src/**/*.py`.

        """
        return await call(ctx, lambda to: _list(to, folder, pattern))

    async def read_file(
        ctx: ToolContext[Any], path: str, first_line: int = 1, lines: int = MAX_LINES
    ) -> str:
        """Read lines of a text file. Each begins with its number and a tab, not part of the file.

        Args:
            ctx: the call.
            path: relative, such as `notes/plan.md`.
            first_line: from 1; below 0 it counts from the end.
            lines: how many, at most 2000.

        """
        return await call(ctx, lambda to: _read(to, path, first_line, lines))

    async def search_files(
        ctx: ToolContext[Any],
        text: str,
        folder: str = "",
        pattern: str = "",
        regex: bool = False,
        ignore_case: bool = False,
    ) -> str:
        """Search the lines of text files: the lines that have the text in them.

        Args:
            ctx: the call.
            text: what to search for.
            folder: only in this folder; everywhere by default.
            pattern: only in files whose paths fit, such as `*.md`.
            regex: whether `text` is a regular expression, without look-arounds.
            ignore_case: whether upper and lower case are the same.

        """
        return await call(ctx, lambda to: _search(to, text, folder, pattern, regex, ignore_case))

    async def write_file(ctx: ToolContext[Any], path: str, text: str) -> str:
        """Write a whole text file: a new one, or in place of the one that is there.

        Args:
            ctx: the call.
            path: relative, such as `notes/plan.md`; its folders need not be there.
            text: all of it.

        """
        return await call(ctx, lambda to: _write(to, path, text))

    async def edit_file(
        ctx: ToolContext[Any], path: str, old: str, new: str, replace_all: bool = False
    ) -> str:
        """Replace a part of a text file.

        Args:
            ctx: the call.
            path: relative.
            old: exactly as it is in the file, with all spaces, without line numbers; long enough to
                be there once.
            new: what takes its place.
            replace_all: replace every place at which `old` is.

        """
        return await call(ctx, lambda to: _edit(to, path, old, new, replace_all))

    async def delete_file(ctx: ToolContext[Any], path: str) -> str:
        """Delete a file, or a folder with all that is in it.

        Args:
            ctx: the call.
            path: relative.

        """
        return await call(ctx, lambda to: _delete(to, path))

    async def move_file(ctx: ToolContext[Any], path: str, to: str) -> str:
        """Move or rename a file, or a folder with all that is in it.

        Args:
            ctx: the call.
            path: what is moved, relative.
            to: where it is afterwards: the whole new path.

        """
        return await call(ctx, lambda at: _move(at, path, to))

    reads = (list_files, read_file, search_files)
    writes = (write_file, edit_file, delete_file, move_file)
    return (
        *(Tool(function, read_only=True) for function in reads),
        # Without a result the tools have changed nothing, so they may run again.
        *(Tool(function, idempotent=True, sequential=True) for function in writes),
    )


async def _list(to: _Call, folder: str, pattern: str) -> str:
    top, fitting = checked_folder(folder), path_filter(pattern)
    entries = await to.entries()
    if top in entries or not is_folder(entries, top):
        raise UsageError(f"{top!r} is a file: read it") if top in entries else missing(entries, top)
    inside = [path for path in sorted(entries) if is_inside(path, top)]
    paths = await to.run.threads.run(fitting, inside)
    if not paths:
        return "There are no files." if not pattern else f"No path fits {pattern!r}."
    shown = [
        path if path.endswith("/") else f"{path} ({entries[path]:,} bytes)"
        for path in paths[:MAX_LISTED]
    ]
    if len(paths) > MAX_LISTED:
        shown.append(f"... and {len(paths) - MAX_LISTED:,} more: list a folder, or give a pattern")
    return "\n".join(shown)


async def _read(to: _Call, path: str, first_line: int, lines: int) -> str:
    path = checked_path(path)
    if not 1 <= lines <= MAX_LINES:
        raise UsageError(f"`lines` must be 1 to {MAX_LINES}, got {lines}")
    if first_line == 0:
        raise UsageError("`first_line` is 1 for the first line")
    text = text_of_file(path, await to.read(path))
    if not text:
        return f"{path!r} is empty."
    all_lines = text.removesuffix("\n").split("\n")
    first = first_line if first_line > 0 else max(1, len(all_lines) + 1 + first_line)
    if first > len(all_lines):
        raise UsageError(f"{path!r} has {len(all_lines)} lines, so there is no line {first}")
    shown: list[str] = []
    size = 0
    for number, line in enumerate(all_lines[first - 1 : first - 1 + lines], first):
        shown.append(f"{number}\t{_cut(line.removesuffix(chr(13)))}")
        size += len(shown[-1])
        if size > MAX_SHOWN:
            break
    last = first - 1 + len(shown)
    if last < len(all_lines):
        shown.append(f"... lines {last + 1} to {len(all_lines)} follow")
    return "\n".join(shown)


def _cut(line: str) -> str:
    over = len(line) - MAX_LINE
    return line if over <= 0 else f"{line[:MAX_LINE]}... ({over:,} more characters)"


async def _search(
    to: _Call, text: str, folder: str, pattern: str, regex: bool, ignore_case: bool
) -> str:
    top, fitting = checked_folder(folder), path_filter(pattern)
    search = line_search(text, is_regex=regex, ignore_case=ignore_case)
    entries = await to.entries()
    if top and top not in entries and not is_folder(entries, top):
        raise missing(entries, top)
    found: list[str] = []
    left, searched = MAX_SEARCHED, 0
    files = [path for path in sorted(entries) if path[-1:] != "/"]
    inside = [path for path in files if path == top or is_inside(path, top)]
    for path in await to.run.threads.run(fitting, inside):
        left -= entries[path]
        if left < 0:
            found.append(f"... stopped before {path!r}: give a folder or a pattern")
            break
        try:
            lines = text_of_file(path, await to.read(path)).split("\n")
        except UsageError:
            continue  # the file is no text, or is gone
        searched += 1
        matches = await to.run.threads.run(_matches, lines, search, MAX_FOUND + 1 - len(found))
        found += [f"{path}:{number}: {line}" for number, line in matches]
        if len(found) > MAX_FOUND:
            found[MAX_FOUND:] = ["... and more: search for something longer, or in a folder"]
            break
    return "\n".join(found) or f"{text!r} is in none of {searched} text files."


def _matches(lines: Sequence[str], search: Search, most: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if search.finds(line):
            found.append((number, _cut(line.strip())))
            if len(found) >= most:
                break
    return found


async def _write(to: _Call, path: str, text: str) -> str:
    path = to.to_change(path)
    data = as_bytes(path, text)
    was_there = path in await to.access.entries()
    await to.access.write({path: data})
    done = "Replaced" if was_there else "Wrote"
    return f"{done} {path!r}: {len(text.splitlines()):,} lines, {len(data):,} bytes."


async def _edit(to: _Call, path: str, old: str, new: str, replace_all: bool) -> str:
    path, count = to.to_change(path), 0
    if not old:
        raise UsageError("`old` is empty: give the part to replace, or use write_file")
    if old == new:
        raise UsageError("`old` and `new` are the same: nothing would change")
    as_bytes(path, new)

    def change(data: bytes) -> bytes:
        nonlocal count
        text, before, after = text_of_file(path, data), old, new
        if before not in text and "\r\n" in text:  # the model sees no carriage returns
            before, after = (part.replace("\n", "\r\n") for part in (old, new))
        count = text.count(before)
        if not count:
            raise UsageError(f"`old` is not in {path!r}: read the file, and copy it exactly")
        if count > 1 and not replace_all:
            raise UsageError(
                f"`old` is {count} times in {path!r}: give more of what is around it, or "
                "replace_all"
            )
        # The size is checked before the text is made: a few calls could ask for more than the
        # memory has.
        to.limits.check_size(path, len(text) + count * (len(after) - len(before)))
        return text.replace(before, after).encode()

    await to.access.edit(path, change)
    return f"Edited {path!r}" + (f" at {count} places." if count > 1 else ".")


async def _delete(to: _Call, path: str) -> str:
    path = to.to_change(path)
    number = await to.access.delete(path)
    return f"Deleted {path!r}" + (f", {number} files." if number > 1 else ".")


async def _move(at: _Call, path: str, to: str) -> str:
    path, to = at.to_change(path), at.to_change(to, what="to")
    if path == to:
        raise UsageError("`path` and `to` are the same: nothing would move")
    number = await at.access.move(path, to)
    return f"Moved {path!r} to {to!r}" + (f", {number} files." if number > 1 else ".")

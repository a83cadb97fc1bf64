"""Real folders of the host that a workspace shows read-only."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from understudy._base.relative_paths import checked_path, is_inside
from understudy._base.without_links import read_without_links
from understudy.errors import UsageError

MAX_ENTRIES = 10_000
"""The maximum number of files of one mount that are listed."""


class Mount:
    """A real folder under a path of the workspace.

    The target of a symlink is read if it is inside the folder too. A link that leaves the folder is
    refused, also if it changes while it is followed.

    Args:
        path: the path in the workspace.
        folder: the real folder.

    Raises:
        UsageError: if it is no folder.

    """

    def __init__(self, path: str, folder: object) -> None:
        self.path: str = checked_path(path, what="mounts")
        if not isinstance(folder, str | Path) or not Path(folder).is_dir():
            raise UsageError(f"Workspace: `mounts[{path!r}]` must be a folder, got {folder!r}")
        self._root = Path(folder).resolve()

    def entries(self) -> Mapping[str, int]:
        """The sizes of its files, by their paths in the workspace; without links to folders."""
        found: dict[str, int] = {}
        for folder, _, names in os.walk(self._root):
            for name in names:
                file = Path(folder, name)
                inner = file.relative_to(self._root).as_posix()
                try:
                    status = self._inside(inner).stat()
                except (OSError, UsageError):
                    continue  # the file leaves the folder, or is gone
                if stat.S_ISREG(status.st_mode) and inner.isprintable():
                    found[f"{self.path}/{inner}"] = status.st_size
                if len(found) > MAX_ENTRIES:
                    raise UsageError(f"{self.path!r} has more than {MAX_ENTRIES:,} files")
        return found

    def read(self, path: str, limit: int) -> bytes:
        """The bytes of a file.

        Raises:
            UsageError: if it is no file, leaves the folder, or has more than `limit` bytes.

        """
        inner = path.removeprefix(self.path).lstrip("/")
        try:
            file = self._inside(inner)
            # The path has no links any more: a part that has become a link since is refused.
            data = read_without_links(
                self._root, file.relative_to(self._root).parts or (".",), limit
            )
            if data is None:
                raise UsageError(f"{path!r} is no file: list it, or name a file in it")
        except FileNotFoundError:
            raise UsageError(f"there is no file {path!r}: list the files that there are") from None
        except OSError as error:
            raise UsageError(f"{path!r} cannot be read: {error.strerror}") from None
        if len(data) > limit:
            raise UsageError(f"{path!r} has more than {limit:,} bytes, which is the limit")
        return data

    def _inside(self, inner: str) -> Path:
        """The real place of a path of the folder."""
        file = Path(os.path.realpath(self._root / inner, strict=True))
        if not file.is_relative_to(self._root):
            raise UsageError(f"'{self.path}/{inner}' leaves the folder that is mounted: refused")
        return file


def mount_of(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """The mount of a path; None if it is in no mount."""
    for mount in mounts:
        if path == mount.path or is_inside(path, mount.path):
            return mount
    return None

"""Paths in a workspace: relative, of parts that every file system can have."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from understudy._base.json_values import is_storable_text, shown
from understudy.errors import UsageError

MAX_PATH = 1000
"""Bytes of a path in UTF-8."""
MAX_PART = 255
"""Bytes of one part of it."""
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"}
    | {f"{name}{number}" for name in ("com", "lpt") for number in range(1, 10)}
)
_FORBIDDEN = frozenset('<>:"|?*')


def checked_path(path: object, *, what: str = "path") -> str:
    """The path of a file or a folder, in the one form in which it is kept: NFC.

    Raises:
        UsageError: for a path that is none, or leaves the workspace; it says what to write instead.

    """
    if not isinstance(path, str):
        raise UsageError(f"`{what}` must be text, got {shown(path)}")
    if not path.strip():
        raise UsageError(f"`{what}` is empty: write a relative path such as 'notes/plan.md'")
    if not is_storable_text(path) or not path.isprintable():
        raise UsageError(
            f"{shown(path)} has characters that a path cannot have, such as NUL or a newline"
        )
    if "\\" in path:
        raise UsageError(f"{path!r} has a backslash: separate folders by '/'")
    if path.startswith("/"):
        raise UsageError(
            f"{path!r} is absolute, and paths are relative to the workspace: write "
            f"{path.lstrip('/') or 'notes.md'!r}"
        )
    path = unicodedata.normalize("NFC", path.removesuffix("/"))
    if len(path.encode()) > MAX_PATH:
        raise UsageError(f"the path {path[:60]!r}... is too long: at most {MAX_PATH} bytes")
    for part in path.split("/"):
        _check_part(path, part)
    return path


def _check_part(path: str, part: str) -> None:
    if not part:
        raise UsageError(f"{path!r} has an empty part: write '/' once between two names")
    if part in (".", ".."):
        raise UsageError(f"{path!r} has a part {part!r}: write the path from the top")
    if len(part.encode()) > MAX_PART:
        raise UsageError(f"the name {part[:60]!r}... is too long: at most {MAX_PART} bytes")
    if part != part.strip() or part.endswith("."):
        raise UsageError(f"the name {part!r} in {path!r} begins or ends with a space, or a dot")
    if part.partition(".")[0].casefold() in _RESERVED:
        raise UsageError(f"the name {part!r} in {path!r} is reserved on some systems: take another")
    if found := sorted(_FORBIDDEN.intersection(part)):
        raise UsageError(f"the name {part!r} in {path!r} has a {found[0]!r}: take another name")


def checked_folder(path: object) -> str:
    """As `checked_path`, of a folder; empty for the whole workspace."""
    return "" if path in ("", ".", "./", "/") else checked_path(path, what="folder")


def parents(path: str) -> Iterable[str]:
    """The folders that a path is in, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def is_inside(path: str, folder: str) -> bool:
    """Whether the path is in this folder, at any depth; the empty one has all."""
    return not folder or path.startswith(folder + "/")


class Names:
    """The names that are taken, in upper and lower case as one: on some systems they are.

    Args:
        known: the paths that there are; that of a folder that was made by itself ends with a slash.

    """

    def __init__(self, known: Iterable[str]) -> None:
        self._taken: dict[str, tuple[str, bool]] = {}
        for path in known:
            self._take(path.removesuffix("/"), is_file=not path.endswith("/"))

    def _take(self, path: str, *, is_file: bool) -> None:
        self._taken[path.casefold()] = (path, is_file)
        for folder in parents(path):
            if self._taken.setdefault(folder.casefold(), (folder, False))[1]:
                break

    def add(self, path: str, *, is_file: bool = True) -> None:
        """Take the path for a new file or folder.

        Raises:
            UsageError: if there is a folder of its name, a file where it needs a folder, or a name
                that differs in upper and lower case only.

        """
        for each in (*reversed(list(parents(path))), path):
            there, there_is_file = self._taken.get(each.casefold(), (each, None))
            if there != each:
                raise UsageError(
                    f"there is {there!r} already, which differs from {each!r} only in upper and "
                    "lower case: take its path, or another name"
                )
            if there_is_file and (each != path or not is_file):
                raise UsageError(f"{there!r} is a file" + ("" if each == path else _NO_FOLDER))
            if there_is_file is False and each == path and is_file:
                raise UsageError(f"{path!r} is a folder")
        self._take(path, is_file=is_file)


_NO_FOLDER = ": nothing can be in it"

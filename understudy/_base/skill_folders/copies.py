"""The accepted texts of skills, beside the lock file: a person sees which lines have changed.

They are for people alone. A copy counts only if the lock file has its hash, so who changes one
changes nothing that is accepted, and hides nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from pathlib import Path

from understudy._base.skill_folders.folder import MAX_FILE, Skill
from understudy._base.skill_folders.lock import Compared
from understudy._base.without_links import read_without_links
from understudy.errors import UsageError

MOST_LINES = 20_000
"""Lines of a file of which the changes are shown: longer ones would take minutes."""
_NO_END = "\n\\ No newline at end of file"


def copies_path(lock: Path) -> Path:
    """The folder of the copies: `skills.accepted` for `skills.lock`."""
    return lock.with_name(f"{lock.name.removesuffix('.lock')}.accepted")


def keep_copies(lock: Path, accepted: Iterable[Skill], gone: Iterable[str]) -> None:
    """Keep the texts of skills, instead of what was kept of them, and forget others.

    Raises:
        UsageError: if the folder is a link, or cannot be written.

    """
    root = copies_path(lock)
    if root.is_symlink():
        raise UsageError(f"{root} is a link: delete it; the accepted texts are kept there")
    try:
        for name in gone:
            _delete(root / name)
        for skill in accepted:
            new = root / f".{skill.name}.{os.getpid()}.new"
            _delete(new)
            for path, data in skill.files.items():
                if _text(data) is not None:
                    (new / path).parent.mkdir(parents=True, exist_ok=True)
                    (new / path).write_bytes(data)
            _delete(root / skill.name)
            new.rename(root / skill.name)
    except OSError as error:
        raise UsageError(f"{root} cannot be written: {error.strerror}") from None


def _delete(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def changed_lines(lock: Path, each: Compared) -> dict[str, str | None]:
    """The unified diffs of the files of a skill that have changed since it was accepted, by path.

    None of a file that is no text, is too long, or of which there is no copy.
    """
    skill, accepted = each.skill, each.accepted
    if skill is None or accepted is None:
        return {}
    found: dict[str, str | None] = {}
    for path in sorted({*each.added, *each.changed, *each.removed}):
        before = _copy(lock, each.name, path, accepted.files.get(path))
        after = _text(skill.files.get(path, b""))
        found[path] = None if before is None or after is None else _diff(path, before, after)
    return found


def _copy(lock: Path, name: str, path: str, sha256: str | None) -> str | None:
    """The accepted text of a file; None where there is no copy of it."""
    if sha256 is None:
        return ""
    root = copies_path(lock)
    try:
        data = read_without_links(root.parent, (root.name, name, *path.split("/")), MAX_FILE)
    except OSError:  # it is not there, or a link
        return None
    if data is None or hashlib.sha256(data).hexdigest() != sha256:
        return None
    return _text(data)


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _diff(path: str, before: str, after: str) -> str | None:
    old, new = list(_lines(before)), list(_lines(after))
    if max(len(old), len(new)) > MOST_LINES:
        return None
    return "\n".join(unified_diff(old, new, f"accepted/{path}", f"now/{path}", lineterm=""))


def _lines(text: str) -> Iterator[str]:
    *whole, last = text.split("\n")
    yield from whole
    if last:
        yield last + _NO_END

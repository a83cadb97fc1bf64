"""Folders of skills, read once: what was hashed is what is served."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from understudy._base.json_values import is_storable_text, shown
from understudy._base.relative_paths import checked_path
from understudy._base.skill_folders.header import Header, read_header
from understudy._base.without_links import read_without_links
from understudy.errors import UsageError

MIB = 1024 * 1024
MAX_SKILLS = 100
MAX_FILES = 500
"""Files of one skill."""
MAX_FILE = MIB
"""Bytes of one file."""
MAX_TOTAL = 10 * MIB
"""Bytes of all files of one skill."""
MAX_TEXT = 100_000
"""Characters of a `SKILL.md`: the model reads it as a whole."""
MAIN = "SKILL.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A skill as its folder was at one time."""

    header: Header
    text: str
    """What is below the header."""
    files: Mapping[str, bytes]
    """All files, by their paths in the folder."""
    hashes: Mapping[str, str]
    """Of each file the SHA-256, in hexadecimal digits."""
    digest: str
    """Of the whole folder: `sha256:` and hexadecimal digits, over the paths and the hashes."""

    @property
    def name(self) -> str:
        """Its name, which is that of its folder."""
        return self.header.name


def read_skills(folder: object) -> dict[str, Skill]:
    """The skills of a folder: each of its folders is one. Names that begin with a dot are no skill.

    Raises:
        UsageError: for what is no folder, a skill with a wrong header, a link, a file that is none,
            and for what is too large. It names the culprit and the remedy.

    """
    if not isinstance(folder, str | Path) or not Path(folder).is_dir():
        raise UsageError(
            f"Skills takes a folder whose folders each have a {MAIN}, got {shown(str(folder))}"
        )
    root = Path(folder)
    names = []
    for path in sorted(root.iterdir()):
        if path.name.startswith("."):
            continue
        if _is_link(path):
            raise _link(path)
        if path.is_dir():
            names.append(path.name)
    if len(names) > MAX_SKILLS:
        raise UsageError(f"{root} has {len(names)} skills: {MAX_SKILLS} is the most")
    return {name: read_skill(root / name) for name in names}


def read_skill(folder: Path) -> Skill:
    """One skill.

    Raises:
        UsageError: as `read_skills` says.

    """
    files = dict(_files(folder))
    if MAIN not in files:
        raise UsageError(f"{folder} is no skill: it has no {MAIN}. Write one, or move the folder")
    where = folder / MAIN
    try:
        text = files[MAIN].decode()
    except UnicodeDecodeError as error:
        line = files[MAIN].count(b"\n", 0, error.start) + 1
        raise UsageError(f"{where}, line {line}: it is no UTF-8: save it as UTF-8") from None
    if len(text) > MAX_TEXT or not is_storable_text(text) or "\0" in text:
        raise UsageError(
            f"{where} has more than {MAX_TEXT:,} characters, or a NUL character: make it "
            "shorter, and put details into other files of the skill"
        )
    header, below = read_header(text, where=str(where), folder=folder.name)
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    return Skill(header=header, text=below, files=files, hashes=hashes, digest=digest_of(hashes))


def digest_of(hashes: Mapping[str, str]) -> str:
    """The digest of a folder with these files. No path has a NUL or the end of a line in it."""
    listed = "".join(f"{hashes[path]} {path}\n" for path in sorted(hashes))
    return "sha256:" + hashlib.sha256(listed.encode()).hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Each file, by its path. Nothing leads out: what is a link is refused when it is opened."""
    total = count = 0
    for at, folders, names in os.walk(folder, onerror=_cannot_be_read):
        folders.sort()
        for name in folders:
            if _is_link(Path(at, name)):
                raise _link(Path(at, name))
        for name in sorted(names):
            path = Path(at, name)
            data = _read(folder, path)
            total, count = total + len(data), count + 1
            if total > MAX_TOTAL or count > MAX_FILES:
                raise UsageError(
                    f"the skill {folder} has more than {MAX_FILES} files, or {MAX_TOTAL:,} bytes: "
                    "move out what the model does not read"
                )
            inner = path.relative_to(folder).as_posix()
            try:
                yield checked_path(inner), data
            except UsageError as error:
                raise UsageError(
                    f"the skill {folder} has a file that is refused: {error}"
                ) from None


def _read(folder: Path, path: Path) -> bytes:
    if _is_link(path):
        raise _link(path)
    try:  # from the folder above on: this one may have become a link as well
        data = read_without_links(folder.parent, path.relative_to(folder.parent).parts, MAX_FILE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # it has become one since
            raise _link(path) from None
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if data is None:
        raise UsageError(f"{path} is neither a file nor a folder: delete it")
    if len(data) > MAX_FILE:
        raise UsageError(f"{path} has more than {MAX_FILE:,} bytes: move it out of the skill")
    return data


def _cannot_be_read(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}")


def _is_link(path: Path) -> bool:
    if sys.version_info >= (3, 12) and path.is_junction():
        return True
    return path.is_symlink()


def _link(path: Path) -> UsageError:
    return UsageError(
        f"{path} is a link: put the file itself there; no link of a skill is followed"
    )

"""The lock file of a folder of skills: which of them a person has accepted, as they were then."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from understudy._base.authors import checked_author
from understudy._base.json_values import shown
from understudy._base.skill_folders.folder import Skill, digest_of
from understudy.errors import UsageError

Status = Literal["accepted", "new", "changed", "gone"]


class Accepted(BaseModel):
    """What a person has accepted."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    digest: str
    """Of the folder."""
    accepted_by: str
    accepted_at: AwareDatetime
    files: dict[str, str]
    """Of each file the SHA-256: they say what has changed since."""


class _Lock(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    skills: dict[str, Accepted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A skill beside what was accepted of it."""

    name: str
    status: Status
    skill: Skill | None
    """As it is now; None if it is gone."""
    accepted: Accepted | None
    added: tuple[str, ...] = ()
    """Files that were not there when it was accepted."""
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def why_not(self) -> str:
        """Why it is not loaded, as a clause."""
        match self.status:
            case "new":
                return "nobody has accepted it"
            case "changed":
                files = [*self.added, *self.changed, *self.removed]
                more = f" and {len(files) - 3} more" if len(files) > 3 else ""
                named = ", ".join(files[:3])
                return f"it is another one than was accepted ({named}{more})"
        return "its folder is gone"


def lock_path(folder: str | Path, lock: str | Path | None) -> Path:
    """Where the lock file of a folder is: beside it, with its name and `.lock`, if nothing else."""
    if lock is not None:
        return Path(lock)
    absolute = Path(folder).absolute()  # of "skills/" and of "." as well
    return absolute.with_name(f"{absolute.name}.lock")


def read_lock(path: Path) -> dict[str, Accepted]:
    """What was accepted; nothing where there is no file.

    Raises:
        UsageError: for a file that is no lock file.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the lock file {path} cannot be read: {error}") from None
    try:
        found = _Lock.model_validate_json(text).skills
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the whole"
        raise UsageError(
            f"{path} is no lock file of skills ({place}: {fault['msg']}): restore it, or delete it "
            "and accept the skills again"
        ) from None
    for name, accepted in found.items():
        checked_author(accepted.accepted_by, what=f"`accepted_by` of {shown(name)} in {path}")
        if digest_of(accepted.files) != accepted.digest:
            raise UsageError(
                f"{path}: the digest of {shown(name)} does not match its files: restore the "
                "file, or accept the skill again"
            )
    return found


def write_lock(path: Path, skills: Mapping[str, Accepted]) -> None:
    """Write it whole, or not at all."""
    document: dict[str, Any] = {
        "version": 1,
        "skills": {name: skills[name].model_dump(mode="json") for name in sorted(skills)},
    }
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_text(
            json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n",
            encoding="utf-8",
        )
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise UsageError(f"the lock file {path} cannot be written: {error.strerror}") from None


def compare(skills: Mapping[str, Skill], lock: Mapping[str, Accepted]) -> list[Compared]:
    """Each skill of a folder or of its lock file, by name."""
    return [_compared(name, skills.get(name), lock.get(name)) for name in sorted({*skills, *lock})]


def _compared(name: str, skill: Skill | None, accepted: Accepted | None) -> Compared:
    before = {} if accepted is None else accepted.files
    now = {} if skill is None else skill.hashes
    status: Status
    if skill is None:
        status = "gone"
    elif accepted is None:
        status = "new"
    else:
        status = "accepted" if skill.digest == accepted.digest else "changed"
    return Compared(
        name=name,
        status=status,
        skill=skill,
        accepted=accepted,
        added=tuple(sorted(now.keys() - before.keys())),
        changed=tuple(sorted(p for p in now.keys() & before.keys() if now[p] != before[p])),
        removed=tuple(sorted(before.keys() - now.keys())),
    )

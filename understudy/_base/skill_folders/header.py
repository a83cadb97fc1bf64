"""The header of a `SKILL.md`: YAML between two lines `---`, by the open format of Agent Skills."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy._base.json_values import shown
from understudy.errors import UsageError

MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_HEADER = 16_384
"""Characters of a header."""
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_EDGE = "---"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a skill says of itself. None of it is a right."""

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    allowed_tools: str | None = None
    """What it would like to use: it is shown to people, and allows nothing."""


class _Faulty(Exception):
    """What is wrong, and in which line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def read_header(text: str, *, where: str, folder: str) -> tuple[Header, str]:
    """The header of a skill, and the text below it.

    Args:
        text: of the `SKILL.md`.
        where: the path of the file, for errors.
        folder: the name of the folder that it is in.

    Raises:
        UsageError: for a header that is wrong; it names the file, the line and the remedy. Or
            where PyYAML is not installed.

    """
    lines = text.split("\n")
    try:
        if lines[0].rstrip() != _EDGE:
            raise _Faulty(1, "it must begin with a line '---', its header, and a line '---'")
        edges = (at for at, line in enumerate(lines) if at and line.rstrip() == _EDGE)
        end = next(edges, None)
        if end is None:
            raise _Faulty(1, "its header has no end: put a line '---' below it")
        return _header("\n".join(lines[1:end]), folder), "\n".join(lines[end + 1 :]).strip("\r\n")
    except _Faulty as fault:
        raise UsageError(f"{where}, line {fault.line}: {fault}") from None


def _header(text: str, folder: str) -> Header:
    if len(text) > MAX_HEADER:
        raise _Faulty(1, f"its header has more than {MAX_HEADER:,} characters: make it shorter")
    fields = _fields(text)
    for name in ("name", "description"):
        if name not in fields:
            raise _Faulty(1, f"its header has no `{name}`: write a line '{name}: ...'")
    name = _text(fields, "name", MAX_NAME)
    if not NAME.fullmatch(name):
        raise _Faulty(
            fields["name"][0],
            f"the name {shown(name)} must be of lower-case letters, digits, and single hyphens "
            "between them, such as 'pdf-forms'",
        )
    if name != folder:
        raise _Faulty(
            fields["name"][0],
            f"the name {name!r} must be that of its folder, {folder!r}: rename one of them",
        )
    description = _text(fields, "description", MAX_DESCRIPTION)
    return Header(
        name=name,
        description=" ".join(description.split()),
        license=_optional(fields, "license", MAX_DESCRIPTION),
        compatibility=_optional(fields, "compatibility", MAX_COMPATIBILITY),
        metadata=_metadata(fields),
        allowed_tools=_optional(fields, "allowed-tools", MAX_HEADER),
    )


def _fields(text: str) -> dict[str, tuple[int, Any]]:
    """The fields, each with its line and its node. Nothing is constructed: no alias can grow."""
    try:
        import yaml
    except ImportError:
        raise UsageError(
            "Skills needs PyYAML to read headers: pip install 'understudy[skills]'"
        ) from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be read"
        line = 1 if mark is None else mark.line + 2
        raise _Faulty(
            line, f"its header is no YAML ({problem}): put texts with a ':' into quotes"
        ) from None
    return _mapping(root, 1, "its header")


def _mapping(node: Any, line: int, what: str) -> dict[str, tuple[int, Any]]:
    if getattr(node, "id", None) != "mapping":
        raise _Faulty(line, f"{what} must be of lines 'key: value'")
    found: dict[str, tuple[int, Any]] = {}
    for key, value in node.value:
        at = key.start_mark.line + 2
        if key.id != "scalar":
            raise _Faulty(at, f"a key of {what} must be a word")
        if key.value in found:
            raise _Faulty(at, f"`{key.value}` is there twice: delete one of them")
        if what == "its header" and key.value not in _FIELDS:
            raise _Faulty(
                at,
                f"the format has no field {shown(key.value)}: delete it, or put it below "
                f"`metadata`. The fields are {', '.join(_FIELDS)}",
            )
        found[key.value] = (at, value)
    return found


def _text(fields: Mapping[str, tuple[int, Any]], name: str, most: int) -> str:
    line, node = fields[name]
    if node.id != "scalar" or node.tag == "tag:yaml.org,2002:null" or not node.value.strip():
        raise _Faulty(line, f"`{name}` must be a text: write '{name}: ...'")
    text: str = node.value.strip()
    if len(text) > most:
        raise _Faulty(line, f"`{name}` has {len(text):,} characters: it may have {most:,}")
    if not " ".join(text.split()).isprintable():
        raise _Faulty(line, f"`{name}` has characters that cannot be printed: delete them")
    return text


def _optional(fields: Mapping[str, tuple[int, Any]], name: str, most: int) -> str | None:
    return _text(fields, name, most) if name in fields else None


def _metadata(fields: Mapping[str, tuple[int, Any]]) -> Mapping[str, str]:
    if "metadata" not in fields:
        return {}
    inner = _mapping(fields["metadata"][1], fields["metadata"][0], "`metadata`")
    return {name: _text(inner, name, MAX_DESCRIPTION) for name in inner}

"""The two large records of a step, a reply and a result, as slim JSON data, where they are plain.

Pydantic's adapters take 100 µs of a step for them, and write the 11 kinds of tokens that nobody
used. What is written here is read by the same adapters, and gives the same record; whatever is not
of a plain shape is theirs to write, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from datetime import datetime
from math import isfinite
from operator import attrgetter
from typing import Any

from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.usage import RequestUsage

from understudy.state.records import Reply, Result

__all__ = ["plain_json"]

_SCALARS = frozenset({str, int, bool, datetime})
_TAGS = ("kind", "part_kind")
"""Fields by which an adapter tells what it reads: written, though they are at their default."""
_MAX_DEPTH = 50
"""Data nested deeper is left to the adapters, which know how deep is too deep."""
_ALWAYS = object()


def plain_json(record: object) -> dict[str, Any] | None:
    """The record less its kind and what is at its default; None where the adapter must write it."""
    shape = _RECORDS.get(type(record))
    if shape is None:
        return None
    try:
        return shape.tell(record)
    except _NotPlainError:
        return None


class _NotPlainError(Exception):
    pass


class _Shape:
    """How the values of one dataclass are told, by its fields.

    Args:
        parts: how the fields are told whose values are dataclasses, too.
        less: a field that is told elsewhere.

    """

    def __init__(
        self, of: type[Any], *, less: str = "", **parts: Callable[[Any], dict[str, Any] | list[Any]]
    ) -> None:
        told = [field for field in fields(of) if field.name != less]
        self._of = of
        self._names = tuple(field.name for field in told)
        self._defaults = tuple(_default(field) for field in told)
        self._values = attrgetter(*self._names)
        self._parts = parts

    def tell(self, value: Any) -> dict[str, Any]:
        if type(value) is not self._of:
            raise _NotPlainError
        # Most fields are at their default: those that are not are found in one go.
        set_ = [
            (name, found, default)
            for name, found, default in zip(  # noqa: B905  # as long as each other
                self._names, self._values(value), self._defaults
            )
            if found is not default
        ]
        told: dict[str, Any] = {}
        for name, found, default in set_:
            if name in self._parts:
                told[name] = self._parts[name](found)
            elif type(found) not in _SCALARS and not _is_plain(found, 0):
                raise _NotPlainError
            elif found != default:
                told[name] = found
        return told


def _default(field: Field[Any]) -> Any:
    if field.name in _TAGS:
        return _ALWAYS
    if field.default_factory is MISSING:
        return _ALWAYS if field.default is MISSING else field.default
    made = field.default_factory()
    return made if made == {} else _ALWAYS  # others make a time or an id


def _is_plain(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in _SCALARS or value is None:
        return True
    if kind is float:
        return isfinite(value)
    if depth == _MAX_DEPTH:
        return False
    if kind is dict:
        return all(type(key) is str and _is_plain(item, depth + 1) for key, item in value.items())
    return kind is list and all(_is_plain(item, depth + 1) for item in value)


_PARTS = {part: _Shape(part) for part in (TextPart, ThinkingPart, ToolCallPart)}


def _told_parts(parts: Any) -> list[dict[str, Any]]:
    told = []
    for part in parts:
        shape = _PARTS.get(type(part))
        if shape is None:
            raise _NotPlainError
        told.append(shape.tell(part))
    return told


_RESPONSE = _Shape(ModelResponse, parts=_told_parts, usage=_Shape(RequestUsage).tell)
_RECORDS = {
    Reply: _Shape(Reply, less="kind", response=_RESPONSE.tell),
    Result: _Shape(Result, less="kind", part=_Shape(ToolReturnPart).tell),
}

"""Records as bytes: what a store keeps of each.

A row names the version of the format that it was written in. Older rows are upgraded when they are
read; a newer one is refused, for this version could misread it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import datetime
from functools import cache
from math import isfinite
from operator import attrgetter
from typing import Any, cast

import pydantic
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.usage import RequestUsage
from pydantic_core import PydanticSerializationError, SchemaSerializer, from_json, to_json

from understudy.errors import RecordRefused, SchemaVersionError, StoreDamaged
from understudy.state.records import Record, Reply, Result, record_from_dict

RECORD_VERSION = 1
"""Of the format that this version writes."""
MAX_RECORD_BYTES = 16 * 1024 * 1024
"""A record larger than this is refused, before it is queued (J16)."""

Upgrade = Callable[[str, dict[str, Any]], dict[str, Any]]
UPGRADES: Mapping[int, Upgrade] = {}
"""How a record of version n becomes one of n + 1: by its kind and its data."""


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A record as a store keeps it."""

    kind: str
    version: int
    payload: bytes
    """JSON, in UTF-8."""


@cache
def _serializer(kind: type[Any]) -> SchemaSerializer:
    serializer = pydantic.TypeAdapter(kind).serializer
    assert isinstance(serializer, SchemaSerializer), "the adapter of a complete type has its own"
    return serializer


def encode(record: Record, *, max_bytes: int = MAX_RECORD_BYTES) -> EncodedRecord:
    """The record as bytes.

    Raises:
        RecordRefused: if it cannot be written as JSON, or is too large (J16).

    """
    try:
        plain = plain_json(record)
        if plain is not None:
            payload = to_json(plain)
        else:
            kind = cast("Any", type(record))
            payload = _serializer(kind).to_json(record, exclude_defaults=True)
    except (PydanticSerializationError, ValueError) as error:
        why = f"it cannot be written as JSON: {error}"
        raise RecordRefused(kind=record.kind, why=why) from None
    if len(payload) > max_bytes:
        raise RecordRefused(
            kind=record.kind, why=f"it has {len(payload):,} bytes; at most {max_bytes:,} are kept"
        )
    return EncodedRecord(record.kind, RECORD_VERSION, payload)


def decode(stored: EncodedRecord) -> Record:
    """The record that `encode` wrote, in this version or an earlier one.

    Raises:
        SchemaVersionError: if a newer version of this library wrote it.
        StoreDamaged: if the bytes are no such record.

    """
    if stored.version > RECORD_VERSION:
        raise SchemaVersionError(version=stored.version, known=RECORD_VERSION, what="record")
    try:
        data = cast("dict[str, Any]", from_json(stored.payload))
        for version in range(stored.version, RECORD_VERSION):
            data = UPGRADES[version](stored.kind, data)
        return record_from_dict({"kind": stored.kind, **data})
    except ValueError as error:  # Pydantic's validation errors are ValueErrors
        raise StoreDamaged(
            what=f"a record of kind {stored.kind!r}", cause=f"{type(error).__name__}: {error}"
        ) from error


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

"""Records as bytes: what a store keeps of each.

A row names the version of the format that it is written in. Older rows are upgraded when they are
read. A newer one is refused, because this version could misread it.
"""

from __future__ import annotations

import sys
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
from pydantic_core import SchemaSerializer, core_schema, from_json

from understudy._base.json_values import (
    NotJsonError,
    is_storable_int,
    is_storable_text,
    read_json,
)
from understudy.errors import RecordRefused, SchemaVersionError, StoreDamaged
from understudy.state import records as r
from understudy.state.records import Record, Reply, Result, record_from_dict

RECORD_VERSION = 1
"""Of the format that this version writes."""
MAX_RECORD_BYTES = 16 * 1024 * 1024
"""A larger record is refused before it is queued."""
MAX_RECORD_DEPTH = 150
"""Of records but snapshots. A snapshot has some levels more around the same data, and is read up to
200 levels."""

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


def encode(record: Record, *, max_bytes: int = MAX_RECORD_BYTES) -> EncodedRecord:
    """The record as bytes, without its kind and without fields at their default.

    What is returned can be decoded.

    Raises:
        RecordRefused: if it cannot be written as JSON or be read again, or is larger than
            `max_bytes`.

    """
    kind = cast("Any", type(record))
    plain = _is_surely_readable(record)
    serializer = _SLIM[kind] if plain and kind in _SLIM else _adapter(kind)
    try:
        payload = serializer.to_json(record, exclude_defaults=True)
    except Exception as error:  # the methods of an object in it may raise anything
        why = f"it cannot be written as JSON: {error}"
        raise RecordRefused(kind=record.kind, why=why) from None
    if len(payload) > max_bytes:
        raise RecordRefused(
            kind=record.kind, why=f"it has {len(payload):,} bytes; at most {max_bytes:,} are kept"
        )
    if not plain:
        _read_back(record.kind, payload)
    return EncodedRecord(record.kind, RECORD_VERSION, payload)


def check_storable(record: Record) -> None:
    """Raise `RecordRefused` if no store could keep the record, of whatever size, or read it."""
    if not _is_surely_readable(record):
        encode(record, max_bytes=sys.maxsize)


def _read_back(kind: str, payload: bytes) -> None:
    """Raise `RecordRefused` if the bytes cannot be decoded."""
    try:
        data = read_json(payload, max_depth=200 if kind == "snapshot" else MAX_RECORD_DEPTH)
        record_from_dict({"kind": kind, **data})
    except NotJsonError as error:
        why = f"it could not be read again: {error}"
        raise RecordRefused(kind=kind, why=why) from None
    except Exception as error:
        why = f"it could not be read again: {type(error).__name__}: {error}"
        raise RecordRefused(kind=kind, why=why) from None


def decode(stored: EncodedRecord) -> Record:
    """The record that `encode` wrote, in this version or an earlier one.

    Raises:
        SchemaVersionError: if a newer version of this library wrote it.
        StoreDamaged: if the bytes are not such a record.

    """
    try:
        if stored.version > RECORD_VERSION:
            raise SchemaVersionError(version=stored.version, known=RECORD_VERSION, what="record")
        data = cast("dict[str, Any]", from_json(stored.payload))
        for version in range(stored.version, RECORD_VERSION):
            data = UPGRADES[version](stored.kind, data)
        return record_from_dict({"kind": stored.kind, **data})
    # Pydantic's validation errors are ValueErrors; the others are of JSON that is no object, of a
    # version before the first one, and of a column that has become another type.
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise StoreDamaged(
            what=f"a record of kind {stored.kind!r}", cause=f"{type(error).__name__}: {error}"
        ) from error


@cache
def _adapter(kind: type[Any]) -> SchemaSerializer:
    serializer = pydantic.TypeAdapter(kind).serializer
    assert isinstance(serializer, SchemaSerializer), "the adapter of a complete type has its own"
    return serializer


# The two large records of a step, a reply and a result, have schemas of their own. The adapters of
# the message types call Python functions, and write the 11 kinds of tokens that were not used and
# other defaults: for a reply and a result they take 2.8 times as long (34 against 12 µs) and write
# 1.5 times the bytes. The adapters read what a slim schema writes, and get the same record:
# test_what_is_read_back_is_what_the_adapters_of_all_records_bring. A slim schema writes each value
# by its type alone, so it gets only those that `_is_plain` knows; the adapters write all others
# (files, exact decimals, the objects of a tool).

_TAGS = ("kind", "part_kind")
"""The adapters choose a type by these, so they are written although they are at their default."""


def _slim(
    cls: type[Any], leave_out: str = "", **nested: core_schema.CoreSchema
) -> core_schema.DataclassSchema:
    """A schema that writes the fields of a dataclass as they are, less those at their default."""
    kept = [
        core_schema.dataclass_field(
            field.name, _with_default(field, nested.get(field.name, core_schema.any_schema()))
        )
        for field in fields(cls)
        if field.name != leave_out
    ]
    arguments = core_schema.dataclass_args_schema(cls.__name__, kept)
    return core_schema.dataclass_schema(cls, arguments, [field["name"] for field in kept])


def _with_default(field: Field[Any], schema: core_schema.CoreSchema) -> core_schema.CoreSchema:
    default = field.default
    if field.default_factory is not MISSING and (made := field.default_factory()) == {}:
        default = made  # other factories make a time or an id
    if field.name in _TAGS or default is MISSING:
        return schema
    return core_schema.with_default_schema(schema, default=default)


_PARTS = (TextPart, ThinkingPart, ToolCallPart)
_RESPONSE = _slim(
    ModelResponse,
    parts=core_schema.list_schema(core_schema.union_schema([_slim(part) for part in _PARTS])),
    usage=_slim(RequestUsage),
)
_SLIM = {
    Reply: SchemaSerializer(_slim(Reply, leave_out="kind", response=_RESPONSE)),
    Result: SchemaSerializer(_slim(Result, leave_out="kind", part=_slim(ToolReturnPart))),
}
_NESTED = ("response", "parts", "usage", "part")
"""The fields whose values are dataclasses too."""
_OWN_VALUES = {
    cls: attrgetter(*(field.name for field in fields(cls) if field.name not in _NESTED))
    for cls in (Reply, ModelResponse, RequestUsage, *_PARTS, Result, ToolReturnPart)
}
_OWN_DATA = frozenset(
    {
        r.Attempt,
        r.HooksRan,
        r.PauseChecked,
        r.Started,
        r.Suspended,
        r.Propagated,
        r.Withdrawn,
    }
)
"""Kinds of many records that hold nothing from outside but ids that were recorded before."""
_MAX_DEPTH = 50
"""Data nested deeper is left to the adapters, which know how deep is too deep."""
_MAX_CHILDREN = 20
"""Records of agents nested deeper are read back."""


def _is_surely_readable(record: Record) -> bool:
    """Whether it can be read again if it can be written; if not, only reading it tells.

    Reading takes as long as writing, so the records of each step are known without it.
    """
    for _ in range(_MAX_CHILDREN):
        kind = type(record)
        if kind is Reply or kind is Result:
            return _is_plain(cast("Reply | Result", record))
        if kind in _OWN_DATA:
            return True
        if kind is r.TurnClosed:
            closed = cast("r.TurnClosed", record)
            return closed.end is None and closed.message is None
        if kind is r.InterruptsChecked:
            checked = cast("r.InterruptsChecked", record)
            return not checked.requests and not checked.decided
        if kind is not r.ChildRecord:
            return False
        record = cast("r.ChildRecord", record).record
    return False


def _is_plain(record: Reply | Result) -> bool:
    """Whether it consists of JSON values, times and the dataclasses of its slim schema alone."""
    values: list[Any]
    if isinstance(record, Result):
        values = [record, record.part]
    elif type(record.response.parts) is list:
        values = [record, record.response, record.response.usage, *record.response.parts]
    else:
        return False
    for value in values:
        own_values = _OWN_VALUES.get(type(value))
        if own_values is None:
            return False
        for item in own_values(value):
            if item is not None and type(item) is not datetime and not _is_json(item, 0):
                return False
    return True


def _is_json(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind is str:
        return is_storable_text(value)
    if kind is int:
        return is_storable_int(value)
    if value is None or kind is bool:
        return True
    if kind is float:
        return isfinite(value)
    if depth == _MAX_DEPTH:
        return False
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not is_storable_text(key) or not _is_json(item, depth + 1):
                return False
        return True
    if kind is not list:
        return False
    for item in value:  # noqa: SIM110  # a generator takes twice as long
        if not _is_json(item, depth + 1):
            return False
    return True

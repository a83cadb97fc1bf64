"""Records as bytes: what a store keeps of each.

A row names the version of the format that it is written in. Older rows are upgraded when they are
read. A newer one is refused, because this version could misread it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, NamedTuple, cast

import pydantic
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage
from pydantic_core import SchemaSerializer, core_schema, from_json

from understudy._base.json_values import (
    NotJsonError,
    read_json,
)
from understudy.errors import RecordRefused, SchemaVersionError, StoreDamaged
from understudy.journal.readable import REPLY_PARTS, is_surely_readable
from understudy.state.records import Record, Reply, Result, Snapshot, record_from_dict

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


class EncodedRecord(NamedTuple):
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
    return encode_new(record, max_bytes)[0]


def encode_new(record: Record, max_bytes: int) -> tuple[EncodedRecord, bool]:
    """As `encode`; and whether the messages in the record may be written by their types alone.

    That holds for a message of the state where it does for each record that has led to it.
    """
    kind: Any = type(record)
    plain = is_surely_readable(record)
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
    # The messages of a snapshot are data in it, which may be of anything.
    return EncodedRecord(record.kind, RECORD_VERSION, payload), plain and kind is not Snapshot


def encode_again(record: Record) -> EncodedRecord:
    """As `encode`, of what was a part of an accepted record: that it can be read is known."""
    payload = _adapter(cast("Any", type(record))).to_json(record, exclude_defaults=True)
    return EncodedRecord(record.kind, RECORD_VERSION, payload)


def check_storable(records: Iterable[Record]) -> None:
    """Raise `RecordRefused` if no store could keep them, of whatever size, or read them."""
    if not all(map(is_surely_readable, records)):
        for record in records:
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


def encode_messages(messages: Iterable[ModelMessage], *, plain: bool = False) -> list[bytes]:
    """Each message as JSON, which Pydantic AI's adapter of messages reads.

    Args:
        messages: what to write.
        plain: they may be written by their types alone, as `encode_new` has told.

    """
    return [
        _SLIM_MESSAGES[type(message)].to_json(message, exclude_defaults=True)
        if plain or is_surely_readable(message)
        else ModelMessagesTypeAdapter.dump_json([message])[1:-1]
        for message in messages
    ]


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
# by its type alone, so it gets only those that `is_surely_readable` knows; the adapters write all
# others (files, exact decimals, the objects of a tool).

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


_RESPONSE = _slim(
    ModelResponse,
    parts=core_schema.list_schema(core_schema.union_schema([_slim(part) for part in REPLY_PARTS])),
    usage=_slim(RequestUsage),
)
_REQUEST = _slim(
    ModelRequest,
    parts=core_schema.list_schema(
        core_schema.union_schema([_slim(ToolReturnPart), _slim(UserPromptPart)])
    ),
)
_SLIM_MESSAGES: Mapping[type[Any], SchemaSerializer] = {
    ModelRequest: SchemaSerializer(_REQUEST),
    ModelResponse: SchemaSerializer(_RESPONSE),
}
_SLIM = {
    Reply: SchemaSerializer(_slim(Reply, leave_out="kind", response=_RESPONSE)),
    Result: SchemaSerializer(_slim(Result, leave_out="kind", part=_slim(ToolReturnPart))),
}

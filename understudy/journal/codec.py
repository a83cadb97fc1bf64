"""Records as bytes: what a store keeps of each.

A row names the version of the format that it is written in. Rows of earlier formats are upgraded
when they are read. One of a later format is refused, because this version could misread it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple, cast

import pydantic
from pydantic_ai.messages import ModelMessage
from pydantic_core import SchemaSerializer, from_json, to_json

from understudy._base.json_values import (
    NotJsonError,
    read_json,
)
from understudy._base.pieces import THREAD_ITEMS, give_way
from understudy.errors import RecordRefused, SchemaVersionError, StoreDamaged
from understudy.journal.readable import readable_data
from understudy.models.messages import messages_from_json, messages_to_dicts
from understudy.state.record_format import FORMAT_VERSION
from understudy.state.records import ChildRecord, Record, record_from_dict

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""The most bytes of a record. A larger record is refused before it is queued."""
MAX_RECORD_DEPTH = 150
"""Levels of a record at most. A snapshot has some levels more around the same data: it is read up
to 200 levels."""

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UPGRADES: dict[int, Upgrade] = {}
"""The upgrade of a record from format n to n + 1, by n. It changes the data, with the kind."""


class EncodedRecord(NamedTuple):
    """A record as a store keeps it."""

    kind: str
    version: int
    payload: bytes
    """The data of the record as JSON, in UTF-8."""


def encode(record: Record, *, max_bytes: int = MAX_RECORD_BYTES) -> EncodedRecord:
    """The record as bytes, without its kind and without fields at their default.

    What is returned can be decoded.

    Raises:
        RecordRefused: if it cannot be written as JSON or be read again, or is larger than
            `max_bytes`.

    """
    kind: Any = type(record)
    data = readable_data(record)
    try:
        if data is not None:
            payload = to_json(data)
        else:
            payload = _adapter(kind).to_json(record, exclude_defaults=True)
    except Exception as error:  # the methods of an object in it may raise anything
        why = f"it cannot be written as JSON: {error}"
        raise RecordRefused(kind=record.kind, why=why) from None
    if len(payload) > max_bytes:
        raise RecordRefused(
            kind=record.kind, why=f"it has {len(payload):,} bytes; at most {max_bytes:,} are kept"
        )
    if data is None:
        _read_back(record.kind, payload)
    return EncodedRecord(record.kind, FORMAT_VERSION, payload)


def encode_again(record: Record) -> EncodedRecord:
    """As `encode`, of what was a part of an accepted record: that it can be read is known."""
    return EncodedRecord(record.kind, FORMAT_VERSION, json_of(record))


def json_of(data: object) -> bytes:
    """A dataclass as JSON, without the kind of a record and without fields at their default."""
    plain = readable_data(data)
    if plain is not None:
        return to_json(plain)
    return _adapter(cast("Any", type(data))).to_json(data, exclude_defaults=True)


def check_storable(records: Iterable[Record]) -> None:
    """Raise `RecordRefused` if no store could keep them, of whatever size, or read them."""
    for record in records:
        inner, depth = record, 0
        while type(inner) is ChildRecord:  # its key and name are in the start of the agent's run
            inner, depth = inner.record, depth + 1
        if readable_data(inner, depth) is None:
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
    """The record that `encode` wrote, in this format or an earlier one.

    Raises:
        SchemaVersionError: if it has a later format.
        StoreDamaged: if the bytes are not such a record.

    """
    try:
        if stored.version > FORMAT_VERSION:
            raise SchemaVersionError(version=stored.version, known=FORMAT_VERSION, what="record")
        data = cast("dict[str, Any]", from_json(stored.payload))
        return upgraded({"kind": stored.kind, **data}, stored.version)
    # Pydantic's validation errors are ValueErrors; the others are of JSON that is no object, of a
    # format of which nothing is known, and of a column that has become another type.
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise StoreDamaged(
            what=f"a record of kind {stored.kind!r}", cause=f"{type(error).__name__}: {error}"
        ) from error


def upgraded(data: dict[str, Any], version: int) -> Record:
    """The record of a `record_to_dict`, made in this format or an earlier one.

    Raises:
        ValueError, TypeError, LookupError: if it is no such record.

    """
    for earlier in range(version, FORMAT_VERSION):
        data = UPGRADES[earlier](data)
    return record_from_dict(data)


def prepare_to_decode() -> None:
    """Make what decodes records and messages: Pydantic needs a tenth of a second for it, once."""
    record_from_dict({"kind": "hooks_ran"})
    messages_from_json(b"[]")


def encode_messages(messages: Iterable[ModelMessage]) -> list[bytes]:
    """Each message as JSON, which `messages_from_json` and Pydantic AI's adapter read.

    In the committer's thread: the first checkpoint of a long conversation has all its messages.
    """
    encoded: list[bytes] = []
    for number, message in enumerate(messages, 1):
        encoded.append(to_json(readable_data(message) or messages_to_dicts([message])[0]))
        if not number % THREAD_ITEMS:
            give_way()
    return encoded


@cache
def _adapter(kind: type[Any]) -> SchemaSerializer:
    serializer = pydantic.TypeAdapter(kind).serializer
    assert isinstance(serializer, SchemaSerializer), "the adapter of a complete type has its own"
    return serializer

"""Records as bytes: what a store keeps of each.

A row names the version of the format that it was written in. Older rows are upgraded when they are
read; a newer one is refused, for this version could misread it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import pydantic
from pydantic_core import PydanticSerializationError, SchemaSerializer, from_json, to_json

from understudy.errors import RecordRefused, SchemaVersionError, StoreDamaged
from understudy.journal.plain_json import plain_json
from understudy.quick import quick_init
from understudy.state.records import Record, record_from_dict

__all__ = ["EncodedRecord", "decode", "encode"]

RECORD_VERSION = 1
"""Of the format that this version writes."""
MAX_RECORD_BYTES = 16 * 1024 * 1024
"""A record larger than this is refused, before it is queued (J16)."""

Upgrade = Callable[[str, dict[str, Any]], dict[str, Any]]
UPGRADES: Mapping[int, Upgrade] = {}
"""How a record of version n becomes one of n + 1: by its kind and its data."""


@quick_init
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

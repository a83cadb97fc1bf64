"""JSON values: what may be stored, and one way to write it down."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from understudy.errors import UsageError

__all__ = ["checked_json", "checked_seconds", "digest"]


def checked_json(values: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """A copy of `values` as plain JSON data.

    Raises:
        UsageError: naming the first key that is not a string or whose value cannot be stored.

    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} must be a mapping, not {values!r}")
    checked = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise UsageError(f"{what} has the key {key!r}: keys must be strings")
        try:
            checked[key] = to_jsonable_python(value)
        except PydanticSerializationError as error:
            raise UsageError(
                f"{what} holds {key!r}, which cannot be stored as JSON ({error}): store plain "
                "data, and hand live objects over as deps"
            ) from error
    return checked


def checked_seconds(given: object, *, what: str) -> float:
    """A span of time as given.

    Raises:
        UsageError: for anything but a number of seconds above 0.

    """
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not math.isfinite(given) or given <= 0:  # type: ignore[arg-type,operator]  # a number: just asked
        raise UsageError(f"{what} is a number of seconds above 0, not {given!r}")
    return given  # type: ignore[return-value]  # a number, as above


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`: two values are the same if their digests are."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

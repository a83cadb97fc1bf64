"""JSON values: what may be stored, and one way to write it down."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any, TypeGuard

from pydantic_core import PydanticSerializationError, to_jsonable_python

from understudy.errors import UsageError

__all__ = ["checked_json", "checked_seconds", "digest", "is_time_span"]


def checked_json(values: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """A copy of `values` as plain JSON data: what is no number for JSON (NaN) is None.

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
            checked[key] = to_jsonable_python(value, inf_nan_mode="null")
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
    if not is_time_span(given):
        raise UsageError(f"{what} is a number of seconds above 0, not {given!r}")
    return given


def is_time_span(given: object) -> TypeGuard[float]:
    """Whether it is a number of seconds above 0 that a float can hold."""
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return number and 0 < given <= sys.float_info.max  # type: ignore[operator]  # a number: just asked


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`: two values are the same if their digests are."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

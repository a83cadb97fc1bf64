"""JSON values: the check that a value can be stored, and its digest."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Any, TypeGuard

from pydantic_core import PydanticSerializationError, to_jsonable_python

from understudy.errors import UsageError


def checked_json(values: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """A copy of `values` as plain JSON data. NaN and infinity become None.

    Args:
        values: what is to be stored.
        what: its name, for errors.

    Raises:
        UsageError: for a key that is not a string, or a value that cannot be stored.

    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} must be a mapping, got {values!r}")
    checked = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise UsageError(f"{what} has the key {key!r}: keys must be strings")
        try:
            checked[key] = to_jsonable_python(value, inf_nan_mode="null")
        except PydanticSerializationError as error:
            raise UsageError(
                f"{what} holds {key!r}, which cannot be stored as JSON ({error}): store plain "
                "data, and pass live objects as deps"
            ) from error
    return checked


def checked_seconds(given: object, *, what: str) -> float:
    """`given`, if it is a span of time in seconds.

    Raises:
        UsageError: for anything but a number above 0.

    """
    if not is_time_span(given):
        raise UsageError(f"{what} must be a number of seconds above 0, got {given!r}")
    return given


def is_time_span(given: object) -> TypeGuard[float]:
    """Whether it is a number above 0 that a float can hold."""
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return number and 0 < given <= sys.float_info.max  # type: ignore[operator]  # it is a number


def digest(value: object) -> str:
    """The SHA-256 of the canonical JSON of `value`, as hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

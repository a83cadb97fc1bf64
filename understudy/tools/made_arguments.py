"""The defaults that the arguments of a call leave out: where they are, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import from_json, to_json

Path = tuple[str | int, ...]
"""The keys and positions that lead to a value in arguments."""


def left_out(written: object, canonical: object, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What canonical arguments have and written arguments do not, at any depth.

    Args:
        written: the arguments that the model, or a person, wrote.
        canonical: the same arguments, with the values of defaults.
        above: the path to both.

    Yields:
        The path and the canonical value of each argument, or field, that is left out.

    """
    if isinstance(written, dict) and isinstance(canonical, dict):
        for key, value in canonical.items():
            if key in written:
                yield from left_out(written[key], value, (*above, key))
            else:
                yield (*above, key), value
    elif isinstance(written, list) and isinstance(canonical, list):
        for index, (one, other) in enumerate(zip(written, canonical, strict=False)):
            yield from left_out(one, other, (*above, index))


def with_value(arguments: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of the arguments with the value at this path, whose last key is missing in them."""
    # The copy is made by JSON: two places may have one object, which a deep copy keeps.
    copied: dict[str, Any] = from_json(to_json(arguments))
    inside: Any = copied
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return copied


def is_same_at(path: Path, one: object, other: object) -> bool:
    """Whether two validated arguments have the same Python value at this path.

    They are not compared as JSON, which writes two different secrets alike. Objects without their
    own equality count as the same if they have the same class.
    """
    try:
        for key in path:
            one, other = _inside(one, key), _inside(other, key)
        return bool(one == other) or (
            type(one) is type(other) and type(one).__eq__ is object.__eq__
        )
    except Exception:  # the type keeps the value elsewhere, or its own code raises
        return False


def _inside(value: Any, key: str | int) -> Any:
    """The part of a validated value that its JSON has under a key."""
    if isinstance(value, (dict, list, tuple)):
        return value[key]  # type: ignore[index]
    for name, field in getattr(type(value), "model_fields", {}).items():
        if key in (field.serialization_alias, field.alias):
            return getattr(value, name)
    return getattr(value, str(key))

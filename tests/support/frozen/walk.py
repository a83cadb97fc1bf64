"""Stored values as plain data, where two of them differ, and which fields nothing has set."""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, get_args, get_origin, get_type_hints

from understudy.state.agent_state import AgentState

__all__ = [
    "differences",
    "is_ours",
    "lost",
    "nested_types",
    "plain",
    "unset",
    "unused_defaults",
    "unused_words",
]

ABSENT = "<absent>"


def is_ours(kind: object) -> bool:
    """Whether it is a dataclass of this library: the fields of others are not ours to freeze."""
    return (
        isinstance(kind, type)
        and dataclasses.is_dataclass(kind)
        and kind.__module__.split(".")[0] == AgentState.__module__.split(".")[0]
    )


def plain(value: Any) -> Any:
    """All that a value holds, as JSON: of dataclasses their fields, made without any adapter."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: plain(found) for name, found in _fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    assert value is None or isinstance(value, (str, int, float, bool)), (
        f"{value!r} is no plain data"
    )
    return value


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass; of those of Pydantic AI only what is set: they get more."""
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        if is_ours(type(value)) or (found is not None and found != _default(field)):
            yield field.name, found


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where two pieces of JSON differ, as one line each."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            line
            for key in {**expected, **found}
            for line in differences(
                expected.get(key, ABSENT), found.get(key, ABSENT), f"{path}.{key}"
            )
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            line
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for line in differences(one, other, f"{path}[{index}]")
        ]
    if type(expected) is type(found) and expected == found:
        return []
    return [f"{path.lstrip('.')}: was {expected!r}, is {found!r}"]


def lost(expected: Any, found: Any) -> list[str]:
    """The same, but for keys that are new."""
    return [line for line in differences(expected, found) if f": was {ABSENT!r}, " not in line]


def nested_types(hint: Any, seen: set[type] | None = None) -> set[type]:
    """The dataclasses of ours, and the state, that a type holds, at any depth."""
    seen = set() if seen is None else seen
    if hint in seen:
        return seen
    if is_ours(hint) or hint is AgentState:
        seen.add(hint)
        for inner in get_type_hints(hint, include_extras=True).values():
            nested_types(inner, seen)
    if get_origin(hint) is not Literal:
        for inner in get_args(hint):
            nested_types(inner, seen)
    return seen


def unset(types: set[type], values: Any) -> list[str]:
    """The fields of these types that are nowhere in the values but at their default."""
    seen = _seen(values)
    return [
        f"{kind.__name__}.{name}"
        for kind in _sorted(types)
        for name, default in _defaults(kind).items()
        if len(_words(kind, name)) != 1
        and not any(_has_content(found) and found != default for found in seen[kind, name])
    ]


def unused_defaults(types: set[type], values: Any) -> list[str]:
    """The fields of these types that have a default, and are nowhere in the values at it."""
    seen = _seen(values)
    return [
        f"{kind.__name__}.{name}"
        for kind in _sorted(types)
        for name, default in _defaults(kind).items()
        if default is not dataclasses.MISSING and default not in seen[kind, name]
    ]


def unused_words(types: set[type], values: Any) -> list[str]:
    """The words that a `Literal` field of these types may hold, and holds nowhere in the values."""
    seen = _seen(values)
    return [
        f"{kind.__name__}.{name} = {word!r}"
        for kind in _sorted(types)
        for name in _defaults(kind)
        for word in _words(kind, name)
        if word not in seen[kind, name]
    ]


Seen = defaultdict[tuple[type, str], list[Any]]


def _seen(values: Any) -> Seen:
    seen: Seen = defaultdict(list)
    _note(values, seen)
    return seen


def _note(value: Any, seen: Seen) -> None:
    if is_ours(type(value)) or isinstance(value, AgentState):
        for name in _defaults(type(value)):
            found = getattr(value, name)
            seen[type(value), name].append(found)
            _note(found, seen)
    elif isinstance(value, Mapping):
        for item in value.values():
            _note(item, seen)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for item in value:
            _note(item, seen)


def _defaults(kind: Any) -> dict[str, Any]:
    """The fields of a type, with their defaults."""
    if kind is AgentState:
        empty = AgentState()
        return {name: getattr(empty, name) for name in AgentState.__slots__}
    return {field.name: _default(field) for field in dataclasses.fields(kind)}


def _words(kind: type, name: str) -> tuple[Any, ...]:
    hint = get_type_hints(kind).get(name)
    return get_args(hint) if get_origin(hint) is Literal else ()


def _sorted(types: set[type]) -> list[type]:
    return sorted(types, key=lambda kind: kind.__name__)


def _has_content(value: Any) -> bool:
    """Whether a field without a default would not be as good as unset with it."""
    return value is not None and (isinstance(value, bool) or value not in ("", 0, (), [], {}))

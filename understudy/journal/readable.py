"""The data of records that can surely be read again, told by their types alone.

To read a record back takes as long as to write it, and the adapters of messages call Python
functions and look at each field that is at its default. The records of each step hold JSON values,
times and a few dataclasses: of those, one look at each value tells that it can be read, and brings
what is to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic_ai.messages import (
    MULTI_MODAL_CONTENT_TYPES,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage
from typing_extensions import TypeAliasType

from understudy._base.json_values import is_storable_text
from understudy.state.records import Record, StoredRecord

_MAX_DEPTH = 50
"""Records nested deeper are read back: the reader knows how deep is too deep."""
_MOST, _LEAST = 2**63, -(2**63)
"""Larger numbers are read back: they may have too many digits."""
_TAGS = ("kind", "part_kind")
"""The adapters choose a type by these, so they are written although they are at their default."""
_RECORDS = frozenset(get_args(Record))
_PARTS = frozenset({TextPart, ThinkingPart, ToolCallPart, ToolReturnPart, UserPromptPart})
_KNOWN = _PARTS | {ModelRequest, ModelResponse, RequestUsage}
"""The dataclasses of messages whose values are known. Files and others are read back."""

_Data = Callable[[Any, int], dict[str, Any]]
"""The data of an object of one class, which lies so deep."""


class _Unsure(Exception):  # no error: the answer of a look at a value
    """Only reading the record back tells whether it can be read."""


def readable_data(record: object, depth: int = 0) -> dict[str, Any] | None:
    """What JSON is to hold of a record, of a message, or of another dataclass of ours.

    All but the kind of a record, and fields at their default.

    None if only reading it back tells whether it can be read.

    Args:
        record: what is to be written.
        depth: in so many records of agents around it.

    """
    kind: Any = type(record)
    try:
        return _data_of(kind)(record, depth)
    except Exception:  # it is unsure; or a field was deleted, or an object's own code raised
        return None


class _Accepted(NamedTuple):
    """The values that a field, or an item of a list or a dict, may have."""

    types: frozenset[type]
    """The exact types of the values: an object of a subclass may write itself in another way."""
    words: frozenset[object] = frozenset()
    """The texts of a `Literal`: any other text could not be read."""
    items: _Accepted | None = None
    """The values that the items of a list, a tuple or a dict may have; None for JSON, whose items
    are JSON again."""


_SCALARS = frozenset({NoneType, bool, int, float, str})
_JSON = _Accepted(_SCALARS | {dict, list, tuple})
_NOTHING = _Accepted(frozenset())
_ANY_RECORD = _Accepted(_RECORDS)


def _accepted(hint: Any) -> _Accepted:
    """What is accepted of a type hint. What it does not know, it accepts nothing of."""
    if hint == StoredRecord:
        return _ANY_RECORD
    origin = get_origin(hint)
    if origin is Annotated:
        return _accepted(get_args(hint)[0])
    if hint is Any or isinstance(hint, TypeAliasType):  # the content of a tool's result
        return _JSON
    if origin is Literal:
        return _Accepted(frozenset(), frozenset(get_args(hint)))
    if origin in (Union, UnionType):
        options = [_accepted(option) for option in get_args(hint)]
        items = [option.items for option in options if option.items is not None]
        return _Accepted(
            frozenset().union(*(option.types for option in options)),
            frozenset().union(*(option.words for option in options)),
            items[0] if len(items) == 1 else _NOTHING,
        )
    if origin is dict:
        return _Accepted(frozenset({dict}), items=_accepted(get_args(hint)[1]))
    if origin in (list, tuple, Sequence):
        kinds = {list} if origin is not tuple else {tuple}
        return _Accepted(frozenset(kinds), items=_accepted(get_args(hint)[0]))
    if hint is float:
        return _Accepted(frozenset({float, int}))
    known = isinstance(hint, type) and (hint in _SCALARS or hint is datetime or _is_known(hint))
    return _Accepted(frozenset({hint} if known else ()))


def _is_known(kind: type) -> bool:
    """Whether it is a dataclass whose values are known: each of ours is plain fields."""
    return kind in _KNOWN or (is_dataclass(kind) and kind.__module__.startswith("understudy."))


_HARMLESS = frozenset({NoneType, bool, datetime})
_FILES = tuple(file.kind for file in cast("tuple[Any, ...]", MULTI_MODAL_CONTENT_TYPES))
"""A mapping of one of these kinds may be read as a file. With the result of a tool, the adapters
write which of its mappings were files."""


def _checked(value: Any, accepted: _Accepted, depth: int) -> Any:
    """The data of a value. Raises `_Unsure` if it is not accepted."""
    kind: Any = type(value)
    if kind is str:
        known = value in accepted.words if accepted.words else kind in accepted.types
        if not (known and is_storable_text(value)):
            raise _Unsure
    elif kind not in accepted.types:
        raise _Unsure
    elif is_dataclass(kind):
        if depth >= _MAX_DEPTH:
            raise _Unsure
        data = _data_of(cast("Any", kind))(value, depth + 1)
        return {"kind": value.kind, **data} if accepted is _ANY_RECORD else data
    elif kind is datetime:
        pass
    elif accepted.items is None or accepted.items is _JSON or kind in _SCALARS:
        _check_json(value, depth)
    elif kind is dict:
        _check_json(dict.fromkeys(value), depth)  # its keys
        return {key: _checked(value[key], accepted.items, depth + 1) for key in value}
    elif kind is list or kind is tuple:
        return [_checked(item, accepted.items, depth + 1) for item in value]
    return value


def _check_json(value: Any, depth: int) -> None:
    """Raise `_Unsure` if it is not surely JSON."""
    kind: Any = type(value)
    if kind is str:
        if not (value.isascii() or is_storable_text(value)):
            raise _Unsure
    elif kind is int:
        if not _LEAST < value < _MOST:
            raise _Unsure
    elif kind is float:
        if not isfinite(value):
            raise _Unsure
    elif kind is bool or value is None:
        pass
    elif depth >= _MAX_DEPTH:
        raise _Unsure
    elif kind is dict:
        if "kind" in value and value["kind"] in _FILES:
            raise _Unsure
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or is_storable_text(key)):
                raise _Unsure
            if type(item) is not str or not item.isascii():  # of most arguments: no call for these
                _check_json(item, depth + 1)
    elif kind is list or kind is tuple:
        for item in value:
            _check_json(item, depth + 1)
    else:
        raise _Unsure


def _default(field: Field[Any]) -> Any:
    """What is not written of a field; `MISSING` if it always is."""
    if field.name in _TAGS:
        return MISSING
    if field.default_factory is not MISSING:  # others make a time, or an id
        made = field.default_factory()
        return made if made == {} else MISSING
    return field.default


_USAGE_HINTS = get_type_hints(RequestUsage, include_extras=True)
_USAGE = {field.name: _accepted(_USAGE_HINTS[field.name]) for field in fields(RequestUsage)}
_COUNTERS = frozenset(name for name, accepted in _USAGE.items() if int in accepted.types)


def _usage_data(usage: RequestUsage, depth: int) -> dict[str, Any]:
    """The data of a usage, from the attributes that it has itself.

    What was not given is on its class alone.
    """
    found = {}
    for name, value in usage.__dict__.items():
        if type(value) is int and name in _COUNTERS and _LEAST < value < _MOST:
            data = value
        elif name == "details" and value == {}:
            continue  # of nearly all usages; to check it takes as long as all else
        elif name in _USAGE:
            data = _checked(value, _USAGE[name], depth)
        else:  # a counter of the provider: the adapters write it
            raise _Unsure
        if data:  # the default of each is 0, None or empty
            found[name] = data
    return found


@cache
def _data_of(cls: type[Any]) -> _Data:
    """The function for a class: compiled, as it runs for each record of a step."""
    if cls is RequestUsage:
        return _usage_data
    names: dict[str, Any] = {
        "Unsure": _Unsure,
        "LEAST": _LEAST,
        "MOST": _MOST,
        "is_storable_text": is_storable_text,
        "checked": _checked,
        "check_json": _check_json,
    }
    lines = ["def data(it, depth):", "found = {}"]
    hints = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        name, default, accepted = field.name, _default(field), _accepted(hints[field.name])
        if default is None:
            accepted = accepted._replace(types=accepted.types - {NoneType})
        check, put = _check(name, accepted, names), f"found[{name!r}] = x"
        lines.append(f"x = it.{name}")
        if name == "kind" and cls in _RECORDS:  # it has a column of its own
            lines += check
        elif default is MISSING:
            lines += [*check, put]
        elif default == {}:
            lines.append("if x:")
            lines += [f"  {line}" for line in (*check, put)]
            # The empty dict that states share is none of `dict` itself.
            lines.append("elif not isinstance(x, dict): raise Unsure")
        else:
            names[f"default_{name}"] = default
            unlike = "!=" if type(default) is float else "is not"  # floats are not one object
            lines.append(f"if x {unlike} {None if default is None else f'default_{name}'}:")
            lines += [f"  {line}" for line in (*check, put)]
    exec("\n  ".join([*lines, "return found"]), names)  # noqa: S102  # as dataclasses makes methods
    data: _Data = names["data"]
    return data


def _check(name: str, accepted: _Accepted, names: dict[str, Any]) -> list[str]:
    """The lines that raise if `x` is not accepted, and make data of it. Most need no call."""
    types = accepted.types
    (only, *_) = types or (None,)
    if accepted.words and not types:
        names[f"words_{name}"] = accepted.words
        wrong = f"type(x) is not str or x not in words_{name}"
    elif types == {str}:
        wrong = "type(x) is not str or not (x.isascii() or is_storable_text(x))"
    elif types == {int}:
        wrong = "type(x) is not int or not LEAST < x < MOST"
    elif types <= _HARMLESS and not accepted.words:
        names[f"types_{name}"] = types
        wrong = f"type(x) not in types_{name}"
    elif len(types) == 1 and only is not None and is_dataclass(only):
        names[f"type_{name}"], names[f"data_{name}"] = only, _data_of(only)
        wrong = f"type(x) is not type_{name}"
        return [f"if {wrong}: raise Unsure", f"x = data_{name}(x, depth + 1)"]
    elif types <= _JSON.types and accepted.items in (None, _JSON) and not accepted.words:
        names[f"types_{name}"] = types
        return [f"if type(x) not in types_{name}: raise Unsure", "check_json(x, depth)"]
    elif types == {list} and accepted.items is not None and accepted.items.types <= _PARTS:
        # The parts of a message. A type that is not known is a `LookupError`: it is unsure too.
        names[f"data_{name}"] = {part: _data_of(part) for part in accepted.items.types}
        return [
            "if type(x) is not list: raise Unsure",
            "parts = []",
            f"for part in x: parts.append(data_{name}[type(part)](part, depth + 2))",
            "x = parts",
        ]
    else:
        names[f"accepted_{name}"] = accepted
        return [f"x = checked(x, accepted_{name}, depth)"]
    return [f"if {wrong}: raise Unsure"]

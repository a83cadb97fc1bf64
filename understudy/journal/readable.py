"""Which records can surely be read again, told by their types alone.

To read a record back takes as long as to write it. The records of each step hold JSON values, times
and a few dataclasses, so a look at the type of each value tells that they can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from math import isfinite
from operator import attrgetter, itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic_ai.messages import (
    ModelMessage,
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

from understudy._base.json_values import MAX_INT, is_storable_text
from understudy.state.records import (
    Attempt,
    End,
    HooksRan,
    PauseChecked,
    Propagated,
    Record,
    Started,
    StoredRecord,
    Suspended,
    Withdrawn,
)

_OWN_DATA = frozenset({Attempt, HooksRan, PauseChecked, Started, Suspended, Propagated, Withdrawn})
"""Kinds of many records that hold nothing from outside but ids that were recorded before."""
REPLY_PARTS = (TextPart, ThinkingPart, ToolCallPart)
"""The parts of a reply whose values are known. Files and others are read back."""

_MAX_DEPTH = 50
"""Records nested deeper are read back: the reader knows how deep is too deep."""
_MAX_PLANS = 1000
"""Of a class: a value may be of any type that a user has."""
_TEXT = frozenset({str})
_RECORDS = frozenset(get_args(Record))
_KNOWN = frozenset(
    {*_RECORDS, End, ModelRequest, UserPromptPart, ModelResponse, RequestUsage, ToolReturnPart}
    | set(REPLY_PARTS)
)


class _Accepted(NamedTuple):
    """The values that a field, or an item of a list or a dict, may have."""

    types: frozenset[type]
    """Exactly these: an object of a subclass may write itself in another way."""
    words: frozenset[object]
    """Of a `Literal`: a text that is none of them could not be read."""
    items: _Accepted | None
    """Of a list, a tuple or a dict; None for JSON, whose items are JSON again."""


class _Plan(NamedTuple):
    """What is left to look at where the values of a dataclass have certain types."""

    texts: Callable[[Any], Sequence[str]]
    numbers: Callable[[Any], Sequence[int]] | None
    words: Sequence[tuple[int, frozenset[object]]]
    """By their index, what they may be."""
    others: Sequence[tuple[int, _Accepted]]


class _Shape:
    """A dataclass: its values, and what each may be.

    The objects of a class have the same few combinations of types, so what to look at is planned
    once for each: a look at each value takes twice as long.
    """

    __slots__ = ("_accepted", "_open", "_plans", "_values")

    def __init__(self, cls: type[Any]) -> None:
        accepted = _fields(cls)
        usages = [f"{name}.__dict__" for name, values in accepted if values.types == _USAGE]
        self._open = [attrgetter(name) for name in usages]
        """Each brings the attributes of a usage, which may have others than its fields."""
        if len(accepted) == 1:
            accepted *= 2  # of one name alone, the getter brings no tuple
        self._values = attrgetter(*(name for name, _ in accepted))
        self._accepted = [values for _, values in accepted]
        self._plans: dict[tuple[type, ...], _Plan | None] = {}

    def fits(self, instance: object, depth: int) -> bool:
        """Whether each of its values is accepted."""
        try:
            values = self._values(instance)
            for attributes in self._open:
                if not attributes(instance).keys() <= _USAGE_FIELDS:
                    return False  # a counter of the provider: the adapters write it
        except AttributeError:  # of a field that should hold a dataclass
            return False
        kinds = tuple(map(type, values))
        try:
            plan = self._plans[kinds]
        except KeyError:
            plan = self._plan(kinds)
            if len(self._plans) < _MAX_PLANS:
                self._plans[kinds] = plan
        if plan is None:
            return False
        texts_of, numbers_of, words_of, others = plan
        text = "".join(texts_of(values))
        if not text.isascii() and not is_storable_text(text):
            return False
        if numbers_of is not None:
            numbers = numbers_of(values)
            if max(numbers) >= MAX_INT or min(numbers) <= -MAX_INT:
                return False
        for index, words in words_of:
            if values[index] not in words:
                return False
        for index, accepted in others:
            if values[index] and not _is_accepted(values[index], accepted, depth + 1):
                return False
        return True

    def _plan(self, kinds: tuple[type, ...]) -> _Plan | None:
        texts, numbers, words, others = [], [], [], []
        for index, (kind, accepted) in enumerate(zip(kinds, self._accepted, strict=True)):
            if kind is str and accepted.words:
                words.append((index, accepted.words))
            elif kind not in accepted.types:
                return None
            elif kind is str:
                texts.append(index)
            elif kind is int:
                numbers.append(index)
            elif kind not in _HARMLESS and accepted.items is not _FLAT:
                others.append((index, accepted))
        return _Plan(_getter(texts), _getter(numbers) if numbers else None, words, others)


def _fields(cls: type[Any], prefix: str = "") -> list[tuple[str, _Accepted]]:
    """The fields of a dataclass and of those in it, by their paths: one getter brings all."""
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for field in fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        if hint in _KNOWN:
            found.append((prefix + field.name, _Accepted(frozenset({hint}), frozenset(), _FLAT)))
            found += _fields(hint, f"{prefix}{field.name}.")
        else:
            found.append((prefix + field.name, _accepted(hints[field.name])))
    return found


def _getter(indexes: list[int]) -> Callable[[Any], Sequence[Any]]:
    """The values at these indexes, as a sequence."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return itemgetter(slice(indexes[0], indexes[0] + 1) if indexes else slice(0))


_USAGE = frozenset({RequestUsage})
_USAGE_FIELDS = frozenset(field.name for field in fields(RequestUsage))
_HARMLESS = frozenset({NoneType, bool, datetime})
_SCALARS = frozenset({NoneType, bool, int, float, str})
_NOTHING = _Accepted(frozenset(), frozenset(), None)
_FLAT = _Accepted(frozenset(), frozenset(), None)
"""In place of the items of a dataclass whose fields stand beside it."""
_JSON = _Accepted(_SCALARS | {dict, list, tuple}, frozenset(), None)


def is_surely_readable(record: Record | ModelMessage) -> bool:
    """Whether it can be read again if it can be written; if not, only reading it tells."""
    kind: Any = type(record)
    return kind in _OWN_DATA or _shape(kind).fits(record, 0)


_shape = cache(_Shape)


def _is_accepted(value: Any, accepted: _Accepted, depth: int) -> bool:
    kind: Any = type(value)
    if kind is str:
        known = value in accepted.words if accepted.words else kind in accepted.types
        return known and is_storable_text(value)
    if kind not in accepted.types:
        return False
    if kind is int:
        return -MAX_INT < value < MAX_INT  # type: ignore[no-any-return]
    if kind in _HARMLESS:
        return True
    if kind is float:
        return isfinite(value)
    if depth >= _MAX_DEPTH:
        return False
    items = value
    if kind is dict:
        if not set(map(type, value)) <= _TEXT or not _are_texts(value):
            return False
        items = value.values()
    elif kind is not list and kind is not tuple:
        return _shape(kind).fits(value, depth)
    inner = accepted.items or _JSON
    for item in items:  # noqa: SIM110  # a generator takes twice as long
        if not _is_accepted(item, inner, depth + 1):
            return False
    return True


def _are_texts(texts: Iterable[str]) -> bool:
    """Whether UTF-8 can encode them all."""
    return is_storable_text("".join(texts))


def _accepted(hint: Any) -> _Accepted:
    """What is accepted of a type hint. What it does not know, it accepts nothing of."""
    if hint == StoredRecord:
        return _Accepted(_RECORDS, frozenset(), None)
    origin = get_origin(hint)
    if origin is Annotated:
        return _accepted(get_args(hint)[0])
    if hint is Any or isinstance(hint, TypeAliasType):  # the content of a tool's result
        return _JSON
    if origin is Literal:
        return _Accepted(frozenset(), frozenset(get_args(hint)), None)
    if origin in (Union, UnionType):
        options = [_accepted(option) for option in get_args(hint)]
        items = [option.items for option in options if option.items is not None]
        return _Accepted(
            frozenset().union(*(option.types for option in options)),
            frozenset().union(*(option.words for option in options)),
            items[0] if len(items) == 1 else _NOTHING,
        )
    if origin is dict:
        return _Accepted(frozenset({dict}), frozenset(), _accepted(get_args(hint)[1]))
    if origin in (list, tuple, Sequence):
        kinds = {list} if origin is not tuple else {tuple}
        return _Accepted(frozenset(kinds), frozenset(), _accepted(get_args(hint)[0]))
    if hint is float:
        return _Accepted(frozenset({float, int}), frozenset(), None)
    known = isinstance(hint, type) and (hint in _SCALARS or hint is datetime or hint in _KNOWN)
    return _Accepted(frozenset({hint} if known else ()), frozenset(), None)

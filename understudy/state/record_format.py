"""The format of records and states: its number, and a fingerprint of what they may hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import get_annotations
from typing import Any, Literal, get_args, get_origin

from understudy._base.json_values import digest
from understudy.state.agent_state import AgentState, StoredState
from understudy.state.records import Record
from understudy.state.trust_facts import KINDS
from understudy.state.waits import Wait
from understudy.stopping import StopSignal

FORMAT_VERSION = 1
"""The generation of all that is stored: records, tables, feeds and exports.

Until the first release it stays 1: a change changes this generation, and the fingerprint shows that
a store is older. After a release it grows with each change of the record types or the tables, and
of what hosts of a store post to each other.
"""

_NAME = re.compile(r"[A-Za-z_]\w*")


@cache
def record_format() -> str:
    """The fingerprint of the record types, the state, and what is stored in them as JSON.

    It changes with a kind, a field, a field's type or default, or a word that the field may hold.
    It is made from the source of the annotations. So it is the same on each platform and in each
    Python, and does not cover Pydantic AI's own types.
    """
    kinds = [*get_args(Record), StoredState, StopSignal, Wait, *KINDS.values()]
    return format_of(kinds, also=AgentState.__slots__)


def format_of(kinds: Iterable[type], *, also: Iterable[str] = ()) -> str:
    """The fingerprint of dataclasses, and of this library's dataclasses in their fields.

    The name of a class, its module and the order of its fields do not count.
    """
    roots = sorted(digest(_Types().described(kind)) for kind in kinds)
    return digest([roots, sorted(also)])[:16]


class _Types:
    """Describes dataclasses by their fields. An inner class is described by its own fields,
    once.
    """

    def __init__(self) -> None:
        self._numbers: dict[type, int] = {}

    def described(self, kind: Any) -> Any:
        number = self._numbers.get(kind)
        if number is not None:
            return number
        self._numbers[kind] = len(self._numbers)
        modules = {
            name: sys.modules[base.__module__]
            for base in reversed(kind.__mro__)
            for name in get_annotations(base)
        }
        return {
            field.name: [_default(field), *self._type(field.type, vars(modules[field.name]))]
            for field in sorted(fields(kind), key=lambda field: field.name)
        }

    def _type(self, annotation: Any, names: dict[str, Any]) -> list[Any]:
        """The source of an annotation without the names of our classes, then these classes
        described.
        """
        inside: list[Any] = []

        def shown(found: re.Match[str]) -> str:
            meant = names.get(found.group())
            if get_origin(meant) is Literal:
                return repr(get_args(meant))
            if isinstance(meant, type) and issubclass(meant, Enum):
                return repr([member.value for member in meant])
            ours = [*_ours_in(meant)]
            inside.extend(map(self.described, ours))
            return "*" if ours else found.group()

        return [_NAME.sub(shown, annotation), *inside]


def _ours_in(meant: Any) -> Iterable[type]:
    """The dataclasses of this library that a class or an alias stands for."""
    if isinstance(meant, type) and is_dataclass(meant):
        if meant.__module__.partition(".")[0] == __name__.partition(".")[0]:
            yield meant
    elif get_origin(meant) is not Literal:
        for inner in get_args(meant):
            yield from _ours_in(inner)


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return repr(field.default)
    return "needed" if field.default_factory is MISSING else "new"

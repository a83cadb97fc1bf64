"""The parts of a rule's `when`: its code, and the objects that the code uses from outside."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import UUID

from understudy._base.json_values import shown
from understudy.errors import UsageError

_PLAIN = (Decimal, datetime, date, time, timedelta, UUID)
_VALUES = (str, bytes, int, float, tuple, list, dict, set, frozenset, Enum, re.Pattern, *_PLAIN)
"""The attributes of a class that count; other attributes do not."""
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


def parts_of(when: object, rule: str) -> Any:
    """The parts of a `when` as plain data, equal in each process of the same Python.

    Args:
        when: the function of the rule.
        rule: the rule as it is written, for the error.

    Raises:
        UsageError: if it uses a value that cannot be compared with the value on another
            host. The error names it, and the remedy.

    """
    return _Parts(rule).of(when)


class _Parts:
    """The parts of a `when`."""

    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # so that no id is reused by another object

    def of(self, value: Any) -> Any:
        """The parts of a value."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float | bytes | complex) or value is ...:
            return [type(value).__name__, repr(value)]
        if isinstance(value, Enum):
            return ["enum", _name(type(value)), value.name]
        if isinstance(value, _PLAIN):
            return [type(value).__name__, str(value)]
        if isinstance(value, re.Pattern):
            return ["pattern", self.of(value.pattern), value.flags]
        number = self._numbers.get(id(value))
        if number is not None:  # for instance a function that calls itself
            return ["again", number]
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        return self._of_object(value)

    def _of_object(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            pairs = [[self.of(key), self.of(each)] for key, each in value.items()]
            return ["mapping", sorted(pairs, key=str)]
        if isinstance(value, Set):
            return ["set", sorted(map(self.of, value), key=str)]
        if isinstance(value, tuple | list):
            return [type(value).__name__, *map(self.of, value)]
        if isinstance(value, functools.partial):
            return ["partial", *map(self.of, (value.func, value.args, value.keywords))]
        if isinstance(value, MethodType):
            return ["method", self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, CodeType):
            return self._of_code(value)
        if isinstance(value, FunctionType):
            return self._of_function(value)
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, BuiltinFunctionType):
            return ["built in", value.__module__, value.__qualname__]
        return self._of_instance(value)

    def _of_code(self, code: CodeType) -> Any:
        return ["code", code.co_code.hex(), list(code.co_names), *map(self.of, code.co_consts)]

    def _of_function(self, function: FunctionType) -> Any:
        if _is_of_others(function.__module__, function.__code__.co_filename):
            return ["function", function.__module__, function.__qualname__]
        cells = {}
        free = function.__code__.co_freevars
        for name, cell in zip(free, function.__closure__ or (), strict=True):
            try:
                cells[name] = cell.cell_contents
            except ValueError:  # the cell is not set yet
                cells[name] = None
        return [
            "function",
            self._of_code(function.__code__),
            self.of(function.__defaults__),
            self.of(function.__kwdefaults__),
            [[name, self.of(value)] for name, value in cells.items()],
            [[name, self.of(value)] for name, value in _globals_of(function)],
        ]

    def _of_class(self, kind: type) -> Any:
        name = ["class", _name(kind)]
        module = sys.modules.get(kind.__module__)
        if _is_of_others(kind.__module__, getattr(module, "__file__", None) or ""):
            return name
        members = {
            key: getattr(each, "__func__", getattr(each, "fget", each))
            for key, each in vars(kind).items()
        }
        counted = [
            (key, each)
            for key, each in members.items()
            if inspect.isfunction(each) or (not key.startswith("__") and isinstance(each, _VALUES))
        ]
        bases = [self.of(base) for base in kind.__bases__ if base is not object]
        return [*name, bases, [[key, self.of(each)] for key, each in sorted(counted, key=_key)]]

    def _of_instance(self, value: Any) -> Any:
        if is_dataclass(value):
            held = {field.name: getattr(value, field.name) for field in fields(value)}
        elif callable(value) and not _is_of_others(type(value).__module__, _file_of(type(value))):
            held = _attributes(value)
        else:
            raise UsageError(
                f"Rules(version=...): the `when` of {self._rule} uses {shown(value)}, which "
                "cannot be compared with another host's. Name the code by `code='1'` beside "
                "`when=`, and change the name whenever the code changes"
            )
        parts = [[name, self.of(each)] for name, each in sorted(held.items())]
        return ["instance", self.of(type(value)), parts]


def _globals_of(function: FunctionType) -> list[tuple[str, Any]]:
    """The objects that the code of a function uses by name from outside."""
    found: dict[str, Any] = {}
    for code in _codes(function.__code__):
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if instruction.opname not in _GLOBALS or name not in function.__globals__:
                continue  # a name without another definition is a builtin
            value = found[name] = function.__globals__[name]
            if isinstance(value, ModuleType) and not _is_of_others(
                value.__name__, getattr(value, "__file__", None) or ""
            ):
                # The code does not say whose attribute it is, so each possible one is taken.
                for attribute in code.co_names:
                    if attribute in vars(value):
                        found[f"{name}.{attribute}"] = vars(value)[attribute]
    return sorted(found.items(), key=_key)


def _codes(code: CodeType) -> Sequence[CodeType]:
    inside = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(deeper for each in inside for deeper in _codes(each))]


def _is_of_others(module: str | None, file: str) -> bool:
    """Whether a module belongs to Python or an installed package, and so counts only by its
    name.
    """
    top = (module or "").partition(".")[0]
    installed = "site-packages" in file or "dist-packages" in file
    of_python = top in sys.stdlib_module_names and top != "__main__"
    return installed or of_python or top == "understudy"


def _attributes(value: object) -> dict[str, Any]:
    """The attributes of an object, also in slots."""
    slots = (
        name
        for kind in type(value).__mro__
        for name in getattr(kind, "__slots__", ())
        if hasattr(value, name)
    )
    return {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}}


def _key(item: tuple[str, Any]) -> str:
    return item[0]


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"

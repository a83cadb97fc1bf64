"""`quick_init`: a shorter way to make the frozen values that every step makes."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

__all__ = ["quick_init"]

T = TypeVar("T")


def quick_init(cls: type[T]) -> type[T]:
    """The same frozen dataclass with an `__init__` that fills the slots themselves.

    That of `dataclass` calls `object.__setattr__` with the name of each field, and a step makes 7
    values with some 30 fields: this takes 4 % off its time. For classes with slots, and without
    `__post_init__` and default factories.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # of a dataclass
    if any(field.default_factory is not dataclasses.MISSING for field in fields):
        raise TypeError(f"{cls.__name__} has a field with a default factory")
    names = [field.name for field in fields]
    made: Any = cls.__init__
    star = "*, " if made.__kwdefaults__ is not None or fields[0].kw_only else ""
    lines = [f"def __init__(self, {star}{', '.join(names)}):"]
    lines += [f"    _set_{name}(self, {name})" for name in names]
    scope: dict[str, Any] = {f"_set_{name}": getattr(cls, name).__set__ for name in names}
    exec("\n".join(lines), scope)  # noqa: S102  # of field names, as dataclass does
    init = scope["__init__"]
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__qualname__", "__module__"):
        setattr(init, name, getattr(made, name))
    cls.__init__ = init  # type: ignore[method-assign]  # mypy sees the one of dataclass
    return cls

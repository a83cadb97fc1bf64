"""The empty collections of states: all states share them, as most collections stay empty.

An empty dict of its own takes 64 bytes, an empty list 56, and a state has a dozen of both.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


def _refuse(*_args: object, **_kwargs: object) -> NoReturn:
    raise TypeError(
        "This empty collection is shared by all states: put a new one in its place, as "
        "`with_item` and `with_added` do"
    )


class _NoItems(dict[str, Any]):
    __slots__ = ()
    __setitem__ = setdefault = update = __ior__ = _refuse


class _NoList(list[Any]):
    __slots__ = ()
    append = extend = insert = __iadd__ = __imul__ = __setitem__ = _refuse


_NO_ITEMS = _NoItems()
_NO_LIST = _NoList()


def no_items() -> dict[str, Any]:
    """The shared empty dict. It raises if something is put into it."""
    return _NO_ITEMS


def no_list() -> list[Any]:
    """The shared empty list. It raises if something is added to it."""
    return _NO_LIST


def with_item(items: dict[str, T], key: str, value: T) -> dict[str, T]:
    """The dict with this item: the same dict, or a new dict if it was empty."""
    if not items:
        return {key: value}
    items[key] = value
    return items


def with_added(added_to: list[T], *added: T) -> list[T]:
    """The list with these items at its end: the same list, or a new list if it was empty."""
    if not added_to:
        return list(added) if added else added_to
    added_to.extend(added)
    return added_to

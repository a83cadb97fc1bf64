"""Titles of requests, such as `Refund {amount} {currency} to {customer}`.

A title is stored as it was written, and its values are filled in where it is shown. So a value that
is hidden from a person is hidden in the title, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from string import Formatter
from typing import Any

from understudy._base.json_values import shown
from understudy.errors import UsageError

LONGEST = 200
"""Characters of a title."""
_Part = tuple[str, str | None, str]
"""A text, and the name of the value behind it with its format; None where only the text is left."""


def checked_title(
    title: object, *, what: str, names: Collection[str] | None = None, of: str = ""
) -> str:
    """The title, checked; empty where there is none.

    Args:
        title: as it was given.
        what: the option, for errors.
        names: the values that there are; None where they are not known yet.
        of: what has these values, for errors.

    Raises:
        UsageError: if it is no text, too long, cannot be read, or names a value that there is not.

    """
    if title is None or title == "":
        return ""
    if not isinstance(title, str):
        raise UsageError(f"{what} must be a text such as 'Pay {{amount}}', got {shown(title)}")
    if not title.strip() or len(title) > LONGEST:
        raise UsageError(
            f"{what} must have 1 to {LONGEST} characters that are not blank, got {shown(title)}"
        )
    try:
        parts = _parts(title)
    except ValueError as error:
        raise UsageError(
            f"{what} is {shown(title)}, which cannot be read: {error}. Write a value as {{name}}, "
            "and a brace as {{ or }}"
        ) from error
    for _, name, _ in parts:
        first = None if name is None else name.split(".")[0]
        if first is not None and names is not None and first not in names:
            near = get_close_matches(first, names, n=1)
            raise UsageError(
                f"{what} has {{{name}}}, but {of} has no argument {first!r}"
                + (f" (did you mean {near[0]!r}?)" if near else "")
                + f"; it has: {', '.join(names) or 'none'}"
            )
    return title


def filled_title(title: str, *values: Any) -> str:
    """The title with its values, in a line; as it was written where it cannot be read.

    A value that is not there, or is empty, leaves nothing. A value that does not fit its format, as
    one that is hidden, is shown as it is.

    Args:
        title: as it is stored.
        values: the mappings that have the values; the first that has a name counts.

    """
    try:
        parts = _parts(title)
    except ValueError:
        return " ".join(title.split())[:LONGEST]
    text = "".join(
        before + ("" if name is None else _text(_value(name, values), form))
        for before, name, form in parts
    )
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


@lru_cache(maxsize=500)
def _parts(title: str) -> tuple[_Part, ...]:
    found = []
    for before, name, form, conversion in Formatter().parse(title):
        if name is not None and not all(each.strip() for each in name.split(".")):
            raise ValueError(f"{{{name}}} names no value")
        if conversion or "{" in (form or "") or set(name or "") & set("[]"):
            raise ValueError(f"{{{name}}} may have a name and a format alone")
        found.append((before, name, form or ""))
    return tuple(found)


def _value(name: str, values: tuple[Any, ...]) -> Any:
    first, *inner = name.split(".")
    found = next(
        (each[first] for each in values if isinstance(each, Mapping) and first in each), None
    )
    for key in inner:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _text(value: Any, form: str) -> str:
    if value is None:
        return ""
    if form:
        try:
            return format(value, form)
        except (TypeError, ValueError):
            pass  # as where it is hidden: the value is shown as it is
    if isinstance(value, str):
        return value[: 2 * LONGEST]
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)[: 2 * LONGEST]
    return json.dumps(value, ensure_ascii=False, default=str)[: 2 * LONGEST]

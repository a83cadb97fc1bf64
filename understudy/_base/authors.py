"""`checked_author`: the name of the person who acts, as each act and each decision records it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from understudy._base.confusables import odd_places
from understudy._base.json_values import checked_text
from understudy.errors import UsageError

MAX_AUTHOR = 200
"""The characters of a name."""
RESERVED = frozenset({"understudy", "nobody", "somebody", "check"})
"""The names by which the library calls itself, or nobody, where it shows who did something."""


def checked_author(given: object, *, what: str) -> str | None:
    """`given`, if it is the name of a person or None.

    A name is shown and compared: it must not look like another one, or like one of the library's.

    Raises:
        UsageError: for anything else; it says what is wrong with the name.

    """
    if given is None:
        return None
    name = checked_text(given, what=what)
    why = _why_not(name)
    if why is not None:
        raise UsageError(f"{what} is the name of a person, and cannot be {name[:80]!r}: {why}")
    return name


def _why_not(name: str) -> str | None:
    if len(name) > MAX_AUTHOR:
        return f"it has {len(name)} characters, and may have {MAX_AUTHOR}"
    if name.casefold() in RESERVED:
        return "the library uses this name itself"
    if name != name.strip() or "\t" in name or "\n" in name:
        return "it begins or ends with a space, or holds a tab or the end of a line"
    for at, is_seen in odd_places(name):
        how = "looks like another letter" if is_seen else "is not seen"
        return f"it holds {_named(name[at])}, which {how}"
    return None


def authors_of(names: Iterable[str | None]) -> tuple[str, ...]:
    """The names among these, each once."""
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _named(letter: str) -> str:
    return f"U+{ord(letter):04X} ({unicodedata.name(letter, 'a control character')})"

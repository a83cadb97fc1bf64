"""The changes of a person to a value: place by place, and for a long text word by word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

MOST_COMPARED = 250_000
"""The maximum product of the numbers of words in the old and the new text, without their common
beginning and end. Above it the texts are not compared: that would take a second."""
ALIKE = 0.3
"""The minimum share of two texts that is the same. Below it, both texts are shown whole."""
_WORDS = re.compile(r"\w+\s*|[^\w\s]\s*|\s+")
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text."""

    text: str
    is_changed: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs, is new, or is left out."""

    place: str
    """The place of the value, such as `lines 2 › price`; empty for the whole value."""
    kind: Literal["changed", "added", "removed"]
    old: tuple[Piece, ...] = ()
    new: tuple[Piece, ...] = ()


def changes(old: Any, new: Any) -> list[Change]:
    """The differences of two values, in the order of their places."""
    return list(_changes(old, new, ""))


def _changes(old: Any, new: Any, place: str) -> Iterator[Change]:
    if old is _MISSING:
        yield Change(place, "added", new=_whole(new))
    elif new is _MISSING:
        yield Change(place, "removed", old=_whole(old))
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{place} › {name}" if place else str(name)
            yield from _changes(old.get(name, _MISSING), new.get(name, _MISSING), inner)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _of_lists(old, new, place)
    elif _said(old) != _said(new):
        if isinstance(old, str) and isinstance(new, str):
            yield Change(place, "changed", *words(old, new))
        else:  # JSON distinguishes the text "1" from the number 1
            yield Change(place, "changed", _as_json(old), _as_json(new))


def _of_lists(old: Sequence[Any], new: Sequence[Any], place: str) -> Iterator[Change]:
    """The differences of two lists by items. Added and removed items do not shift other items."""
    before, after = [_said(each) for each in old], [_said(each) for each in new]
    if len(before) * len(after) > MOST_COMPARED:
        if before != after:
            yield Change(place, "changed", _whole(old), _whole(new))
        return
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        for n in range(max(i_end - i, j_end - j)):
            has_old, has_new = i + n < i_end, j + n < j_end
            number = (j if has_new else i) + n + 1
            yield from _changes(
                old[i + n] if has_old else _MISSING,
                new[j + n] if has_new else _MISSING,
                f"{place} {number}".strip(),
            )


def words(old: str, new: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Two texts in pieces: a piece that is in only one of them is changed."""
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    first, last = _same(before, after)
    middle = before[first : len(before) - last], after[first : len(after) - last]
    same = "".join(before[:first]), "".join(before[len(before) - last :])
    parts = [(True, "".join(middle[0]), "".join(middle[1]))]
    if len(middle[0]) * len(middle[1]) <= MOST_COMPARED:
        opcodes = SequenceMatcher(None, *middle, autojunk=False).get_opcodes()
        parts = [
            (tag != "equal", "".join(middle[0][i:i_end]), "".join(middle[1][j:j_end]))
            for tag, i, i_end, j, j_end in opcodes
        ]
    kept = sum(len(text) for text in same)
    kept += sum(len(text) for is_changed, text, _ in parts if not is_changed)
    if 2 * kept < ALIKE * (len(old) + len(new)):
        return _pieces([(True, old)]), _pieces([(True, new)])
    parts = [piece for each in parts for piece in _without_end(*each)]
    ends = (False, same[0]), (False, same[1])
    left = [(is_changed, text) for is_changed, text, _ in parts]
    right = [(is_changed, text) for is_changed, _, text in parts]
    return _pieces([ends[0], *left, ends[1]]), _pieces([ends[0], *right, ends[1]])


def _same(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """The numbers of common words at the beginning, and of the rest at the end."""
    most = min(len(before), len(after))
    first = next((n for n in range(most) if before[n] != after[n]), most)
    most -= first
    last = next((n for n in range(most) if before[-n - 1] != after[-n - 1]), most)
    return first, last


def _without_end(is_changed: bool, old: str, new: str) -> list[tuple[bool, str, str]]:
    """A part, and separately the white space with which both of its texts end, which is
    unchanged.
    """
    length = min(len(old) - len(old.rstrip()), len(new) - len(new.rstrip()))
    if not is_changed or not length or old[-length:] != new[-length:]:
        return [(is_changed, old, new)]
    end = old[-length:]
    return [(True, old[:-length], new[:-length]), (False, end, end)]


def _pieces(parts: Sequence[tuple[bool, str]]) -> tuple[Piece, ...]:
    return tuple(Piece(text, is_changed) for is_changed, text in parts if text)


def _whole(value: Any) -> tuple[Piece, ...]:
    return _pieces([(True, value)]) if isinstance(value, str) else _as_json(value)


def _as_json(value: Any) -> tuple[Piece, ...]:
    return (Piece(json.dumps(value, indent=2, ensure_ascii=False), is_changed=True),)


def _said(value: Any) -> str:
    """A value as text, which distinguishes the values that JSON distinguishes: 1, 1.0 and true."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)

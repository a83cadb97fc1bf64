"""Text of others, shown so that nothing in it is invisible or looks like something else."""

from __future__ import annotations

import unicodedata

from markupsafe import Markup, escape

from understudy._base.confusables import odd_places
from understudy._base.json_values import digest


def marked(text: str) -> Markup:
    """The text, escaped, with a visible mark in the place of what would not be seen as it is.

    Control and format characters (among them characters that turn the direction of text), unusual
    spaces, and letters that look like Latin letters beside Latin letters.
    """
    parts: list[str] = []
    start = 0
    for place, is_seen in odd_places(text):
        parts.append(escape(text[start:place]))
        parts.append(_mark(text[place], seen=is_seen))
        start = place + 1
    parts.append(escape(text[start:]))
    return Markup("".join(parts))  # noqa: S704  # each part is escaped, or made here


def plainly(text: str) -> str:
    """The text for an attribute or the label of a field: the same, by `[U+202E]`."""
    parts: list[str] = []
    start = 0
    for place, _ in odd_places(text):
        parts.append(f"{text[start:place]}[U+{ord(text[place]):04X}]")
        start = place + 1
    return "".join((*parts, text[start:]))


def _mark(character: str, *, seen: bool) -> str:
    code = f"U+{ord(character):04X}"
    name = escape(unicodedata.name(character, "control character"))
    shown = f"{escape(character)}" if seen else ""
    return f'<span class="odd" title="{code} {name}">{shown}<b>{code}</b></span>'


def hexed(text: str) -> str:
    """A text as a part of an element's id."""
    return digest(text)[:16]

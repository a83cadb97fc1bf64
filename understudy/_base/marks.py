"""Text of others with a mark in the place of what would not be seen as it is."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import partial

from understudy._base.confusables import odd_places


def marked_by(escape: Callable[[str], str], text: str) -> str:
    """The text as HTML: escaped, and with marks.

    Marked are control and format characters (among them characters that turn the direction of
    text), unusual spaces, and letters that look like Latin letters beside Latin letters.
    """
    return _with_marks(text, escape, partial(_mark, escape))


def plainly(text: str) -> str:
    """The text for an attribute or a message, where no HTML can be: marks such as `[U+202E]`."""
    return _with_marks(text, str, lambda character, _: f"[{_code(character)}]")


def _with_marks(text: str, escape: Callable[[str], str], mark: Callable[[str, bool], str]) -> str:
    parts: list[str] = []
    start = 0
    for place, is_seen in odd_places(text):
        parts += (escape(text[start:place]), mark(text[place], is_seen))
        start = place + 1
    return "".join((*parts, escape(text[start:])))


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def _mark(escape: Callable[[str], str], character: str, is_seen: bool) -> str:
    code = _code(character)
    name = escape(unicodedata.name(character, "control character"))
    shown = escape(character) if is_seen else ""
    return f'<span class="odd" title="{code} {name}">{shown}<b>{code}</b></span>'

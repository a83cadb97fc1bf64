"""Text of others, shown so that nothing in it is invisible or looks like something else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from markupsafe import Markup, escape

_PLAIN = re.compile(r"[\t\n\x20-\x7e]*\Z")
_WORD = re.compile(r"\w+")
_MIXED = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN")
"""Scripts with letters that look like Latin ones."""
_LIKE_LATIN = frozenset("аеіјорсухһѕԁԛԝӏАВЕЅІЈКМНОРСТУХҮԌԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧονυιαγρ")
"""Those that look the same in most fonts: a word of these alone is taken for a Latin one."""
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u180b\u180c\u180d\u17b4\u17b5")
"""Letters and marks that show nothing."""


def marked(text: str) -> Markup:
    """The text, escaped, with a visible mark in the place of what would not be seen as it is.

    Control and format characters (those that turn the direction of text among them), unusual
    spaces, and letters that look like Latin ones beside Latin ones.
    """
    if _PLAIN.match(text):
        return escape(text)
    odd = set(_look_alikes(text))
    parts: list[str] = []
    start = 0
    for index, character in enumerate(text):
        if character <= "~" and (character >= " " or character in "\t\n"):
            continue
        is_odd = index in odd
        if is_odd or _is_hidden(character, text[index - 1] if index else ""):
            parts.append(str(escape(text[start:index])))
            parts.append(_mark(character, seen=is_odd))
            start = index + 1
    parts.append(str(escape(text[start:])))
    return Markup("".join(parts))  # noqa: S704  # each part is escaped, or made here


def plainly(text: str) -> str:
    """The text for an attribute or a form field's label: the same, by `[U+202E]`."""
    if _PLAIN.match(text):
        return text
    odd = set(_look_alikes(text))
    return "".join(
        f"[U+{ord(character):04X}]"
        if index in odd or _is_hidden(character, text[index - 1] if index else "")
        else character
        for index, character in enumerate(text)
    )


@lru_cache(maxsize=4096)
def _kind(character: str) -> str:
    return unicodedata.category(character)


def _is_hidden(character: str, before: str) -> bool:
    if character in "\t\n":
        return False
    if "\ufe00" <= character <= "\ufe0f":  # how an emoji looks is chosen by one; elsewhere it hides
        return not before or _kind(before) not in ("So", "Sm", "Sk", "Po")
    kind = _kind(character)
    if kind[0] == "C" or kind in ("Zl", "Zp"):
        return True
    return (kind == "Zs" and character != " ") or character in _BLANK


def _look_alikes(text: str) -> Iterator[int]:
    """Where letters stand that are easily taken for Latin ones."""
    has_latin = any(character.isascii() and character.isalpha() for character in text)
    for word in _WORD.finditer(text):
        letters = [(word.start() + n, letter) for n, letter in enumerate(word[0])]
        foreign = [(at, letter) for at, letter in letters if not letter.isascii()]
        if not foreign:
            continue
        for at, letter in foreign:
            plain = unicodedata.normalize("NFKC", letter)
            if _kind(letter)[0] == "L" and plain != letter and plain.isascii():
                yield at  # fullwidth and mathematical letters
        scripts = {_script(letter) for _, letter in letters if letter.isalpha()}
        others = scripts & set(_MIXED)
        if others and "LATIN" in scripts:
            yield from (at for at, letter in foreign if _script(letter) in _MIXED)
        elif (
            others
            and has_latin
            and all(letter in _LIKE_LATIN for _, letter in letters if letter.isalpha())
        ):
            yield from (at for at, _ in foreign)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


def _mark(character: str, *, seen: bool) -> str:
    code = f"U+{ord(character):04X}"
    name = escape(unicodedata.name(character, "control character"))
    shown = f"{escape(character)}" if seen else ""
    return f'<span class="odd" title="{code} {name}">{shown}<b>{code}</b></span>'

"""Where a text has letters that are not seen, or look like others."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_PLAIN = re.compile(r"[\t\n\x20-\x7e]*\Z")
_WORD = re.compile(r"\w+")
_MIXED = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN")
"""Scripts with letters that look like Latin ones."""
_LATIN = dict(
    zip(
        "аеіјорсухһѕԁԛԝӏАВЕЅІЈКМНОРСТУХҮԌԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧονυιαγρ",
        "aeijopcyxhsdqwlABESIJKMHOPCTYXYGWABEZHIKMNOPTYXovuiayp",
        strict=True,
    )
)
"""Letters of other scripts that look like a Latin letter in most fonts, each with that letter."""
_LIKE_LATIN = frozenset(_LATIN)
"""A word of these alone is taken for a Latin one."""
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u180b\u180c\u180d\u180f\u17b4\u17b5")
"""Letters and marks that show nothing."""
_LOOKS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_FORMS = frozenset(map(chr, range(0xE0100, 0xE01F0)))
"""Say which form of the Chinese character before it is meant."""
_SYMBOLS = ("So", "Sm", "Sk", "Po")


def odd_places(text: str) -> list[tuple[int, bool]]:
    """Where something is marked, in order; and whether it is seen, but as something else."""
    if _PLAIN.match(text):
        return []
    # A text of a million characters has few different ones.
    others = {character for character in set(text) if not _PLAIN.match(character)}
    found: dict[int, bool] = {}
    hidden = "".join(character for character in others if _is_hidden(character))
    if hidden:
        for match in re.finditer(f"[{re.escape(hidden)}]", text):
            place = match.start()
            # It says how the emoji before it looks, or the letter; elsewhere it hides.
            if not (place and _is_look(match[0], text[place - 1])):
                found[place] = False
    if any(_script(character) in _MIXED or _is_dressed(character) for character in others):
        found.update(dict.fromkeys(_look_alikes(text), True))
    return sorted(found.items())


def look_of(text: str) -> str:
    """The same text for all that look the same: in Latin letters, where its own look like those."""
    plain = unicodedata.normalize("NFKC", text)
    return "".join(_LATIN.get(letter, letter) for letter in plain)


@lru_cache(maxsize=4096)
def _kind(character: str) -> str:
    return unicodedata.category(character)


def _is_hidden(character: str) -> bool:
    kind = _kind(character)
    if kind[0] == "C" or kind in ("Zl", "Zp", "Zs"):
        return True
    return character in _BLANK or character in _LOOKS or character in _FORMS


def _is_look(character: str, before: str) -> bool:
    """Whether it says how what is before it looks."""
    if character in _FORMS:
        return _script(before) == "CJK"
    return character in _LOOKS and _kind(before) in _SYMBOLS


def _is_dressed(letter: str) -> bool:
    """Whether it is a Latin letter in another form: fullwidth, mathematical."""
    plain = unicodedata.normalize("NFKC", letter)
    return _kind(letter)[0] == "L" and plain != letter and plain.isascii()


def _look_alikes(text: str) -> Iterator[int]:
    """Where letters stand that are easily taken for Latin ones."""
    has_latin = any(character.isascii() and character.isalpha() for character in text)
    for word in _WORD.finditer(text):
        letters = [(word.start() + n, letter) for n, letter in enumerate(word[0])]
        foreign = [(at, letter) for at, letter in letters if not letter.isascii()]
        if not foreign:
            continue
        yield from (at for at, letter in foreign if _is_dressed(letter))
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

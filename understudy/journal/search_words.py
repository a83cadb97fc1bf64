"""The words of a text, and what a person looks for, for a search that every store answers alike.

No database divides text into words here. Each has its own rules for it, and the rules of PostgreSQL
depend on the language of the server. So Python does it, and a database keeps what comes of it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from understudy._base.json_values import shown
from understudy.errors import UsageError

Where = Literal["requests", "conversations"]
"""The place of a search: what people are asked now, or what was said."""

MOST_CHARACTERS = 50_000
"""The characters of a text of which the words are kept."""
LONGEST_WORD = 64
"""The characters of a word that count: of a longer word the rest is not compared."""
LONGEST_QUERY = 500
MOST_WORDS = 20
"""The words that a person may look for at once."""
SNIPPET = 160
"""The characters of a snippet."""

# Marks of letters, as of an "é" that is written as two characters, belong to the word.
_RUN = re.compile("[^\\W_]+(?:[\u0300-\u036f]+[^\\W_]*)*")
_WORD = re.compile(r"[^\W_]+")
_ASKED = re.compile(f"({_RUN.pattern})(\\*?)")
# Letters with a stroke, and ligatures, which Unicode does not take apart.
_STROKES = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe"}
)
_MARKS: Mapping[Where, str] = {"requests": "\ue000r", "conversations": "\ue000c"}
"""A word that no text has, for each place: so an index finds what is there alone."""


def words_of(text: str) -> set[str]:
    """The words of a text, as an index keeps them."""
    return {word for run in _RUN.finditer(text, 0, MOST_CHARACTERS) for word in _folded(run[0])}


def _folded(run: str) -> list[str]:
    """The words of a run of letters and digits, without case and without accents."""
    if run.isascii():
        return [run.lower()[:LONGEST_WORD]]
    plain = unicodedata.normalize("NFKD", run.casefold().translate(_STROKES))
    kept = "".join(each for each in plain if not unicodedata.combining(each))
    return [word[:LONGEST_WORD] for word in _WORD.findall(kept.casefold())]


def kept_words(text: str, where: Where) -> set[str]:
    """As `words_of`, with the word of the place."""
    return {*words_of(text), _MARKS[where]}


class Wanted(NamedTuple):
    """A word that is looked for."""

    word: str
    is_prefix: bool


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What is looked for: texts that have each of these words."""

    words: tuple[Wanted, ...]
    where: Where | None = None

    def matches(self, words: Collection[str]) -> bool:
        """Whether a text with these words is meant."""
        return all(
            any(word.startswith(wanted) for word in words) if is_prefix else wanted in words
            for wanted, is_prefix in self.words
        )

    @property
    def kept(self) -> tuple[Wanted, ...]:
        """The words as an index is asked for them, with the word of the place."""
        if self.where is None:
            return self.words
        return (*self.words, Wanted(_MARKS[self.where], False))

    def snippet(self, text: str) -> Snippet:
        """The part of a text around the first of the words, with the places of the words."""
        found = [run.span() for run in _RUN.finditer(text) if self._wants(run[0])]
        first = found[0][0] if found else 0
        start = max(0, min(first - SNIPPET // 4, len(text) - SNIPPET))
        if start:  # at a word, if one begins soon
            blank = text.find(" ", start, first)
            start = blank + 1 if blank >= 0 else start
        end = min(len(text), start + SNIPPET)
        before, behind = ("…" if start else ""), ("…" if end < len(text) else "")
        shift = len(before) - start
        marks = [(at + shift, min(to, end) + shift) for at, to in found if start <= at < end]
        part = "".join(" " if each.isspace() else each for each in text[start:end])
        return Snippet(f"{before}{part}{behind}", tuple(marks))

    def _wants(self, run: str) -> bool:
        return any(
            word.startswith(wanted) if is_prefix else word == wanted
            for word in _folded(run)
            for wanted, is_prefix in self.words
        )


class Snippet(NamedTuple):
    """A part of a text in which something was found."""

    text: str
    marks: tuple[tuple[int, int], ...]
    """The places of the words that were looked for: from this character up to that character."""


def query_of(text: object, where: object = None) -> SearchQuery:
    """What a person looks for, by what they have typed.

    All but letters, digits, and a `*` behind a word divides words, whatever it means elsewhere.

    Raises:
        UsageError: if it is no text, has no word or too many of them, or the place is unknown.

    """
    if not isinstance(text, str):
        raise UsageError(f"search(text) takes a text, got {shown(text)}")
    if where is not None and where not in _MARKS:
        there = " or ".join(map(repr, _MARKS))
        raise UsageError(f"search(where=...) must be {there}, got {shown(where)}")
    if len(text) > LONGEST_QUERY:
        raise UsageError(
            f"search(text) takes at most {LONGEST_QUERY} characters, got {len(text):,}: "
            "look for fewer words"
        )
    words: dict[Wanted, None] = {}
    for run in _ASKED.finditer(text):
        *whole, last = _folded(run[1]) or [""]
        words |= dict.fromkeys(Wanted(each, False) for each in whole)
        if last:
            words[Wanted(last, bool(run[2]))] = None
    if not words:
        raise UsageError(
            f"search(text) must have a word of letters or digits to look for, got {shown(text)}"
        )
    if len(words) > MOST_WORDS:
        raise UsageError(f"search(text) takes at most {MOST_WORDS} words, got {len(words)}")
    return SearchQuery(tuple(words), where)  # type: ignore[arg-type]  # it is in the table above


def flat(value: Any) -> str:
    """A JSON value as one text, with the names of its parts: what is searched, and shown."""
    return " ".join(_parts(value)) if isinstance(value, (str, dict, list, tuple)) else _plain(value)


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if each not in (None, "", [], {}):
                yield f"{name}: {flat(each)}"
    elif isinstance(value, (list, tuple)):
        yield ", ".join(flat(each) for each in value)
    elif isinstance(value, str) and value[:1] in ("{", "["):
        yield from _parts_of_json(value)
    else:
        yield _plain(value)


def _parts_of_json(text: str) -> Iterator[str]:
    """The parts of a text that may be the JSON of an object, as the result of a tool is."""
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        inner = None
    if isinstance(inner, (dict, list)):
        yield from _parts(inner)
    else:
        yield text


def _plain(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)

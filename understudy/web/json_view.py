"""Values as JSON for people: coloured, and folded if the JSON is long."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from understudy.web.marks import marked

MOST_COLOURED = 200_000
"""The maximum characters of coloured JSON: more elements would slow the browser down."""
MOST_FOLDED = 2_000
"""The maximum number of values in a folded value."""
DEEPEST = 24
OPEN = 12
"""The maximum lines of a part that is open at first."""
_PARTS = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<key>(?=\s*:))?|(?P<number>-?\d[\d.eE+-]*)'
    r"|(?P<word>true|false|null|NaN|-?Infinity)"
)


def plain_json(value: Any) -> str:
    """A value as JSON on several lines."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=repr)


def coloured(value: Any) -> Markup:
    """A value as marked JSON on several lines, its parts in elements that the style colours."""
    text = plain_json(value)
    if len(text) > MOST_COLOURED:
        return marked(text)
    parts: list[Markup] = []
    end = 0
    for found in _PARTS.finditer(text):
        parts.append(marked(text[end : found.start()]))
        end = found.end()
        word = found.lastgroup
        assert word is not None, "one of the groups matched"
        parts.append(_span(word, found.group()))
    parts.append(marked(text[end:]))
    return Markup("").join(parts)


def unpacked(value: Any) -> Any:
    """The object or list whose JSON a text is; any other value unchanged.

    The text is unpacked only if writing it as JSON gives the same text again. So a text with a
    repeated name, or with a number in an unusual form, stays as it was written.
    """
    if not isinstance(value, str) or value[:1] not in ("{", "[") or len(value) > MOST_COLOURED:
        return value
    try:
        found = json.loads(value)
        forms = [
            json.dumps(found, ensure_ascii=ascii, separators=separators)
            for ascii in (False, True)
            for separators in ((",", ":"), (", ", ": "))
        ]
    except (ValueError, RecursionError):
        return value
    return found if value in (*forms, plain_json(found)) else value


def folded(value: Any) -> Markup:
    """A value with parts that fold. It needs no script; a large or deep one is only coloured."""
    if not isinstance(value, (Mapping, list, tuple)) or not value or _count(value) > MOST_FOLDED:
        return Markup("<pre>{}</pre>").format(coloured(value))
    return Markup('<div class="json">{}</div>').format(_part(value, Markup(""), 0))


def _part(value: Any, before: Markup, depth: int) -> Markup:
    """A value after its name: parts that fold, or a single value."""
    is_object = isinstance(value, Mapping)
    if not (is_object or isinstance(value, (list, tuple))) or not value:
        return Markup("{}{}").format(before, _single(value))
    if depth >= DEEPEST:
        return Markup("{}<pre>{}</pre>").format(before, coloured(value))
    opening, closing = "{}" if is_object else "[]"
    named = value.items() if is_object else ((None, each) for each in value)
    inner = Markup("").join(
        Markup("<li>{}</li>").format(
            _part(each, Markup("") if name is None else _name(name), depth + 1)
        )
        for name, each in named
    )
    is_open = depth == 0 or plain_json(value).count("\n") <= OPEN
    return Markup(
        '<details{}><summary>{}{} <span class="faint">{} {}</span></summary><ul>{}</ul>{}</details>'
    ).format(
        Markup(" open") if is_open else "",
        before,
        opening,
        len(value),
        closing,
        inner,
        closing,
    )


def _name(name: Any) -> Markup:
    return Markup("{}: ").format(_span("key", json.dumps(str(name), ensure_ascii=False)))


def _single(value: Any) -> Markup:
    """A text of several lines unchanged; any other value as JSON."""
    if isinstance(value, str) and "\n" in value:
        return Markup('<span class="text json-text">{}</span>').format(marked(value))
    return coloured(value)


def _span(word: str, text: str) -> Markup:
    return Markup('<span class="json-{}">{}</span>').format(word, marked(text))


def _count(value: Any, depth: int = 0) -> int:
    """The number of values inside, as far as they are folded."""
    if depth >= DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        return 1
    parts = value.values() if isinstance(value, Mapping) else value
    return 1 + sum(_count(each, depth + 1) for each in parts)

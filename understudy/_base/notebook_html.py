"""HTML by which a notebook shows outcomes, requests and states.

It has no script and no style sheet, inherits the colours of its page, and can be read without its
styles: a notebook that is not trusted drops them. Each text is escaped and marked as on the pages
for people, unless it is `Html`, which is made here alone.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from understudy._base.json_values import jsonable, storable_text
from understudy._base.marks import marked_by

QUIET, DONE, WAITS, ENDED = "#8a8f98", "#2f9e62", "#c98a1b", "#d1495b"
"""The colours of the edge: each is seen on a light and on a dark page."""
LINES = 40
"""A value with more lines is folded."""

SHORT = 80
"""The characters of JSON that stands on one line."""


class Html(str):
    """A text that is HTML already, so it is not escaped again."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value of anybody: a text as it is, anything else as JSON."""
    return Html(marked_by(html.escape, as_text(value)))


def as_text(value: object) -> str:
    """The same before it is escaped."""
    if isinstance(value, str):
        return storable_text(value)
    plain = jsonable(value)
    line = json.dumps(plain, ensure_ascii=False)
    return line if len(line) <= SHORT else json.dumps(plain, indent=2, ensure_ascii=False)


def code(value: object) -> Html:
    """A name or an id."""
    return Html(f"<code>{text(value)}</code>")


def words(value: object) -> Html:
    """A text of several lines, as it was written; a long one is folded, and nothing is cut."""
    style = "white-space:pre-wrap;overflow-wrap:anywhere"
    written = Html(f'<div style="{style}">{text(value)}</div>')
    count = len(as_text(value).splitlines())
    return written if count <= LINES else folded(f"{count} lines", written)


def folded(summary: str, inside: Html) -> Html:
    """HTML that is closed at first: the reader opens it by its summary."""
    return Html(f"<details><summary>{text(summary)}</summary>{inside}</details>")


def quiet(*parts: object) -> Html:
    """A line of facts, smaller than the rest; empty ones are left out."""
    line = " · ".join(_html(part) for part in parts if part)
    return Html(f'<div style="opacity:.75;font-size:.9em">{line}</div>' if line else "")


def warning(message: str) -> Html:
    """A message in bold letters beside a coloured edge."""
    edge = f"border-left:3px solid {ENDED};padding-left:.6em;margin:.3em 0"
    return Html(f'<div style="{edge}"><strong>{text(message)}</strong></div>')


def shown(value: object) -> Html:
    """Shows what a tool displays of its call: a mapping as a table, anything else as text."""
    return table(value) if isinstance(value, Mapping) else words(value)


def table(rows: Mapping[str, Any]) -> Html:
    """Names and values; a value may be `Html`."""
    cell = "text-align:left;vertical-align:top;padding:0 .8em 0 0"
    if not rows:
        return Html()
    head = f"{cell};font-weight:normal;opacity:.75"
    lines = (
        f'<tr><th style="{head}">{text(name)}</th><td style="{cell}">'
        f"{value if isinstance(value, Html) else words(value)}</td></tr>"
        for name, value in rows.items()
    )
    style = "margin:.2em 0;border:0;font-size:inherit;color:inherit"
    return Html(f'<table style="{style}"><tbody>{"".join(lines)}</tbody></table>')


def card(head: str, about: object, parts: Iterable[Html], *, colour: str = QUIET) -> Html:
    """The whole, with a coloured edge."""
    edge = f"border-left:4px solid {colour};padding:.2em 0 .2em .9em;margin:.4em 0;line-height:1.5"
    first = f"<div><strong>{text(head)}</strong> {_html(about)}</div>"
    return Html(f'<div style="{edge}">{first}{"".join(parts)}</div>')


def at(time: datetime) -> str:
    """A time, with its zone."""
    return f"{time:%Y-%m-%d %H:%M:%S %Z}".strip()


def _html(value: object) -> Html:
    return value if isinstance(value, Html) else text(value)

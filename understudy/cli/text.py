"""Text for a terminal: texts of agents and users cannot move its cursor, or hide themselves."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from understudy._base.confusables import odd_places

_KEPT = "\n\t"


def clean(text: object, *, lines: bool = True) -> str:
    """The text, with control and format characters as escapes, such as ESC and direction marks.

    Args:
        text: any object; its `str` is used.
        lines: keep line ends and tabs.

    """
    given = text if isinstance(text, str) else str(text)
    if given.isprintable():
        return given
    kept = _KEPT if lines else ""
    return "".join(
        char
        if char.isprintable() or char in kept
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in given
    )


def marked_letters(text: str) -> str:
    """The text, with the code after each letter that looks like another letter: `[U+0440]`."""
    parts: list[str] = []
    start = 0
    for place, is_seen in odd_places(text):
        if is_seen:
            parts.append(f"{text[start : place + 1]}[U+{ord(text[place]):04X}]")
            start = place + 1
    return "".join((*parts, text[start:]))


def line(text: object, width: int | None = None) -> str:
    """The text as one line, cut to a width."""
    found = " ".join(clean(text).split())
    return found if width is None or len(found) <= width else found[: max(width - 1, 0)] + "…"


def as_json(data: Any, *, indent: int | None = None) -> str:
    """JSON in ASCII, so that no character has a meaning for a terminal."""
    return json.dumps(data, indent=indent, default=str)


def shown_json(data: Any, *, indent: int | None = None) -> str:
    """JSON for people: letters as they are, everything else as escapes."""
    return clean(json.dumps(data, indent=indent, ensure_ascii=False, default=str))


def utc(text: str | datetime | None) -> str | None:
    """A time as ISO 8601 in UTC."""
    if text is None:
        return None
    time = datetime.fromisoformat(text) if isinstance(text, str) else text
    return time.astimezone(timezone.utc).isoformat() if time.tzinfo is not None else str(text)


def ago(text: str | None, now: datetime) -> str:
    """The time since then, in short; for a future time, the time until then."""
    if text is None:
        return "-"
    seconds = (now - datetime.fromisoformat(text)).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return span(seconds) if seconds >= 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A number of seconds, in short."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "0 s"


def some(names: list[str], *, of: int | None = None) -> str:
    """The first names, and the number of further ones, of a total (by default these names)."""
    more = (len(names) if of is None else of) - len(names[:5])
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")

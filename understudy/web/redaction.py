"""What a host does not want to be seen on its pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Path = tuple[str | int, ...]
Redact = Callable[[Path, Any], Any]
"""Gets where a value stands in an answer, by names and numbers of items, and the value; returns
what is shown in its place: the same object, where it may be seen."""


def redacted(redact: Redact, value: Any, path: Path = ()) -> Any:
    """The data with everything replaced that is to be hidden.

    A text that is the JSON of an object, as a model writes the arguments of a call, is looked
    through too.
    """
    shown = redact(path, value)
    if shown is not value:
        return shown
    if isinstance(value, Mapping):
        return {name: redacted(redact, each, (*path, name)) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(redact, each, (*path, at)) for at, each in enumerate(value)]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return value
        found = redacted(redact, inner, path) if isinstance(inner, (dict, list)) else inner
        return value if found == inner else json.dumps(found, ensure_ascii=False)
    return value

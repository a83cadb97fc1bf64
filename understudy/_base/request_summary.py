"""What a request is about, in a line: for lists in the browser and in a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SUMMARY = 160
"""Characters of the line; who decides is shown everything."""


def summary(request: Mapping[str, Any]) -> str:
    """What a request, as plain data, is about."""
    display, payload = request.get("display"), request.get("payload")
    if isinstance(display, str) and display.strip():
        text = display
    elif request["kind"] == "halt" or (request["kind"] == "interrupt" and payload is not None):
        text = one_line(payload)
    else:
        given = (
            (name, value)
            for name, value in request["arguments"].items()
            if value not in ("", None, [], {})
        )
        text = ", ".join(f"{name}={one_line(value)}" for name, value in given)
    text = " ".join(text[: 4 * SUMMARY].split())
    return text if len(text) <= SUMMARY else text[: SUMMARY - 1] + "…"


def one_line(value: Any) -> str:
    """A text as it is, any other value as JSON."""
    if isinstance(value, str):
        return value[: 4 * SUMMARY]
    return json.dumps(value, ensure_ascii=False, default=str)

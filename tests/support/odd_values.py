"""What a tool may emit, and JSON has no form for; and JSON as a browser reads it."""

from __future__ import annotations

import json
import math
from typing import Any

from understudy import ToolContext, tool

LAST = "the last one"


class Half:
    """Shows itself as text that UTF-8 cannot encode."""

    def __repr__(self) -> str:
        return "half \ud800"


def odd_values() -> list[Any]:
    """Values that cannot be written as JSON."""
    endless: list[Any] = []
    endless.append(endless)
    halves = [Half(), {"left": Half()}, "half \ud800"]
    return [{"left": math.nan}, b"\xff", {"raw": b"\xff"}, endless, *halves, 10**5000]


@tool
async def emit_odd_values(ctx: ToolContext) -> str:
    """Emit each of them, and then `LAST`."""
    for value in (*odd_values(), LAST):
        ctx.emit(value)
    return "emitted"


def strict_json(text: str) -> Any:
    """The data of JSON, as a browser reads it: there is no NaN in it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)

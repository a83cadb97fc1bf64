"""Answers in JSON that may hold a whole conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from starlette.responses import Response

from understudy._base.pieces import ITEMS

_dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


async def json_answer(data: Any, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with this data, whose keys are all texts. It is written in a thread."""
    body = await asyncio.to_thread(lambda: "".join(_written(data)).encode())
    return Response(body, headers=headers, media_type="application/json")


def _written(data: Any) -> Iterator[str]:
    """The JSON in pieces: one call of `json` for a conversation would keep the interpreter."""
    if isinstance(data, dict):
        for number, (key, value) in enumerate(data.items()):
            yield f"{',' if number else '{'}{_dumps(key)}:"
            yield from _written(value)
        yield "}" if data else "{}"
    elif isinstance(data, list) and len(data) > ITEMS:
        for start in range(0, len(data), ITEMS):
            yield "," if start else "["
            yield _dumps(data[start : start + ITEMS])[1:-1]
        yield "]"
    else:
        yield _dumps(data)

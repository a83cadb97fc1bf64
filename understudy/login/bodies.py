"""The body of a request, within bounds."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from understudy.login.problems import refused

MAX_BODY = 8 * 1024 * 1024
"""The maximum bytes of a request: a form of arguments of 1 MB, encoded, fits."""
LARGE = 256 * 1024
"""Bytes above which a body is parsed in a thread: agents continue meanwhile."""
MAX_PARTS = 100_000
"""The maximum number of objects, lists and items of a body."""
_PART = re.compile(r'[{\[,]|"[^"\\]*(?:\\.[^"\\]*)*"')
"""The characters that begin a value; or a text, in which no value begins."""
MAX_ITEMS = 10_000
"""The maximum number of items of the outermost list or object in a body."""
SECONDS = 60.0
"""The maximum seconds in which a body has to come."""
B = TypeVar("B", bound=BaseModel)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


async def read_body(request: Request) -> bytes:
    """The body.

    Raises:
        Refused: if it has more than `MAX_BODY` bytes, or does not come in `SECONDS`.

    """
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > MAX_BODY:
        raise _too_large()
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY:
                    raise _too_large()
                chunks.append(chunk)
    except TimeoutError as error:
        raise refused(408, "TooSlow", f"The body did not come in {SECONDS:.0f} seconds.") from error
    return b"".join(chunks)


async def read_json(request: Request, *, most: int = MAX_PARTS) -> Any:
    """The body as JSON. A page of another site could send a form, or plain text.

    Args:
        request: the request with the body.
        most: the maximum number of objects, lists and items: to read millions of them takes
            seconds, in which the loop does nothing else.

    Raises:
        Refused: if it is no JSON, is declared as something else, or has more parts.

    """
    if media_type(request) != "application/json":
        raise refused(415, "NotJson", "Send JSON, with `Content-Type: application/json`.")
    body = await read_body(request)
    if len(body) > LARGE:
        return await asyncio.to_thread(_parsed, body, most)
    return _parsed(body, most)


def _parsed(body: bytes, most: int) -> Any:
    try:
        text = body.decode()
        if _has_more_parts(text, most):
            raise refused(413, "TooLarge", f"At most {most:,} values can be sent at once.")
        found = json.loads(text, parse_constant=_no_constant)
        if _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except UnicodeDecodeError as error:
        raise refused(400, "NotJson", "The body is no JSON: it is not in UTF-8.") from error
    except UnicodeEncodeError as error:
        raise refused(400, "NotJson", "The body holds half of a surrogate pair.") from error
    except (ValueError, RecursionError) as error:
        raise refused(400, "NotJson", f"The body is no JSON: {str(error)[:200]}") from error


def checked_as(model: type[B], body: Any) -> B:
    """The body as this model.

    Raises:
        Refused: if it does not fit, with the place and the reason of the first fault.

    """
    for name, items in body.items() if isinstance(body, dict) else ():
        # The size is checked before validation, which takes seconds and reports each wrong item.
        if isinstance(items, (dict, list)) and len(items) > MAX_ITEMS:
            raise refused(413, "TooLarge", f"{name}: at most {MAX_ITEMS:,} can be sent at once.")
    try:
        return model.model_validate(body)
    except RecursionError as error:
        raise refused(400, "UsageError", "The body is nested too deep.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise refused(400, "UsageError", f"{where}: {first['msg']}") from error


def _has_more_parts(text: str, most: int) -> bool:
    if sum(map(text.count, "{[,")) <= most:
        return False
    parts = (each for each in _PART.finditer(text) if each[0][0] != '"')
    return next(islice(parts, most, None), None) is not None


def media_type(request: Request) -> str:
    """The media type that the request declares for its body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large() -> Exception:
    return refused(413, "TooLarge", f"At most {MAX_BODY // 1024 // 1024} MB can be sent.")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")

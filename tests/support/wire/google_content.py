"""Google's generateContent and streamGenerateContent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.wire.script import HttpError, Kind, Reply, WireCall, WireEvent

FINISH = {
    "stop": "STOP",
    "tool_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "error": "MALFORMED_FUNCTION_CALL",
}
ERRORS = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"}


def takes(path: str) -> bool:
    return "enerateContent" in path


def streams(path: str, body: Mapping[str, Any]) -> bool:
    return ":streamGenerateContent" in path


def error(given: HttpError) -> dict[str, Any]:
    status = ERRORS.get(given.status, "UNKNOWN")
    return {"error": {"code": given.status, "message": given.message, "status": status}}


def whole(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    if reply.refusal is not None:
        return {**_head(number, path, reply), **_blocked(reply)}
    parts = [part for _, part in _parts(reply)]
    return {**_head(number, path, reply), **_last_candidate(parts, reply)}


def events(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> Iterator[WireEvent]:
    """A call comes in one piece. The last piece of a reply says why it ended."""
    head = _head(number, path, reply)
    if reply.refusal is not None:
        yield WireEvent("end", {**head, **_blocked(reply)})
        return
    for kind, part in _parts(reply, pieces=True):
        yield WireEvent(kind, {**head, **_candidate([part], None)})
    yield WireEvent("end", {**head, **_last_candidate([{"text": ""}], reply)})


def _parts(reply: Reply, *, pieces: bool = False) -> Iterator[tuple[Kind, dict[str, Any]]]:
    if reply.thinking is not None:
        yield "content", {"text": reply.thinking.text, "thought": True}
    for piece in reply.pieces if pieces else (reply.whole_text,):
        if piece:
            yield "content", {"text": piece}
    for index, call in enumerate(reply.calls):
        part: dict[str, Any] = {"functionCall": _call_data(call)}
        if reply.thinking is not None and index == 0:
            part["thoughtSignature"] = reply.thinking.signature
        yield "call", part


def _call_data(call: WireCall) -> dict[str, Any]:
    arguments = json.loads(call.arguments or "{}")
    assert isinstance(arguments, dict), "Google sends arguments as an object"
    return {"id": call.id, "name": call.name, "args": arguments}


def _candidate(parts: list[dict[str, Any]], ended_by: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if ended_by is not None:
        data["finishReason"] = FINISH[ended_by]
    return {"candidates": [data]}


def _last_candidate(parts: list[dict[str, Any]], reply: Reply) -> dict[str, Any]:
    """With the search queries: Google sends them beside the content, after all of the content."""
    data = _candidate(parts, reply.ended_by)
    if reply.search is not None:
        page = {"uri": reply.search.url, "title": reply.search.title}
        data["candidates"][0]["groundingMetadata"] = {
            "webSearchQueries": [reply.search.query],
            "groundingChunks": [{"web": page}],
        }
    return data


def _blocked(reply: Reply) -> dict[str, Any]:
    data = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": reply.refusal}
    return {"promptFeedback": data}


def _head(number: int, path: str, reply: Reply) -> dict[str, Any]:
    model = path.rpartition("/")[2].partition(":")[0]
    data: dict[str, Any] = {"responseId": f"resp-{number}", "modelVersion": model}
    if reply.tokens is not None:
        data["usageMetadata"] = {
            "promptTokenCount": reply.tokens.input,
            "candidatesTokenCount": reply.tokens.output,
            "totalTokenCount": reply.tokens.input + reply.tokens.output,
        }
    return data

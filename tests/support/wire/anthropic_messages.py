"""Anthropic's messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.wire.script import HttpError, Reply, WireEvent, in_threes

FINISH = {
    "stop": "end_turn",
    "tool_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
ERRORS = {429: "rate_limit_error", 529: "overloaded_error", 400: "invalid_request_error"}


def takes(path: str) -> bool:
    return path.partition("?")[0] == "/v1/messages"


def streams(path: str, body: Mapping[str, Any]) -> bool:
    return bool(body.get("stream"))


def error(given: HttpError) -> dict[str, Any]:
    kind = ERRORS.get(given.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": given.message}}


def whole(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reply.thinking is not None:
        data = {"thinking": reply.thinking.text, "signature": reply.thinking.signature}
        content.append({"type": "thinking", **data})
    content += _search(number, reply)
    if reply.whole_text:
        content.append({"type": "text", "text": reply.whole_text, "citations": None})
    for call in reply.calls:
        arguments = json.loads(call.arguments or "{}")
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    return {**_head(number, body, reply), **_ending(reply), "content": content}


def events(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> Iterator[WireEvent]:
    begun = {**_head(number, body, reply), "content": [], "stop_reason": None}
    yield WireEvent("head", {"type": "message_start", "message": begun}, "message_start")
    yield WireEvent("head", {"type": "ping"}, "ping")
    index = 0
    if reply.thinking is not None:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        yield _start(index, block)
        yield _delta(index, {"type": "thinking_delta", "thinking": reply.thinking.text})
        yield _delta(index, {"type": "signature_delta", "signature": reply.thinking.signature})
        yield _stop(index)
        index += 1
    for searched in _search(number, reply):
        if searched["type"] == "server_tool_use":
            yield _start(index, {**searched, "input": {}})
            for bit in in_threes(json.dumps(searched["input"])):
                yield _delta(index, {"type": "input_json_delta", "partial_json": bit})
        else:
            yield _start(index, searched)
        yield _stop(index)
        index += 1
    if reply.whole_text:
        yield _start(index, {"type": "text", "text": ""})
        for piece in reply.pieces:
            yield _delta(index, {"type": "text_delta", "text": piece})
        yield _stop(index)
        index += 1
    for call in reply.calls:
        used: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        data = {"type": "content_block_start", "index": index, "content_block": used}
        yield WireEvent("call", data, "content_block_start")
        for bit in in_threes(call.arguments):
            delta = {"type": "input_json_delta", "partial_json": bit}
            data = {"type": "content_block_delta", "index": index, "delta": delta}
            yield WireEvent("arguments", data, "content_block_delta")
        yield _stop(index)
        index += 1
    ending = _ending(reply)
    usage = {"output_tokens": reply.tokens.output if reply.tokens else 0}
    data = {"type": "message_delta", "delta": ending, "usage": usage}
    yield WireEvent("end", data, "message_delta")
    yield WireEvent("end", {"type": "message_stop"}, "message_stop")


def _search(number: int, reply: Reply) -> list[dict[str, Any]]:
    """The call of the search, and what it found, which only Anthropic can read."""
    search = reply.search
    if search is None:
        return []
    id = f"srvtoolu_{number}"
    found = {
        "type": "web_search_result",
        "url": search.url,
        "title": search.title,
        "encrypted_content": "EqgfCioIARgBIiQ3YTAwMjY1Mi1mZjM5LTQ1NGUtODgxNC1kNjNjNTk1ZWI3Y==",
        "page_age": None,
    }
    used = {"id": id, "name": "web_search", "input": {"query": search.query}}
    return [
        {"type": "server_tool_use", **used},
        {"type": "web_search_tool_result", "tool_use_id": id, "content": [found]},
    ]


def _start(index: int, block: Mapping[str, Any]) -> WireEvent:
    data = {"type": "content_block_start", "index": index, "content_block": block}
    return WireEvent("content", data, "content_block_start")


def _delta(index: int, delta: Mapping[str, Any]) -> WireEvent:
    data = {"type": "content_block_delta", "index": index, "delta": delta}
    return WireEvent("content", data, "content_block_delta")


def _stop(index: int) -> WireEvent:
    return WireEvent(
        "content", {"type": "content_block_stop", "index": index}, "content_block_stop"
    )


def _head(number: int, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    tokens = reply.tokens
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens.input if tokens else 0,
            "output_tokens": tokens.output if tokens else 0,
        },
    }


def _ending(reply: Reply) -> dict[str, Any]:
    data: dict[str, Any] = {"stop_sequence": None}
    data["stop_reason"] = None if reply.ended_by is None else FINISH[reply.ended_by]
    if reply.refusal is not None:
        details = {"type": "refusal", "category": "cyber", "explanation": reply.refusal}
        data["stop_details"] = details
    return data

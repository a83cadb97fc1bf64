"""OpenAI's responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.wire.script import HttpError, Kind, Reply, WireEvent, in_threes

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def takes(path: str) -> bool:
    return path == "/v1/responses"


def streams(path: str, body: Mapping[str, Any]) -> bool:
    return bool(body.get("stream"))


def error(given: HttpError) -> dict[str, Any]:
    return {"error": {"message": given.message, "type": "scripted", "code": None, "param": None}}


def whole(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    items = [item for item, _ in _items(number, reply)]
    return {**_head(number, body), **_ending(reply), "output": items}


def events(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> Iterator[WireEvent]:
    count = 0

    def event(kind: Kind, type: str, **fields: Any) -> WireEvent:
        nonlocal count
        count += 1
        data = {"type": f"response.{type}", "sequence_number": count - 1, **fields}
        return WireEvent(kind, data, f"response.{type}")

    begun = {**_head(number, body), "status": "in_progress", "output": []}
    yield event("head", "created", response=begun)
    yield event("head", "in_progress", response=begun)
    for index, (item, empty) in enumerate(_items(number, reply)):
        place = {"output_index": index, "item_id": item["id"]}
        kind: Kind = "call" if item["type"] == "function_call" else "content"
        yield event(kind, "output_item.added", output_index=index, item=empty)
        if item["type"] == "function_call":
            for bit in in_threes(item["arguments"]):
                yield event("arguments", "function_call_arguments.delta", **place, delta=bit)
            arguments = item["arguments"]
            yield event("arguments", "function_call_arguments.done", **place, arguments=arguments)
        elif item["type"] == "web_search_call":
            for state in ("in_progress", "searching", "completed"):
                yield event("content", f"web_search_call.{state}", **place)
        elif item["type"] == "reasoning":
            part = item["summary"][0]
            at = {**place, "summary_index": 0}
            bare = {**part, "text": ""}
            yield event("content", "reasoning_summary_part.added", **at, part=bare)
            yield event("content", "reasoning_summary_text.delta", **at, delta=part["text"])
            yield event("content", "reasoning_summary_text.done", **at, text=part["text"])
            yield event("content", "reasoning_summary_part.done", **at, part=part)
        else:
            part = item["content"][0]
            at = {**place, "content_index": 0}
            if part["type"] == "refusal":
                bare = {**part, "refusal": ""}
                yield event("content", "content_part.added", **at, part=bare)
                yield event("content", "refusal.delta", **at, delta=part["refusal"])
                yield event("content", "refusal.done", **at, refusal=part["refusal"])
            else:
                bare = {**part, "text": ""}
                yield event("content", "content_part.added", **at, part=bare)
                for piece in reply.pieces:
                    yield event("content", "output_text.delta", **at, delta=piece, logprobs=[])
                yield event("content", "output_text.done", **at, text=part["text"], logprobs=[])
            yield event("content", "content_part.done", **at, part=part)
        yield event("content", "output_item.done", output_index=index, item=item)
    ended = whole(number, path, body, reply)
    if ended["status"] != "in_progress":
        yield event("end", ended["status"], response=ended)


def _items(number: int, reply: Reply) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each item of the reply, and the form in which a stream adds it."""
    if reply.thinking is not None:
        item: dict[str, Any] = {
            "id": f"rs_{number}",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": reply.thinking.text}],
            "encrypted_content": reply.thinking.signature,
        }
        yield item, {**item, "summary": []}
    if reply.search is not None:
        item = {
            "id": f"ws_{number}",
            "type": "web_search_call",
            "status": "completed",
            "action": {
                "type": "search",
                "query": reply.search.query,
                "sources": [{"type": "url", "url": reply.search.url}],
            },
        }
        yield item, {**item, "status": "in_progress", "action": None}
    if reply.whole_text or reply.refusal is not None:
        part: dict[str, Any] = {"type": "refusal", "refusal": reply.refusal}
        if reply.refusal is None:
            part = {"type": "output_text", "text": reply.whole_text, "annotations": []}
        item = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
        yield item, {**item, "status": "in_progress", "content": []}
    for index, call in enumerate(reply.calls):
        item = {
            "id": f"fc_{number}_{index}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        yield item, {**item, "status": "in_progress", "arguments": ""}


def _head(number: int, body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_760_000_000,
        "model": body["model"],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }


def _ending(reply: Reply) -> dict[str, Any]:
    """A reply without a finish reason is one that is still in progress."""
    by = "stop" if reply.refusal is not None else reply.ended_by
    fields: dict[str, Any] = {"status": "in_progress" if by is None else "completed"}
    if by == "error":
        fields["status"] = "failed"
    elif by in INCOMPLETE:
        fields |= {"status": "incomplete", "incomplete_details": {"reason": INCOMPLETE[by]}}
    if reply.tokens is not None:
        fields["usage"] = {
            "input_tokens": reply.tokens.input,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.tokens.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.tokens.input + reply.tokens.output,
        }
    return fields

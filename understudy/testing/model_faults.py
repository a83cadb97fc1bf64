"""`ModelFault`: how a request to a model fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic_ai.exceptions import (
    ModelConnectionError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from understudy._base.clock import Clock
from understudy._base.clock_waits import sleep_by
from understudy._base.json_values import checked_seconds, checked_text, shown
from understudy.errors import UsageError
from understudy.models import ScriptedModel, ScriptedRequest, call
from understudy.testing.placed_fault import BlockCallbacks, PlacedFault

_CUT_ARGUMENTS = '{"'


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a model, at which a fault is due."""

    model: Model
    clock: Clock
    """The clock of the run."""
    block: BlockCallbacks


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelFault(PlacedFault):
    """A fault for `faults(model=...)`: how a request to a model fails.

    `at` counts the requests, from 1 up. After an empty reply the model is asked again, by a second
    request.
    """

    _play: Callable[[Asked], Model]

    @classmethod
    def empty(cls, *, at: int = 1, times: int | None = 1) -> ModelFault:
        """Make a fault: the reply has neither text nor a call. The real model is not asked."""
        return cls._says(_whole("stop"), "an empty reply", at, times)

    @classmethod
    def refused(cls, *, at: int = 1, times: int | None = 1) -> ModelFault:
        """Make a fault: a content filter has stopped the reply. The real model is not asked."""
        return cls._says(_whole("content_filter"), "a refused reply", at, times)

    @classmethod
    def bad_arguments(
        cls, tool: str | None = None, *, at: int = 1, times: int | None = 1
    ) -> ModelFault:
        """Make a fault: the reply calls a tool with arguments that are not JSON. The model is not
        asked.

        Args:
            tool: the name of the tool; None = the first tool of the request.
            at, times: the first request that fails, and how many fail.

        """
        if tool is not None:
            checked_text(tool, what="ModelFault.bad_arguments: `tool`")

        def play(asked: Asked) -> Model:
            def reply(request: ScriptedRequest) -> Any:
                if tool is None and not request.tools:
                    raise asked.block.refuse(
                        "ModelFault.bad_arguments: the request has no tool that a reply could call"
                    )
                return call(tool or request.tools[0], _CUT_ARGUMENTS)

            return _Says(asked.model, reply)

        return cls(what="a call whose arguments are no JSON", at=at, times=times, _play=play)

    @classmethod
    def unknown_tool(
        cls, tool: str = "no_such_tool", *, at: int = 1, times: int | None = 1
    ) -> ModelFault:
        """Make a fault: the reply calls a tool that the agent does not have. The model is not
        asked.

        Args:
            tool: the name in the reply.
            at, times: the first request that fails, and how many fail.

        """
        checked_text(tool, what="ModelFault.unknown_tool: `tool`")
        return cls._says(call(tool), f"a call of the unknown tool {tool!r}", at, times)

    @classmethod
    def rate_limited(
        cls, *, retry_after: float | None = None, at: int = 1, times: int | None = 1
    ) -> ModelFault:
        """Make a fault: the provider answers 429, too many requests. The model is not asked.

        Args:
            retry_after: the seconds in the header `Retry-After`; None = no header.
            at, times: the first request that fails, and how many fail.

        """
        if retry_after is not None:
            checked_seconds(retry_after, what="ModelFault.rate_limited: `retry_after`")
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}

        def error(model: Model) -> BaseException:
            return ModelHTTPError.for_category(
                ModelRateLimitError,
                status_code=429,
                model_name=model.model_name,
                body={"error": "too many requests"},
                headers=headers,
            )

        return cls.raises(error, what="a rate limit (429)", at=at, times=times)

    @classmethod
    def unreachable(cls, *, at: int = 1, times: int | None = 1) -> ModelFault:
        """Make a fault: no connection to the provider is made. The model is not asked."""

        def error(model: Model) -> BaseException:
            detail = "the connection was refused"
            return ModelConnectionError(model.model_name, detail, phase="connect")

        return cls.raises(error, what="no connection", at=at, times=times)

    @classmethod
    def raises(
        cls,
        error: Callable[[Model], BaseException],
        *,
        what: str = "an error",
        at: int = 1,
        times: int | None = 1,
    ) -> ModelFault:
        """Make a fault: the client of the provider raises an error. The model is not asked.

        Args:
            error: makes the error, from the model.
            what: what happens, for the message of a failed test.
            at, times: the first request that fails, and how many fail.

        """
        if not callable(error) or isinstance(error, type):
            raise UsageError(
                "ModelFault.raises takes a function of the model that returns an error, such as "
                f"lambda model: OSError('no network'), got {shown(error)}"
            )
        return cls(
            what=what,
            at=at,
            times=times,
            _play=lambda asked: _Says(asked.model, lambda _: error(asked.model)),
        )

    @classmethod
    def slow(cls, seconds: float, *, at: int = 1, times: int | None = 1) -> ModelFault:
        """Make a fault: the model answers this many seconds later, by the clock of the run.

        Args:
            seconds: the delay; a `SimulatedClock` must be advanced by it.
            at, times: the first slow request, and how many are slow.

        """
        checked_seconds(seconds, what="ModelFault.slow: `seconds`")
        return cls(
            what=f"an answer after {seconds:g} seconds",
            at=at,
            times=times,
            _play=lambda asked: _Slow(asked, seconds),
        )

    @classmethod
    def cut(cls, *, after: int = 1, at: int = 1, times: int | None = 1) -> ModelFault:
        """Make a fault: the model is asked, and the connection is lost in the middle of its reply.

        A streamed reply keeps what came before. A reply that is not streamed is lost.

        Args:
            after: the number of pieces of the stream that come before, of text or of a call; 0
                for none.
            at, times: the first request that fails, and how many fail.

        """
        if not isinstance(after, int) or isinstance(after, bool) or after < 0:
            raise UsageError(
                f"ModelFault.cut: `after` must be a whole number from 0 on, got {shown(after)}"
            )
        return cls(
            what="a reply that is cut off",
            at=at,
            times=times,
            _play=lambda asked: _Lost(asked.model, after, _reset),
        )

    @classmethod
    def answer_lost(cls, *, at: int = 1, times: int | None = 1) -> ModelFault:
        """Make a fault: the model is asked, at its cost, and its reply does not arrive: a
        timeout.
        """
        return cls(
            what="a reply that is paid for and lost",
            at=at,
            times=times,
            _play=lambda asked: _Lost(asked.model, None, _timed_out),
        )

    @classmethod
    def _says(cls, reply: Any, what: str, at: int, times: int | None) -> ModelFault:
        return cls(what=what, at=at, times=times, _play=lambda asked: _Says(asked.model, reply))


def _whole(reason: Any) -> Callable[[ScriptedRequest], ModelResponse]:
    """A function that makes a new complete reply without parts for each request."""
    return lambda _: ModelResponse(
        parts=[], usage=RequestUsage(input_tokens=1, output_tokens=1), finish_reason=reason
    )


def _reset(model: Model) -> Exception:
    return ModelConnectionError(model.model_name, "the connection was reset", phase="read")


def _timed_out(model: Model) -> Exception:
    return ModelTimeoutError(model.model_name, "no answer in time", phase="read")


class _Says(WrapperModel):
    """A model that answers requests itself, in place of the inner model."""

    is_stand_in = True

    def __init__(self, model: Model, reply: Any) -> None:
        super().__init__(model)
        self._script = ScriptedModel([reply], name=model.model_name)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await self._script.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        async with self._script.request_stream(
            messages, model_settings, model_request_parameters
        ) as stream:
            yield stream


class _Slow(WrapperModel):
    """A model that asks the inner model later."""

    def __init__(self, asked: Asked, seconds: float) -> None:
        super().__init__(asked.model)
        self._asked = asked
        self._seconds = seconds

    async def _wait(self) -> None:
        await sleep_by(self._asked.clock, self._seconds, self._asked.block.waits)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await self._wait()
        return await super().request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        await self._wait()
        async with super().request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            yield stream


class _Lost(WrapperModel):
    """A model that asks the inner model, and loses its answer.

    Args:
        model: the inner model.
        after: the number of pieces of a stream that come first; None = the stream is read to its
            end and lost.
        error: the error to raise then.

    """

    def __init__(
        self, model: Model, after: int | None, error: Callable[[Model], Exception]
    ) -> None:
        super().__init__(model)
        self._after = after
        self._error = error

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        await super().request(messages, model_settings, model_request_parameters)
        self._lose()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncGenerator[Any]:
        async with super().request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            if self._after is None:
                async for _ in stream:
                    pass
                self._lose()
            yield _CutStream(stream, self._after, self._error(self.wrapped))

    def _lose(self) -> NoReturn:
        raise self._error(self.wrapped)


class _CutStream:
    """A stream that breaks after a number of pieces, and keeps what they brought."""

    def __init__(self, stream: StreamedResponse, after: int, error: Exception) -> None:
        self._stream = stream
        self._after = after
        self._error = error

    async def __aiter__(self) -> AsyncIterator[Any]:
        left = self._after
        if left:
            async for event in self._stream:
                yield event
                left -= event.event_kind in ("part_start", "part_delta")
                if not left:
                    break
        raise self._error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

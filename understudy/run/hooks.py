"""The hooks of an agent's middleware, in calling order, and how a hook is called."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from understudy._base.error_texts import error_text
from understudy._base.event_loops import is_cancelled
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import JournalFailed, MiddlewareError
from understudy.interrupts import Defer, Interrupt

T = TypeVar("T")
R = TypeVar("R")

current_hook: contextvars.ContextVar[Hook | None] = contextvars.ContextVar(
    "current_hook", default=None
)
"""The hook that runs now: it must not add records of the pipeline, and its questions are its
own."""


Passivation = Literal["idle", "stopped", "compacted", "deleted", "closing", "lost"]
"""The reason why an agent has left the memory of its runtime."""


class HookFailed(Exception):
    """A hook raised an exception; the pipeline fails the run with `error`."""

    def __init__(self, error: MiddlewareError) -> None:
        super().__init__(error.message)
        self.error = error


_PLACES = {
    Interrupt: "a middleware asks in before_model, after_model, or wrap_tool_call before next",
    Defer: "a middleware puts a model call off in wrap_model_call alone",
}


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook of one middleware."""

    middleware: str
    name: str
    function: Callable[..., Any]
    is_async: bool

    async def __call__(self, threads: WorkerThreads, *args: Any) -> Any:
        """Call the hook; a plain function runs in a worker thread.

        Raises:
            HookFailed: if the hook raises; the error names the middleware and the hook.

        """
        token = current_hook.set(self)
        try:
            if self.is_async:
                return await self.function(*args)
            result = await threads.run(self.function, *args)
            return await result if inspect.isawaitable(result) else result
        except (JournalFailed, HookFailed):
            raise
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise HookFailed(self.failure(error)) from error
        except Exception as error:
            raise HookFailed(self.failure(error)) from error
        finally:
            current_hook.reset(token)

    async def around(self, run: Any, subject: T, next: Callable[[T], Awaitable[R]]) -> R:
        """Call a hook that stands around something. An error in `next` is not an error of the
        hook.
        """

        async def rest(changed: T) -> R:
            token = current_hook.set(None)
            try:
                return await next(changed)
            finally:
                current_hook.reset(token)

        token = current_hook.set(self)
        try:
            return cast("R", await self.function(run, subject, rest))
        finally:
            current_hook.reset(token)

    def failure(self, error: BaseException) -> MiddlewareError:
        """The error to report when this hook raised `error`."""
        cause = error_text(error)
        if isinstance(error, (Interrupt, Defer)):  # in a place where the pipeline refuses it
            cause += f": {_PLACES[type(error)]}"
        failure = MiddlewareError(middleware=self.middleware, hook=self.name, cause=cause)
        failure.__cause__ = error
        return failure

    @classmethod
    def of(cls, owner: object, name: str, function: Callable[..., Any]) -> Hook:
        """The hook `name` of `owner`."""
        return cls(
            middleware=getattr(owner, "name", None) or type(owner).__name__,
            name=name,
            function=function,
            is_async=asyncio.iscoroutinefunction(function),
        )


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of all middleware, by name, each tuple in calling order."""

    on_start: tuple[Hook, ...] = ()
    on_completed: tuple[Hook, ...] = ()
    on_interrupted: tuple[Hook, ...] = ()
    on_passivated: tuple[Hook, ...] = ()
    on_run_start: tuple[Hook, ...] = ()
    before_model: tuple[Hook, ...] = ()
    after_model: tuple[Hook, ...] = ()
    wrap_model_call: tuple[Hook, ...] = ()
    wrap_ask_model: tuple[Hook, ...] = ()
    """The `wrap_model_call` hooks that also stand around `run.ask_model`."""
    check_tool_calls: tuple[Hook, ...] = ()
    wrap_tool_call: tuple[Hook, ...] = ()
    on_resume: tuple[Hook, ...] = ()
    on_message: tuple[Hook, ...] = ()
    on_run_end: tuple[Hook, ...] = ()
    transform_display_message: tuple[Hook, ...] = ()
    before_step: tuple[Hook, ...] = ()
    after_step: tuple[Hook, ...] = ()
    keeps_time: bool = False
    """Whether a middleware reads the run's time, so that it must be recorded."""
    streams_safely: bool = True
    """Whether text deltas may be emitted before all hooks have seen the whole reply."""

"""The hooks of an agent's middleware, in calling order, and how a hook is called."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from understudy._base.causes import cause_of
from understudy._base.event_loops import is_cancelled
from understudy._base.worker_threads import WorkerThreads
from understudy.errors import JournalFailed, MiddlewareError

in_hook: contextvars.ContextVar[bool] = contextvars.ContextVar("in_hook", default=False)
"""True while a hook runs: a hook must not add records of the pipeline."""


class HookFailed(Exception):
    """A hook raised an exception; the pipeline fails the run with `error`."""

    def __init__(self, error: MiddlewareError) -> None:
        super().__init__(error.message)
        self.error = error


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
        token = in_hook.set(True)
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
            in_hook.reset(token)

    def failure(self, error: BaseException) -> MiddlewareError:
        """The error to report when this hook raised `error`."""
        failure = MiddlewareError(middleware=self.middleware, hook=self.name, cause=cause_of(error))
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
    on_run_start: tuple[Hook, ...] = ()
    before_model: tuple[Hook, ...] = ()
    after_model: tuple[Hook, ...] = ()
    wrap_model_call: tuple[Hook, ...] = ()
    wrap_ask_model: tuple[Hook, ...] = ()
    """Those of them that stand around `run.ask_model`, too."""
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

"""`ToolFault`: how a call of a tool fails."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

from understudy._base.clock import Clock
from understudy._base.clock_waits import sleep_by
from understudy._base.json_values import checked_flag, checked_seconds, checked_text, shown
from understudy.errors import UsageError
from understudy.modes.steps.tool_call.time_limit import TimeLimit
from understudy.testing.placed_fault import BlockCallbacks, PlacedFault
from understudy.tools import OutcomeUnknown, Tool, ToolFailed

GivenError = BaseException | type[BaseException] | Callable[[], BaseException]
"""An error, its class, or a function that makes it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ToolFault(PlacedFault):
    """A fault for `faults(tool=...)`: how a call of a tool fails.

    `at` counts how often the body of the tool is entered, from 1 up. Each attempt at a call counts.
    """

    _error: Callable[[], BaseException] | None = None
    """A function that makes the error to raise; None if nothing is raised."""
    _happens: bool = False
    """Whether the body of the tool runs."""
    _seconds: float = 0.0
    """The delay in seconds, by the clock of the run."""
    _passes_limit: bool = False
    """Whether the time limit of the tool passes."""

    @classmethod
    def raises(cls, error: GivenError, *, at: int = 1, times: int | None = 1) -> ToolFault:
        """Make a fault: the tool raises an error, and its body does not run.

        Args:
            error: the error, its class, or a function that makes it.
            at, times: the first call that fails, and how many fail.

        """
        made = _maker(error, "ToolFault.raises")
        return cls(what="an error that it raises", at=at, times=times, _error=made)

    @classmethod
    def refuses(cls, text: str, *, at: int = 1, times: int | None = 1) -> ToolFault:
        """Make a fault: the tool refuses the call by `ToolFailed`, and its body does not run.

        Args:
            text: the text for the model.
            at, times: the first call that fails, and how many fail.

        """
        checked_text(text, what="ToolFault.refuses")
        made = _maker(lambda: ToolFailed(text), "ToolFault.refuses")
        return cls(what="a refusal", at=at, times=times, _error=made)

    @classmethod
    def answer_lost(
        cls, error: GivenError | None = None, *, at: int = 1, times: int | None = 1
    ) -> ToolFault:
        """Make a fault: the body of the tool runs, and its result is lost.

        Args:
            error: the error that the tool raises; by default `OutcomeUnknown`, which puts a
                call of any tool with effects in doubt.
            at, times: the first call that fails, and how many fail.

        """
        given = error if error is not None else lambda: OutcomeUnknown("the answer was lost")
        made = _maker(given, "ToolFault.answer_lost")
        return cls(what="a result that is lost", at=at, times=times, _error=made, _happens=True)

    @classmethod
    def slow(cls, seconds: float, *, at: int = 1, times: int | None = 1) -> ToolFault:
        """Make a fault: the body of the tool runs this many seconds later, by the clock of the run.

        Args:
            seconds: the delay; a `SimulatedClock` must be advanced by it.
            at, times: the first slow call, and how many are slow.

        """
        checked_seconds(seconds, what="ToolFault.slow: `seconds`")
        what = f"a body that runs after {seconds:g} seconds"
        return cls(what=what, at=at, times=times, _happens=True, _seconds=seconds)

    @classmethod
    def times_out(cls, *, happened: bool = False, at: int = 1, times: int | None = 1) -> ToolFault:
        """Make a fault: the time limit of the tool passes at once. The tool must have a `timeout`.

        Args:
            happened: whether the body has run by then.
            at, times: the first call that fails, and how many fail.

        """
        checked_flag(happened, what="ToolFault.times_out: `happened`")
        what = "a time limit that passes"
        return cls(what=what, at=at, times=times, _happens=happened, _passes_limit=True)


def _maker(given: GivenError, what: str) -> Callable[[], BaseException]:
    if isinstance(given, BaseException):
        return lambda: given.with_traceback(None)
    if not callable(given):
        raise UsageError(
            f"{what} takes an error, its class, or a function that makes one, got {shown(given)}"
        )
    return given


class FaultyBody:
    """The body of a tool, with its faults.

    Args:
        tool: the tool with this body.
        next_fault: the function that gives the fault of the next call; None if the call succeeds.
        clock: the clock of the run.
        block: the functions to call for a fault that cannot happen, and for a fault that waits.

    """

    def __init__(
        self,
        tool: Tool[Any],
        next_fault: Callable[[], ToolFault | None],
        clock: Clock,
        block: BlockCallbacks,
    ) -> None:
        self._tool = tool
        self._next_fault = next_fault
        self._clock = clock
        self._block = block
        self._loop = asyncio.get_running_loop()

    def as_tool(self) -> Tool[Any]:
        """The tool with this body."""
        twin = copy(self._tool)
        twin.function = self._on_loop if twin.is_async else self._in_thread
        twin.takes_context = True  # the context has the time limit
        return twin

    async def _on_loop(self, context: Any, *positional: Any, **keywords: Any) -> Any:
        function, positional = self._tool.function, self._own(context, positional)
        fault = self._next_fault()
        if fault is None:
            return await function(*positional, **keywords)
        limit = self._limit(fault, context)
        if fault._seconds:
            await sleep_by(self._clock, fault._seconds, self._block.waits)
        value = await function(*positional, **keywords) if fault._happens else None
        return await self._end(fault, limit, value)

    def _in_thread(self, context: Any, *positional: Any, **keywords: Any) -> Any:
        function, positional = self._tool.function, self._own(context, positional)
        fault = self._next_fault()
        if fault is None:
            return function(*positional, **keywords)
        limit = self._limit(fault, context)
        if fault._seconds:
            if self._tool.inline:
                raise self._block.refuse(
                    f"ToolFault.slow: the tool {self._tool.name!r} is inline, so it would stop the "
                    "event loop, and nothing could advance the clock: take `inline` away"
                )
            waiting = sleep_by(self._clock, fault._seconds, self._block.waits)
            asyncio.run_coroutine_threadsafe(waiting, self._loop).result()
        value = function(*positional, **keywords) if fault._happens else None
        if inspect.isawaitable(value):  # a plain function may return the coroutine of an async one
            return self._awaited(fault, limit, value)
        if limit is not None:
            self._pass_from_thread(limit)
            raise TimeoutError("the time limit has passed")  # nobody waits for the thread
        if fault._error is not None:
            raise fault._error()
        return value

    async def _awaited(
        self, fault: ToolFault, limit: TimeLimit | None, value: Awaitable[Any]
    ) -> Any:
        return await self._end(fault, limit, await value)

    async def _end(self, fault: ToolFault, limit: TimeLimit | None, value: Any) -> Any:
        if limit is not None:
            limit.pass_now()
            await self._loop.create_future()  # wait for the cancellation
        if fault._error is not None:
            raise fault._error()
        return value

    def _own(self, context: Any, positional: tuple[Any, ...]) -> tuple[Any, ...]:
        return (context, *positional) if self._tool.takes_context else positional

    def _limit(self, fault: ToolFault, context: Any) -> TimeLimit | None:
        """The time limit that passes; None if none passes."""
        if not fault._passes_limit:
            return None
        limit = context._limit
        if limit is None:
            raise self._block.refuse(
                f"ToolFault.times_out: the tool {self._tool.name!r} has no time limit: give it a "
                "`timeout`, or plan another fault, such as ToolFault.answer_lost()"
            )
        assert isinstance(limit, TimeLimit), "there is no other one"
        return limit

    def _pass_from_thread(self, limit: TimeLimit) -> None:
        """Let the limit pass, and return once it has passed: the thread's result is late then."""
        has_passed = threading.Event()

        def look() -> None:
            if limit.has_passed:
                has_passed.set()
            else:
                self._loop.call_soon(look)

        def begin() -> None:
            limit.pass_now()
            look()

        self._loop.call_soon_threadsafe(begin)
        has_passed.wait()

"""One call on its way through the middleware into the tool, and what ends it there."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from understudy._base.json_values import digest
from understudy.errors import JournalFailed, RecordRefused, UsageError
from understudy.interrupts import Halt, Interrupt, Request
from understudy.modes.steps.check_interrupts import wanted_requests
from understudy.modes.steps.tool_arguments import (
    Ready,
    ask_again,
    bound,
    canonical,
    record_request,
    view,
)
from understudy.modes.steps.tool_results import (
    as_edited,
    failed_result,
    gave_up_result,
    halting_result,
    make_part,
    question,
    result_of,
    stopped_result,
    timed_out_result,
)
from understudy.run.child_calls import ChildWaits, inner_runs_end
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Halted, Run
from understudy.run.tool_call import ToolCall, make_context
from understudy.state.records import Result, Settled, Started, Suspended
from understudy.stopping import StopAgent
from understudy.tools import Retry, Tool, ToolFailed

__all__ = ["perform", "start"]


class _Signal(BaseException):
    """What ends a call whatever the middleware around it does with exceptions (J4, I8, I12)."""


class _AskAgain(_Signal):
    """What is about to run is not what was approved, or needs a person now (I12)."""

    def __init__(self, call: ToolCall, requests: Sequence[Request] = ()) -> None:
        super().__init__()
        self.call = call
        self.requests = requests


class _Asks(_Signal):
    """The tool raised `Interrupt` (I8)."""

    def __init__(self, interrupt: Interrupt) -> None:
        super().__init__()
        self.interrupt = interrupt


class _Stops(_Signal):
    """The tool, or a middleware around it, raised `StopAgent` (P6)."""

    def __init__(self, stop: StopAgent) -> None:
        super().__init__()
        self.stop = stop


class _Halts(_Signal):
    """The tool raised `Halt` (I11)."""

    def __init__(self, halt: Halt) -> None:
        super().__init__()
        self.halt = halt


class _TimedOut(_Signal):
    """The time limit of a tool that is not idempotent passed (T6)."""

    def __init__(self, *, entered: bool) -> None:
        super().__init__()
        self.entered = entered


def start(run: Run, ready: Ready) -> None:
    """Record that the call is about to run (J3)."""
    call = ready.call
    run.record(
        Started(
            call_key=call.key,
            tool_name=ready.tool.name,
            tool_call_id=call.part.tool_call_id,
            attempt=call.attempts + 1,
            idempotent=ready.tool.idempotent,
            epoch=run.ledger.epoch,
        )
    )


async def perform(run: Run, ready: Ready) -> None:
    """Run the call through the middleware and record what it brought."""
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0

    def cancelled() -> bool:
        return task is not None and task.cancelling() > cancelled_before

    try:
        result = await _performed(run, ready, cancelled)
    except asyncio.CancelledError:
        if cancelled():
            raise  # from outside: it writes nothing (J13)
        result = gave_up_result(run, ready)
    except (ChildWaits, Halted):
        await inner_runs_end(run, ready.call)
        run.record(Suspended(call_key=ready.call.key))
        return
    except BaseExceptionGroup as group:
        if group.split(ChildWaits)[1] is not None:
            raise
        run.record(Suspended(call_key=ready.call.key))
        return
    if result is not None:
        try:
            run.record(result)
        except RecordRefused as refused:  # the tool ran: it must not run again (J16)
            told = f"{ready.tool.name!r} ran, but its result cannot be kept: {refused}"
            run.record(failed_result(run, ready.call, told))
    if cancelled():
        raise asyncio.CancelledError  # the tool swallowed it: what it brought is kept


def _forgive_task_group(run: Run) -> None:
    """Take back the cancel by which a task group that failed woke its task.

    Before Python 3.13 it is left behind, and looks as one from outside would: of those that make a
    run cancelled there is a record (J13).
    """
    task = asyncio.current_task()
    if task is not None and sys.version_info < (3, 13) and run.current.cancelled is None:
        task.uncancel()


async def _performed(run: Run, ready: Ready, cancelled: Callable[[], bool]) -> Result | None:
    call = ready.call
    try:
        if run.definition.hooks.wrap_tool_call:
            returned = await _wrapped(run, ready)
        else:
            returned = await _body(run, ready)
        return result_of(run, ready, returned)
    except _Asks as asks:
        return question(run, ready, asks.interrupt)
    except _Halts as halts:
        return halting_result(run, ready, halts.halt)
    except _AskAgain as changed:
        for request in changed.requests:
            record_request(run, request)
        if not changed.requests:
            ask_again(run, changed.call)
        return None
    except _Stops as stops:
        return stopped_result(run, call, stops.stop.signal)
    except _TimedOut as timed_out:
        return timed_out_result(run, ready, entered=timed_out.entered)
    except (HookFailed, JournalFailed):
        raise
    except Exception as error:
        if isinstance(error, ExceptionGroup):
            _forgive_task_group(run)
        if cancelled() and not ready.tool.idempotent:
            raise asyncio.CancelledError from error  # it broke in the middle: in doubt (J4)
        return failed_result(run, call, as_edited(_said(error), ready.edited))


def _said(error: Exception) -> str:
    """What the model is told of an exception (T2)."""
    error = _sole(error)
    if isinstance(error, ToolFailed):
        return str(error)
    if isinstance(error, Retry):
        return str(error) or "Try again."
    return f"{type(error).__name__}: {error}"


def _sole(error: Exception) -> Exception:
    """The one exception in a group of one, as task groups raise."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _wrapped(run: Run, ready: Ready) -> Any:
    """The call inside all `wrap_tool_call` hooks; what they raise themselves is their failure."""
    raised: list[Exception] = []
    signals: list[_Signal] = []
    entered = False

    async def innermost(call: ToolCall) -> Any:
        nonlocal entered
        if signals:
            raise signals[0]  # it is over, whatever the hook would like to try
        if entered and not ready.tool.idempotent:
            raise UsageError(f"next was called twice for {ready.tool.name!r}: it is not idempotent")
        if entered:
            start(run, ready)
            await run.durable()
        entered = True
        try:
            return await _body(run, await _changed(run, ready, shown, call))
        except _Signal as signal:
            signals.append(signal)
            raise
        except Exception as error:
            raised.append(error)
            raise

    shown = view(run, ready)
    chain: Callable[[ToolCall], Any] = innermost
    for hook in reversed(run.definition.hooks.wrap_tool_call):
        chain = _link(run, hook, chain, raised, signals)
    try:
        returned = await chain(shown)
    except HookFailed:
        if not entered:  # nothing ran, and nobody need doubt it
            told = "Not run: a middleware failed before it was started."
            run.record(
                Result(
                    call_key=ready.call.key, part=make_part(run, ready.call, told, "interrupted")
                )
            )
        raise
    if signals:
        raise signals[0]
    return returned


async def _changed(run: Run, ready: Ready, shown: ToolCall, call: ToolCall) -> Ready:
    """The call as the middleware hands it on; other arguments may need a person (I12)."""
    if digest(call.arguments) == digest(shown.arguments):
        return ready
    checked = ready.tool.revalidate(call.arguments)
    changed = Ready(ready.call, ready.tool, checked)
    if not ready.call.requests:
        anew = view(run, changed)
        requests = await wanted_requests(run, [anew])
        if requests:
            raise _AskAgain(anew, requests)
    return changed


def _link(
    run: Run,
    hook: Hook,
    inner: Callable[[ToolCall], Any],
    raised: list[Exception],
    signals: list[_Signal],
) -> Callable[[ToolCall], Any]:
    async def link(call: ToolCall) -> Any:
        try:
            return await hook.function(run, call, inner)
        except (HookFailed, JournalFailed):
            raise
        except StopAgent as stop:
            signals.append(_Stops(stop))
            raise signals[0] from stop
        except Exception as error:
            if any(error is known for known in raised):
                raise  # the tool's own, passing through
            raise HookFailed(hook.failure(error)) from error

    return link


async def _body(run: Run, ready: Ready) -> Any:
    """The tool itself. The last check that this is what was approved stands right before it."""
    tool, call = ready.tool, ready.call
    if call.requests and not bound(run, call, tool, canonical(ready)):
        raise _AskAgain(view(run, ready))
    run.ledger.check_owner()
    positional, keywords = tool.bind(ready.checked)
    if tool.takes_context:
        positional.insert(0, make_context(run, call))
    entered: list[bool] = []
    try:
        if tool.timeout is None:
            if tool.is_async:
                return await tool.function(*positional, **keywords)
            return await _enter(run, ready, positional, keywords, entered)
        async with asyncio.timeout(tool.timeout) as scope:
            return await _enter(run, ready, positional, keywords, entered)
    except Exception as error:
        if tool.timeout is not None and scope.expired():
            if tool.idempotent:
                raise TimeoutError(_over_time(tool)) from None
            raise _TimedOut(entered=bool(entered)) from error
        sole = _sole(error)
        if isinstance(sole, Interrupt):
            raise _Asks(sole) from error
        if isinstance(sole, StopAgent):
            raise _Stops(sole) from error
        if isinstance(sole, Halt):
            raise _Halts(sole) from error
        raise


def _over_time(tool: Tool[Any]) -> str:
    return f"{tool.name!r} did not answer within its limit of {tool.timeout} seconds."


async def _enter(
    run: Run,
    ready: Ready,
    positional: list[Any],
    keywords: dict[str, Any],
    entered: list[bool],
) -> Any:
    tool = ready.tool
    if tool.is_async:
        entered.append(True)
        return await tool.function(*positional, **keywords)
    if tool.inline:
        entered.append(True)
        returned = tool.function(*positional, **keywords)
    else:

        def late(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and _takes_late(run):
                _settle_late(run, ready, done.result())

        def in_thread() -> Any:
            entered.append(True)
            return tool.function(*positional, **keywords)

        returned = await run.threads.run(in_thread, on_late=late)
    # A plain function may wrap an async one.
    return await returned if inspect.isawaitable(returned) else returned


def _takes_late(run: Run) -> bool:
    """Whether somebody still reads what is recorded: the run goes on, or its actor is awake."""
    lasts = run.root.ledger.outlives_run
    return not run.root.closed if lasts is None else lasts


def _settle_late(run: Run, ready: Ready, returned: Any) -> None:
    """An abandoned call came back after all: what it did is known, so its doubt is gone (J4)."""
    call, place = ready.call, run
    while place.parent is not None and place.ledger.state is not place.state:
        place = place.parent  # this agent is over, and what it doubted is its caller's now
    if call.key in place.state.doubts:
        place.record(Settled(call_key=call.key, how="late result"))
    elif place is not run or run.closed:
        return
    elif call.result is None and any(request.kind == "doubt" for request in call.pending_requests):
        run.record(result_of(run, ready, returned))

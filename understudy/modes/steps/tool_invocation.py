"""One tool call: through the middleware around it into the tool's body, and out with a result."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pydantic_core import to_json

from understudy._base.causes import cause_of
from understudy._base.json_values import (
    NotJsonError,
    as_json,
    checked_json,
    shown,
    text_of,
)
from understudy.errors import (
    Fenced,
    JournalFailed,
    MiddlewareError,
    RecordRefused,
    UsageError,
)
from understudy.interrupts import Halt, Interrupt, Request
from understudy.modes.steps.check_interrupts import requests_about
from understudy.modes.steps.questions import ask_about_call, interrupts_in, is_own
from understudy.modes.steps.run_end import end_agents_of
from understudy.modes.steps.tool_arguments import (
    ReadyCall,
    answers_match,
    as_tool_call,
    canonical,
    record_request,
    request_again,
)
from understudy.modes.steps.tool_results import (
    LIMIT_PASSED,
    as_edited,
    cancelled_inside_result,
    failed_result,
    halt_result,
    in_doubt_result,
    limit_text,
    make_part,
    questions_asked,
    refused_result,
    result_of,
    stop_result,
    timed_out_result,
    with_files,
)
from understudy.modes.steps.tool_retry import with_retries
from understudy.run.child_calls import CallSuspended, wait_for_parts
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import AttemptEnded, Run
from understudy.run.tool_call import ToolCall, make_context
from understudy.state.records import Once, Result, Settled, Started, Suspended
from understudy.state.run_state import Call
from understudy.stopping import StopAgent, StopSignal, StopSignals
from understudy.tools import OutcomeUnknown, Retry, ToolFailed


class _CallEnded(BaseException):
    """Ends a call, whatever the middleware around it does with exceptions."""


class _NeedsDecision(_CallEnded):
    """What is about to run is not what was approved, or needs an approval now."""

    def __init__(self, call: ToolCall, requests: Sequence[Request] = ()) -> None:
        super().__init__()
        self.call = call
        self.requests = requests


class _ToolInterrupt(_CallEnded):
    """The tool raised `Interrupt`: several times, if it raised a group of exceptions."""

    def __init__(self, interrupts: Sequence[Interrupt], *, child_suspended: bool) -> None:
        super().__init__()
        self.interrupts = interrupts
        self.child_suspended = child_suspended
        """An agent that the call runs waits, or another part of it at a point, too."""


class _HookAsks(_CallEnded):
    """A middleware around the call raised `Interrupt` before the call was passed on."""

    def __init__(self, call: ToolCall, interrupts: list[Interrupt], error: MiddlewareError) -> None:
        super().__init__()
        self.call = call
        self.interrupts = interrupts
        self.error = error


class _ToolStop(_CallEnded):
    """The tool, or a middleware around it, raised `StopAgent`."""

    def __init__(self, signal: StopSignal) -> None:
        super().__init__()
        self.signal = signal


class _ToolHalt(_CallEnded):
    """The tool raised `Halt`."""

    def __init__(self, halt: Halt) -> None:
        super().__init__()
        self.halt = halt


class _TimedOut(_CallEnded):
    """The time limit of a tool that is not idempotent passed."""

    def __init__(self, *, entered: bool) -> None:
        super().__init__()
        self.entered = entered


class _InDoubt(_CallEnded):
    """A tool that is not idempotent raised `OutcomeUnknown`."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def record_started(run: Run, ready: ReadyCall) -> None:
    """Record that the call is about to run."""
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


async def invoke(run: Run, ready: ReadyCall) -> None:
    """Run the call through the middleware, and record its result."""
    # Race: a cancellation of this task, and a CancelledError that the tool raises because something
    # that it waited for was cancelled, look the same. The task's count of cancel requests tells.
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0

    def cancelled() -> bool:
        return task is not None and task.cancelling() > cancelled_before

    try:
        of_call = _result if run.instrument is None else _watched
        result = await of_call(run, ready, cancelled)
    except asyncio.CancelledError:
        if cancelled():
            # Nothing is recorded: only a recorded cancellation ends a run, and any other is a
            # crash, after which the call is in doubt
            # (test_cancelling_an_execution_cancels_its_tools_and_passes_on).
            raise
        result = cancelled_inside_result(run, ready)
    except (CallSuspended, AttemptEnded):
        await _suspend(run, ready)
        return
    edits = run.file_edits.pop(ready.call.key, None) if run.file_edits else None
    if result is not None:
        await end_agents_of(run, ready.call.key)
        if edits is not None:
            result = with_files(run, ready, result, edits)
        try:
            run.record(result)
        except RecordRefused as refused:  # too large: but the tool ran, and must not run again
            run.record(refused_result(run, ready, result, refused))
        else:
            if edits is not None and result.files:
                run.ledger.keep_blobs(edits.blobs)
    if cancelled():
        # The tool swallowed the cancellation. Its result is kept, and the task ends nevertheless
        # (test_a_tool_that_swallows_the_cancellation_of_its_execution_does_not_save_it).
        raise asyncio.CancelledError


async def _suspend(run: Run, ready: ReadyCall) -> None:
    await wait_for_parts(run, ready.call)
    if ready.call.running:  # else the point to which it has come says so
        run.record(Suspended(call_key=ready.call.key))


def _uncancel_after_task_group(run: Run) -> None:
    """Take back the cancel request that a failed `TaskGroup` left with its task.

    Before Python 3.13 a group whose child fails cancels its own task to wake it, and leaves the
    count raised, so that `cancelled()` is true without a cancellation from outside
    (`test_a_task_group_that_fails_while_it_closes_is_an_error_like_any_other`). Where the run is
    really cancelled there is a record of it.
    """
    task = asyncio.current_task()
    if task is not None and sys.version_info < (3, 13) and run.current.cancelled is None:
        task.uncancel()


async def _watched(run: Run, ready: ReadyCall, cancelled: Callable[[], bool]) -> Result | None:
    assert run.instrument is not None, "else nothing watches"
    with run.instrument.tool_call(run, ready.call) as watch:
        result = await _result(run, ready, cancelled)
        watch.ended(result)
        return result


async def _result(run: Run, ready: ReadyCall, cancelled: Callable[[], bool]) -> Result | None:
    """The result of the call; None if a request is recorded instead."""
    call = ready.call
    try:
        if run.definition.hooks.wrap_tool_call:
            returned = await _call_through_hooks(run, ready)
        else:
            returned = await _tried(run, ready)
        return result_of(run, ready, returned)
    except _ToolInterrupt as ended:
        if ended.child_suspended:
            await _suspend(run, ready)
        return questions_asked(run, ready, ended.interrupts)
    except _ToolHalt as ended:
        return halt_result(run, ready, ended.halt)
    except _NeedsDecision as ended:
        for request in ended.requests:
            record_request(run, request)
        if not ended.requests:
            request_again(run, ended.call)
        return None
    except _HookAsks as ended:
        try:
            ask_about_call(run, ended.call, ended.interrupts, ended.error)
        except HookFailed:
            _record_not_run(run, call)
            raise
        return None
    except _ToolStop as ended:
        return stop_result(run, call, ended.signal)
    except _TimedOut as ended:
        return timed_out_result(run, ready, entered=ended.entered)
    except _InDoubt as ended:
        return in_doubt_result(run, call, ended.reason)
    except (HookFailed, JournalFailed):
        raise
    except Exception as error:
        if cancelled() and not ready.tool.idempotent:
            # Race: the cancellation made the tool raise this error half way. That is no failure
            # that the model may repair by calling again: the call is in doubt
            # (test_a_tool_that_fails_because_it_is_interrupted_is_in_doubt).
            raise asyncio.CancelledError from error
        return failed_result(run, call, as_edited(_error_text(error), ready.edited))


def _error_text(error: Exception) -> str:
    """The text of an exception for the model."""
    error = _unwrapped(error)
    if isinstance(error, (ToolFailed, OutcomeUnknown)):
        return text_of(error)
    if isinstance(error, Retry):
        return text_of(error) or "Try again."
    return cause_of(error)


def _unwrapped(error: Exception) -> Exception:
    """The exception in a group of one, as task groups raise."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


# -------------------------------------------------------------------------- the middleware


async def _call_through_hooks(run: Run, ready: ReadyCall) -> Any:
    """The call inside all `wrap_tool_call` hooks. Their own exceptions are failures of the hook.

    `raised` has the errors of the tool, which a hook may turn into a result; `ended` has what ends
    the call whatever a hook makes of it: also the failure of a hook inside it, and of the store
    (test_a_wrapper_that_fails_inside_another_one_fails_the_run_whatever_that_one_does).
    """
    raised: list[Exception] = []
    ended: list[BaseException] = []
    entered = False

    async def innermost(call: ToolCall) -> Any:
        nonlocal entered
        if ended:
            raise ended[0]  # also if the hook caught it and calls `next` again
        if entered and not ready.tool.idempotent:
            raise UsageError(f"next was called twice for {ready.tool.name!r}: it is not idempotent")
        try:
            if entered:
                record_started(run, ready)
                await run.durable()
            entered = True
            return await _tried(run, await _as_changed(run, ready, before, call))
        except (_CallEnded, HookFailed, JournalFailed) as end:
            ended.append(end)
            raise
        except Exception as error:
            raised.append(error)
            raise

    original = as_tool_call(run, ready)
    before = to_json(original.arguments)  # a hook may change them in place
    chain: Callable[[ToolCall], Any] = innermost
    for hook in reversed(run.definition.hooks.wrap_tool_call):
        chain = _link(run, hook, chain, raised, ended, original)
    try:
        return await _unless_ended(run, chain(original), ended)
    except HookFailed:
        if not entered:  # the tool did not run, so the call is not in doubt
            _record_not_run(run, ready.call)
        raise


def _record_not_run(run: Run, call: Call) -> None:
    part = make_part(
        run, call, "Not run: a middleware failed before it was started.", "interrupted"
    )
    run.record(Result(call_key=call.key, part=part))


async def _unless_ended(run: Run, chain: Awaitable[Any], ended: list[BaseException]) -> Any:
    """What the hooks return, unless something ended the call inside them."""
    try:
        returned = await chain
    except BaseExceptionGroup as group:  # a hook called `next` in a task group
        _uncancel_after_task_group(run)
        if ended:
            raise ended[0] from group
        signal = _control_signal(group)
        if signal is None:
            raise
        raise signal from group
    if ended:
        raise ended[0]
    return returned


def _check_passed_on(call: object) -> None:
    """Raise a `UsageError` for what a hook must not pass to `next`: the hook has failed, no tool.

    Checked where it is passed on, so that the error names the middleware that did it.
    """
    if not isinstance(call, ToolCall):
        raise UsageError(f"next takes the call, or call.replace(arguments), got {shown(call)}")
    arguments = call.arguments
    if isinstance(arguments, dict) and all(isinstance(key, str) for key in arguments):
        with contextlib.suppress(NotJsonError):
            as_json(arguments)
            return
    checked_json(arguments, what=f"next(call): `call.arguments` for {call.tool_name!r}")


async def _as_changed(run: Run, ready: ReadyCall, before: bytes, call: ToolCall) -> ReadyCall:
    """The call as the middleware passes it on; with other arguments it may need an approval."""
    if to_json(call.arguments) == before:
        return ready
    changed = ReadyCall(ready.call, ready.tool, ready.tool.revalidate(call.arguments))
    if is_own(ready.call):
        tool_call = as_tool_call(run, changed)
        requests = await requests_about(run, [tool_call])
        if requests:
            raise _NeedsDecision(tool_call, requests)
    return changed


def _link(
    run: Run,
    hook: Hook,
    inner: Callable[[ToolCall], Any],
    raised: list[Exception],
    ended: list[BaseException],
    original: ToolCall,
) -> Callable[[ToolCall], Any]:
    passed_on = False

    async def rest(call: ToolCall) -> Any:
        nonlocal passed_on
        _check_passed_on(call)
        passed_on = True
        return await inner(call)

    async def link(call: ToolCall) -> Any:
        try:
            return await hook.around(run, call, rest)
        except Exception as error:
            if ended and error is not ended[0]:
                raise ended[0] from error
            if ended or any(error is known for known in raised):
                raise  # what ended the call, or the tool's own error
            signal = _control_signal(error)
            if isinstance(signal, _ToolStop):
                ended.append(signal)
                raise signal from error
            if isinstance(signal, _ToolInterrupt) and not passed_on:
                asked = _HookAsks(original, interrupts_in(error), hook.failure(error))
                ended.append(asked)
                raise asked from error
            failed = HookFailed(hook.failure(error))
            ended.append(failed)
            raise failed from error

    return link


# -------------------------------------------------------------------------------- the body


def _tried(run: Run, ready: ReadyCall) -> Awaitable[Any]:
    """What the tool's function returns; it is called again where its policy says so."""
    if ready.tool.retry is None:
        return _body(run, ready)

    async def begin_again() -> None:
        record_started(run, ready)
        await run.durable()

    body = partial(_body, run, ready)
    return with_retries(run, ready.call, ready.tool.retry, body, begin_again)


async def _body(run: Run, ready: ReadyCall) -> Any:
    """The tool's function, and right before it the last checks.

    Nothing is awaited between the last check and the call, but a plain function may wait for a
    thread.
    """
    tool, call = ready.tool, ready.call
    if run.file_edits:  # of an attempt that failed: test_what_a_failed_attempt_has_changed_is_gone
        run.file_edits.pop(call.key, None)
    # A middleware may have changed the arguments that a person approved
    # (test_arguments_changed_behind_the_approval_are_asked_again).
    if call.requests and not answers_match(run, call, tool, canonical(ready)):
        raise _NeedsDecision(as_tool_call(run, ready))
    positional, keywords = tool.bind(ready.checked)
    if tool.takes_context:
        positional.insert(0, make_context(run, call))
    # Race: the lease may have ended since the call was started, and another host may own the agent
    # and run this call. The store refuses the result then, but cannot undo the effect
    # (test_a_build_with_one_rule_left_out_is_found_out). Between this line and the effect there is
    # still a gap. A function that runs in a thread is checked there once more.
    try:
        run.ledger.check_owner()
    except Fenced:
        # Race: the lease has run out, for the loop was blocked say, and the heartbeat is about to
        # renew it. To give up here would leave a doubt about a call that never ran
        # (test_a_call_whose_lease_has_run_out_waits_until_it_is_renewed).
        await run.ledger.wait_for_owner()
    entered: list[bool] = []
    try:
        if tool.timeout is None:
            if tool.is_async:
                return await tool.function(*positional, **keywords)
            return await _call_function(run, ready, positional, keywords, entered)
        with _given_up_after_limit(run, call, tool.timeout):
            async with asyncio.timeout(tool.timeout) as scope:
                return await _call_function(run, ready, positional, keywords, entered)
    except (Exception, BaseExceptionGroup) as error:
        if tool.timeout is not None and scope.expired():
            if tool.idempotent:
                raise TimeoutError(limit_text(tool, tool.timeout)) from None
            raise _TimedOut(entered=bool(entered)) from error
        if isinstance(error, BaseExceptionGroup):
            _uncancel_after_task_group(run)
        signal = _control_signal(error)
        if signal is None and not tool.idempotent:
            signal = _unknown_outcome(error)
        if signal is None:
            raise
        raise signal from error


def _unknown_outcome(error: BaseException) -> _InDoubt | None:
    for leaf in _leaves(error):
        if isinstance(leaf, OutcomeUnknown):
            return _InDoubt(text_of(leaf) or "the tool cannot know whether it took effect")
    return None


@contextlib.contextmanager
def _given_up_after_limit(run: Run, call: Call, limit: float) -> Iterator[None]:
    """Where the call goes on after its limit, a runtime gives the attempt up.

    The next one finds that the limit passed: an idempotent call is not called once more.
    """
    if run.abandon_later is None:
        yield
        return
    ending: asyncio.Task[None] | None = None
    ledger = run.root.ledger

    def limit_passed() -> None:
        nonlocal ending
        assert run.abandon_later is not None, "checked above"
        ledger.on_fence += (record,)
        ending = run.abandon_later()

    def record() -> None:
        run.ledger.record(Once(key=LIMIT_PASSED + call.key, value=limit))

    timer = asyncio.get_running_loop().call_later(limit, limit_passed)
    try:
        yield
    finally:
        timer.cancel()
        if ending is not None:
            ending.cancel()
            ledger.on_fence = tuple(each for each in ledger.on_fence if each is not record)


def _control_signal(error: BaseException) -> BaseException | None:
    """What an exception of a tool asks of the run, if it is more than an error of the tool.

    In an exception group it is found at any depth, whatever else is there. A store that
    failed comes first, then a halt, then questions, then a stop.
    """
    leaves = list(_leaves(error))
    for leaf in leaves:
        if isinstance(leaf, JournalFailed):
            return leaf
    halts = [leaf for leaf in leaves if isinstance(leaf, Halt)]
    if halts:
        return _ToolHalt(halts[0])
    interrupts = [leaf for leaf in leaves if isinstance(leaf, Interrupt)]
    suspended = any(isinstance(leaf, (CallSuspended, AttemptEnded)) for leaf in leaves)
    if interrupts:
        return _ToolInterrupt(interrupts, child_suspended=suspended)
    if suspended:
        return CallSuspended()
    signals = StopSignals(tuple(leaf.signal for leaf in leaves if isinstance(leaf, StopAgent)))
    return None if signals.highest is None else _ToolStop(signals.highest)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, at any depth; of any other exception, the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


async def _call_function(
    run: Run,
    ready: ReadyCall,
    positional: list[Any],
    keywords: dict[str, Any],
    entered: list[bool],
) -> Any:
    """Call the function; `entered` is not empty as soon as its body runs."""
    tool = ready.tool
    if tool.is_async:
        entered.append(True)
        return await tool.function(*positional, **keywords)
    if tool.inline:
        entered.append(True)
        returned = tool.function(*positional, **keywords)
    else:

        def on_late(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and _accepts_late_result(run):
                _record_late_result(run, ready, done.result())

        def in_thread() -> Any:
            # Race: the lease may end while the call waits for a thread
            # (test_a_call_whose_lease_has_run_out_is_not_run_when_it_is_lost).
            run.ledger.check_owner()
            # Race: the time limit may pass meanwhile. A call whose body was not entered is not in
            # doubt: see `timed_out_result`.
            entered.append(True)
            return tool.function(*positional, **keywords)

        while True:
            try:
                returned = await run.threads.run(in_thread, on_late=on_late)
                break
            except Fenced:
                if entered:
                    raise  # the tool's own, of another agent
                await run.ledger.wait_for_owner()
    # A plain function may return the coroutine of an async one.
    return await returned if inspect.isawaitable(returned) else returned


def _accepts_late_result(run: Run) -> bool:
    """Whether a record made now is still read: while the run goes on, or by an actor's ledger."""
    outlives = run.root.ledger.outlives_run
    return not run.root.closed if outlives is None else outlives


def _record_late_result(run: Run, ready: ReadyCall, returned: Any) -> None:
    """An abandoned call returned after all: its effect is known, so it is in doubt no longer.

    Race: since its time limit or cancellation the call's own agent, or its parents, may have ended.
    - The doubt is recorded: it is settled, in the agent that holds it now
      (`test_a_late_result_settles_the_doubt`,
      `test_a_late_result_settles_the_doubt_after_a_run_was_stopped`).
    - The run goes on and a person is asked about the doubt: the result is recorded, and that
      withdraws the request (`test_a_late_result_settles_a_doubt_that_is_to_be_asked_about`).
    - Otherwise there is nothing to settle.
    """
    call, place = ready.call, run
    while place.parent is not None and place.ledger.state is not place.state:
        place = place.parent  # this agent is gone from the state: its caller has its doubts
    if call.key in place.state.doubts:
        place.record(Settled(call_key=call.key, how="late result"))
    elif place is not run or run.closed:
        return
    elif call.result is None and any(request.kind == "doubt" for request in call.pending_requests):
        run.record(result_of(run, ready, returned))

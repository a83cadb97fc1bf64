"""One tool call: through the middleware around it into the tool's body, and out with a result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from understudy._base.error_texts import error_text
from understudy._base.json_values import text_of
from understudy.errors import AgentFailed, JournalFailed, RecordRefused, ToolRaised, WaitEnded
from understudy.modes.steps.questions import ask_about_call
from understudy.modes.steps.run_end import end_agents_of
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    record_asked_now,
    request_again,
)
from understudy.modes.steps.tool_call.body import tried
from understudy.modes.steps.tool_call.checks import ask_check
from understudy.modes.steps.tool_call.ends import (
    DeniedByRule,
    Held,
    HookAsks,
    InDoubt,
    NeedsDecision,
    NotEntered,
    ToolHalt,
    ToolInterrupt,
    ToolStop,
)
from understudy.modes.steps.tool_call.grants import GRANT_OVER
from understudy.modes.steps.tool_call.middleware import call_through_hooks, record_not_run
from understudy.modes.steps.tool_call.results import (
    as_edited,
    cancelled_inside_result,
    closes_turn,
    denied_by_rule,
    failed_result,
    found_result,
    halt_result,
    in_doubt_result,
    is_sound,
    not_entered_result,
    not_kept_result,
    questions_asked,
    refused_result,
    result_of,
    stop_result,
    with_files,
)
from understudy.run.child_calls import CallSuspended, wait_for_parts
from understudy.run.hooks import HookFailed
from understudy.run.run import AttemptEnded, Run
from understudy.state.children import agents_of_call
from understudy.state.folds.ends import UNKNOWN_BEFORE, with_done
from understudy.state.records import Result, Suspended, set_closes_turn
from understudy.state.run_state import Call
from understudy.tools import OutcomeUnknown
from understudy.tools.result import FAILURES, RETRIES, RemoteToolError, ResultLost
from understudy.tools.tool_errors import log_tool_error

_ON_PURPOSE = (*RETRIES, *FAILURES, RemoteToolError, OutcomeUnknown, AgentFailed, WaitEnded)
"""What a tool raises for the model, or what another part of the run raises through it."""


async def invoke(run: Run, ready: ReadyCall) -> None:
    """Run the call through the middleware, and record its result.

    For a call in doubt, its check is asked instead.
    """
    # Race: a cancellation of this task, and a CancelledError that the tool raises because something
    # that it waited for was cancelled, look the same. The task's count of cancel requests tells
    # them apart.
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0

    def cancelled() -> bool:
        return task is not None and task.cancelling() > cancelled_before

    try:
        if ready.call.checks and ready.call.check is not None:
            result = found_result(run, ready, await ask_check(run, ready))
        else:
            of_call = _result if run.instrument is None else _watched
            result = await of_call(run, ready, cancelled)
    except asyncio.CancelledError:
        if cancelled():
            # No result is recorded: only a recorded cancellation ends a run, and any other is a
            # crash, after which the call is in doubt
            # (test_cancelling_an_execution_cancels_its_tools_and_passes_on). A call that is known
            # to have done nothing is not in doubt.
            note_not_begun(run, [ready])
            raise
        result = cancelled_inside_result(run, ready)
        if ready.call.key in run.not_begun and not _was_unknown(ready.call):
            text = "It did nothing: what it waited for before its effect was cancelled."
            result = replace(failed_result(run, ready.call, text), not_entered=True)
    except (CallSuspended, AttemptEnded) as ended:
        if isinstance(ended, AttemptEnded):
            run.stopped_by = ended.stop or run.stopped_by
        await _suspend(run, ready)
        return
    edits = run.file_edits.pop(ready.call.key, None) if run.file_edits else None
    if result is not None:
        await end_agents_of(run, ready.call.key)
        if edits is not None:
            result = with_files(run, ready, result, edits)
        if closes_turn(run, ready.call, result):
            set_closes_turn(result, True)
        try:
            if is_sound(result):
                run.ledger.record_sound(result)
            else:
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


def note_not_begun(run: Run, batch: Iterable[ReadyCall]) -> None:
    """Record of each of these calls that was cancelled before its effect that it did nothing."""
    for call in (ready.call for ready in batch):
        if call.key not in run.not_begun or not call.running:
            continue
        # What the call did in a point, or by an agent, stands.
        has_done = call.points or agents_of_call(run.state.children, call.key)
        # If the ledger takes no more records, the call is in doubt, as after a crash.
        with contextlib.suppress(JournalFailed):
            run.record(Suspended(call_key=call.key, not_entered=not has_done))


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
            returned, entered = await call_through_hooks(run, ready)
        else:
            returned, entered = await tried(run, ready), True
        result = result_of(run, ready, returned)
        return result if entered else replace(result, not_entered=True)
    except ToolInterrupt as ended:
        if ended.child_suspended:
            await _suspend(run, ready)
        return questions_asked(run, ready, ended.interrupts)
    except ToolHalt as ended:
        return halt_result(run, ready, ended.halt, _doubt_beside(run, ready, ended.doubt))
    except NeedsDecision as ended:
        record_asked_now(run, ended.ready, ended.asked, not_entered=True)
        if ended.ended:
            await request_again(run, ended.ready, ended.ended, why=GRANT_OVER, not_entered=True)
        elif not ended.asked:
            await request_again(run, ended.ready, not_entered=True, why=ended.why)
        return None
    except HookAsks as ended:
        try:
            ask_about_call(run, ended.call, ended.interrupts, ended.error)
        except HookFailed:
            record_not_run(run, call)
            raise
        return None
    except ToolStop as ended:
        doubt = _doubt_beside(run, ready, ended.doubt)
        stopped = stop_result(run, call, ended.signal, doubt)
        return replace(stopped, not_entered=ended.is_before_body)
    except DeniedByRule as ended:
        return replace(denied_by_rule(run, call, ended.text), not_entered=True)
    except Held as held:
        run.not_begun |= {call.key}
        note_not_begun(run, [ready])
        raise AttemptEnded(held.stop) from None
    except NotEntered:
        if _was_unknown(call):
            return in_doubt_result(run, call, "it was tried again, and no thread was free for it")
        return not_entered_result(run, ready)
    except InDoubt as ended:
        if cancelled():
            raise asyncio.CancelledError from ended  # as below
        _note_error(run, ready, ended.error)
        return in_doubt_result(run, call, ended.reason)
    except ResultLost as lost:
        return not_kept_result(run, call, text_of(lost))
    except (HookFailed, JournalFailed):
        raise
    except Exception as error:
        if cancelled():
            # Race: the cancellation made the tool raise this error half way. That is no failure
            # that the model may repair by calling again: the call was cut off
            # (test_a_tool_that_fails_because_it_is_interrupted_is_in_doubt,
            # test_an_idempotent_call_that_fails_because_it_is_interrupted_keeps_its_key).
            raise asyncio.CancelledError from error
        _note_error(run, ready, error)
        if _was_unknown(call):
            reason = f"it was tried again, which raised {error_text(error)}"
            return in_doubt_result(run, call, reason)
        return failed_result(run, call, as_edited(_failure_text(error), ready.edited))


def _note_error(run: Run, ready: ReadyCall, error: BaseException | None) -> None:
    """Log an error that the tool raised by accident; note it if the run is to fail by it."""
    if not isinstance(error, Exception):
        return
    error = _unwrapped(error)
    if isinstance(error, _ON_PURPOSE):
        return
    own, of_runtime = run.definition.tool_defaults.errors, run.tool_defaults.errors
    how = "raise" if of_runtime == "raise" else own or of_runtime or "log"
    has_no_deps = run.deps is None and isinstance(error, AttributeError) and error.obj is None
    log_tool_error(
        ready.tool,
        error,
        name=ready.tool.name,
        agent=run.definition.name,
        agent_id=run.root.agent_id,
        run_id=run.root.current.run_id,
        hint=" (the run has no deps)" if has_no_deps and ready.tool.takes_context else "",
        now=run.clock.monotonic(),
        with_traceback=how == "traceback",
    )
    if how == "raise":
        name, key = ready.tool.name, ready.call.key
        raised = ToolRaised(tool=name, call_key=key, cause=error_text(error))
        raised.__cause__ = error
        place: Run | None = run
        while place is not None:  # the agents above would get the error as that of an agent
            place.tool_raised = place.tool_raised or raised
            place = place.parent


def _was_unknown(call: Call) -> bool:
    """Whether an earlier attempt may have taken effect, whatever this attempt says.

    The model's next call would have another key.
    """
    return call.unknown and call.effect == "idempotent"


def _doubt_beside(run: Run, ready: ReadyCall, doubt: str | None) -> str | None:
    """The doubt about a call that ended the run: its own, or that of an attempt before."""
    if doubt is None and _was_unknown(ready.call):
        doubt = UNKNOWN_BEFORE
    return None if doubt is None else with_done(run.state, ready.call, doubt)


async def _suspend(run: Run, ready: ReadyCall) -> None:
    await wait_for_parts(run, ready.call)
    if ready.call.running:  # otherwise the point that the call has reached says so
        run.record(Suspended(call_key=ready.call.key))


def _failure_text(error: Exception) -> str:
    """The text of an exception for the model."""
    error = _unwrapped(error)
    if isinstance(error, (*FAILURES, RemoteToolError, OutcomeUnknown)):
        return text_of(error)
    if isinstance(error, RETRIES):
        return text_of(error) or "Try again."
    return error_text(error)


def _unwrapped(error: Exception) -> Exception:
    """The exception in a group of one, as task groups raise."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error

"""The middleware around a tool call: what it may change, and whose failure an exception is."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_core import to_json

from understudy._base.json_values import NotJsonError, as_json, checked_json, shown
from understudy.errors import JournalFailed, UsageError
from understudy.modes.steps.questions import interrupts_in, is_own
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    as_tool_call,
    canonical,
)
from understudy.modes.steps.tool_call.body import record_started, tried
from understudy.modes.steps.tool_call.ends import (
    CallEnded,
    HookAsks,
    InDoubt,
    NeedsDecision,
    ToolInterrupt,
    ToolStop,
    control_signal,
    uncancel_after_task_group,
)
from understudy.modes.steps.tool_call.gates import requests_about
from understudy.modes.steps.tool_call.results import make_part
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.folds.ends import in_part
from understudy.state.records import Result
from understudy.state.run_state import Call

GIVEN_UP = "a middleware gave it up before it had answered"


async def call_through_hooks(run: Run, ready: ReadyCall) -> tuple[Any, bool]:
    """The call inside all `wrap_tool_call` hooks; what they return, and whether they called it.

    Their own exceptions are failures of the hook.

    `raised` has the errors of the tool, which a hook may turn into a result; `ended` has what ends
    the call whatever a hook makes of it: also the failure of a hook inside it, and of the store
    (test_a_wrapper_that_fails_inside_another_one_fails_the_run_whatever_that_one_does).
    """
    raised: list[Exception] = []
    ended: list[BaseException] = []
    entered = False
    unanswered = 0
    """How often the body was entered, and has neither returned nor raised since."""

    async def innermost(call: ToolCall) -> Any:
        nonlocal entered, unanswered
        if ended:
            raise ended[0]  # also if the hook caught it and calls `next` again
        try:
            if entered and not _may_repeat(ready.call):
                raise InDoubt("a middleware asked for it once more, which may repeat its effect")
            if entered:
                record_started(run, ready, goes_on=True)
                await run.durable()
            entered = True
            changed = await _as_changed(run, ready, before, call)
            unanswered += 1
            try:
                returned = await tried(run, changed)
            except Exception:
                unanswered -= 1
                raise
            unanswered = 0  # under one key a result speaks for each attempt
            return returned
        except (CallEnded, HookFailed, JournalFailed) as end:
            ended.append(end)
            raise
        except Exception as error:
            raised.append(error)
            raise

    def is_given_up() -> bool:
        """Whether a hook has cancelled the body, or left it in a task of its own."""
        return unanswered > 0 and ready.call.effect != "read_only"

    original = as_tool_call(run, ready)
    before = to_json(original.arguments)  # a hook may change them in place
    chain: Callable[[ToolCall], Any] = innermost
    for hook in reversed(run.definition.hooks.wrap_tool_call):
        chain = _link(run, hook, chain, raised, ended, original)
    try:
        returned = await _unless_ended(run, chain(original), ended)
    except ToolStop as stop:
        stop.is_before_body = not entered
        if stop.doubt is None and is_given_up():
            stop.doubt = GIVEN_UP
        raise
    except JournalFailed:
        raise
    except HookFailed:
        if not entered:  # the tool did not run, so the call is not in doubt
            record_not_run(run, ready.call)
        raise
    except Exception as error:
        if is_given_up():
            raise InDoubt(GIVEN_UP) from error
        raise
    if is_given_up():  # what the hook returns is no result of the tool
        raise InDoubt(GIVEN_UP)
    return returned, entered


def _may_repeat(call: Call) -> bool:
    """Whether a hook may call `next` again: it does not harm, as the tool was declared."""
    return call.effect != "effects"


async def _unless_ended(run: Run, chain: Awaitable[Any], ended: list[BaseException]) -> Any:
    """What the hooks return, unless something ended the call inside them."""
    try:
        returned = await chain
    except BaseExceptionGroup as group:  # a hook called `next` in a task group
        uncancel_after_task_group(run)
        if ended:
            raise ended[0] from group
        signal = control_signal(group)
        if signal is None:
            raise
        raise signal from group
    if ended:
        raise ended[0]
    return returned


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
            signal = control_signal(error)
            if isinstance(signal, ToolStop):
                ended.append(signal)
                raise signal from error
            if isinstance(signal, ToolInterrupt) and not passed_on:
                asked = HookAsks(original, interrupts_in(error), hook.failure(error))
                ended.append(asked)
                raise asked from error
            failed = HookFailed(hook.failure(error))
            ended.append(failed)
            raise failed from error

    return link


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
    checked = ready.tool.revalidate(call.arguments)
    made = ready.tool.made(call.arguments, checked) or call.arguments
    changed = ReadyCall(ready.call, ready.tool, checked, made=made)
    if ready.tool.key is not None:
        _check_same_key(ready, changed)
    if is_own(ready.call):
        requests = await requests_about(run, [as_tool_call(run, changed)])
        if requests:
            raise NeedsDecision(changed, requests)
    return changed


def _check_same_key(ready: ReadyCall, changed: ReadyCall) -> None:
    """Raise a `UsageError` if the call has another key than the one that it has taken."""
    rule, name = ready.tool.key, ready.tool.name
    assert rule is not None, "only of a tool with a key"
    if rule.of(canonical(changed), name) != rule.of(canonical(ready), name):
        raise UsageError(
            f"Tool {name!r} was not run: a middleware has changed its arguments, and with them the "
            "key by which calls are equal. Make the key of what no middleware changes"
        )


def record_not_run(run: Run, call: Call) -> None:
    text = "Not run: a middleware failed before it was started."
    if call.attempts - 1 > call.not_entered:
        text = in_part(run.state, call, "a middleware failed before it was continued")
    part = make_part(run, call, text, "interrupted")
    run.record(Result(call_key=call.key, part=part, not_entered=True))

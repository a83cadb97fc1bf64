"""The middleware around a tool call: what it may change, and whose failure an exception is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from understudy._base.json_values import NotJsonError, as_json, checked_json, shown
from understudy.errors import JournalFailed, UsageError
from understudy.modes.steps.hooks_around import HooksAround
from understudy.modes.steps.questions import interrupts_in, is_own
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    as_tool_call,
    canonical,
)
from understudy.modes.steps.tool_call.body import record_started, tried
from understudy.modes.steps.tool_call.ends import (
    CallEnded,
    DeniedByRule,
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
from understudy.modes.steps.tool_call.rules import denial_in, verdict_on
from understudy.modes.steps.tool_call.votes import AskedNow
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.folds.ends import in_part
from understudy.state.records import Result
from understudy.state.run_state import Call

GIVEN_UP = "a middleware gave it up before it had answered"


async def call_through_hooks(run: Run, ready: ReadyCall) -> tuple[Any, bool]:
    """The call inside all `wrap_tool_call` hooks; what they return, and whether they called it."""
    around = _CallInHooks(run, ready)
    try:
        returned = await around.through(run, run.definition.hooks.wrap_tool_call, around.original)
    except asyncio.CancelledError:
        if not around.entered:
            run.not_begun |= {ready.call.key}
        raise
    except ToolStop as stop:
        stop.is_before_body = not around.entered
        if stop.doubt is None and around.is_given_up:
            stop.doubt = GIVEN_UP
        raise
    except JournalFailed:
        raise
    except HookFailed:
        if not around.entered:  # the tool did not run, so the call is not in doubt
            record_not_run(run, ready.call)
        raise
    except Exception as error:
        if around.is_given_up:
            raise InDoubt(GIVEN_UP) from error
        raise
    if around.is_given_up:  # what the hook returns is no result of the tool
        raise InDoubt(GIVEN_UP)
    return returned, around.entered


class _CallInHooks(HooksAround[ToolCall, Any]):
    """A call of a tool in the hooks around it."""

    def __init__(self, run: Run, ready: ReadyCall) -> None:
        self._run = run
        self._ready = ready
        self.original = as_tool_call(run, ready)
        self._before = to_json(self.original.arguments)  # a hook may change them in place
        self._raised: list[Exception] = []
        """The errors of the tool, which a hook may turn into a result."""
        self.entered = False
        self._unanswered = 0
        """The number of entries into the body that have neither returned nor raised yet."""

    @property
    def is_given_up(self) -> bool:
        """Whether a hook has cancelled the body, or left it in a task of its own."""
        return self._unanswered > 0 and self._ready.call.effect != "read_only"

    async def innermost(self, passed: ToolCall) -> Any:
        run, ready = self._run, self._ready
        if self.ended is not None:
            raise self.ended  # also if the hook caught it and calls `next` again
        try:
            if self.entered and not _may_repeat(ready.call):
                raise InDoubt("a middleware asked for it once more, which may repeat its effect")
            if self.entered:
                record_started(run, ready, goes_on=True)
                await run.durable()
            self.entered = True
            changed = await _as_changed(run, ready, self._before, passed)
            self._unanswered += 1
            try:
                returned = await tried(run, changed)
            except Exception:
                self._unanswered -= 1
                raise
            self._unanswered = 0  # under one key a result counts for each attempt
            return returned
        except (CallEnded, HookFailed, JournalFailed) as end:
            self.ended = end
            raise
        except Exception as error:
            self._raised.append(error)
            raise

    async def through(self, run: Run, hooks: Sequence[Hook], given: ToolCall) -> Any:
        try:
            return await super().through(run, hooks, given)
        except BaseExceptionGroup as group:  # a hook called `next` in a task group
            uncancel_after_task_group(run)
            signal = self.ended or control_signal(group)
            if signal is None:
                raise
            raise signal from group

    def raised_inside(self, error: BaseException) -> bool:
        return any(error is known for known in self._raised)

    def check_passed_on(self, hook: Hook, given: ToolCall, passed: object) -> None:
        if not isinstance(passed, ToolCall):
            raise UsageError(
                f"next takes the call, or call.replace(arguments), got {shown(passed)}"
            )
        arguments = passed.arguments
        if isinstance(arguments, dict) and all(isinstance(key, str) for key in arguments):
            with contextlib.suppress(NotJsonError):
                as_json(arguments)
                return
        checked_json(arguments, what=f"next(call): `call.arguments` for {passed.tool_name!r}")

    def end_by(
        self, hook: Hook, given: ToolCall, error: BaseException, *, has_passed_on: bool
    ) -> BaseException:
        signal = control_signal(error)
        if isinstance(signal, ToolStop):
            return signal
        if isinstance(signal, ToolInterrupt) and not has_passed_on:
            return HookAsks(self.original, interrupts_in(error), hook.failure(error))
        return super().end_by(hook, given, error, has_passed_on=has_passed_on)


def _may_repeat(call: Call) -> bool:
    """Whether a hook may call `next` again: the tool was declared safe to repeat."""
    return call.effect != "effects"


async def _as_changed(run: Run, ready: ReadyCall, before: bytes, call: ToolCall) -> ReadyCall:
    """The call as the middleware passes it on. With other arguments it may need an approval."""
    if to_json(call.arguments) == before:
        return ready
    checked = ready.tool.revalidate(call.arguments)
    made = ready.tool.made(call.arguments, checked) or call.arguments
    changed = ReadyCall(ready.call, ready.tool, checked, made=made)
    if ready.tool.key is not None:
        _check_same_key(ready, changed)
    if is_own(ready.call):
        changed_call = as_tool_call(run, changed)
        denied = denial_in(verdict_on(run, changed_call))
        if denied is not None:
            raise DeniedByRule(denied)
        requests = await requests_about(run, [changed_call])
        if requests:
            raise NeedsDecision(changed, [AskedNow(each) for each in requests])
    return changed


def _check_same_key(ready: ReadyCall, changed: ReadyCall) -> None:
    """Raise a `UsageError` if the call has another key than the one that it has taken."""
    rule, name = ready.tool.key, ready.tool.name
    assert rule is not None, "only of a tool with a key"
    if rule.of(canonical(changed), name) != rule.of(canonical(ready), name):
        raise UsageError(
            f"Tool {name!r} was not run: a middleware has changed its arguments, and with them "
            "its key, by which calls are equal. Make the key only of arguments that no "
            "middleware changes"
        )


def record_not_run(run: Run, call: Call) -> None:
    text = "Not run: a middleware failed before it was started."
    if call.attempts - 1 > call.not_entered:
        text = in_part(run.state, call, "a middleware failed before it was continued")
    part = make_part(run, call, text, "interrupted")
    run.record(Result(call_key=call.key, part=part, not_entered=True))

"""Further attempts at a call that is safe to repeat: short waits in memory, long ones by a due.

The policy is Tenacity's. Each failure is a recorded point of the call, so a retry survives the end
of the process, and the count of failures continues. A long wait suspends the call, as a sleep of
the tool itself does: its agent may be passive meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from understudy._base.error_texts import error_text
from understudy._base.event_loops import is_cancelled
from understudy._base.json_values import shown
from understudy.errors import UnderstudyError, UsageError
from understudy.modes.steps.tool_call.arguments import ReadyCall
from understudy.modes.steps.tool_call.ends import InDoubt
from understudy.run.child_calls import CallSuspended, parts_of
from understudy.run.hooks import HookFailed
from understudy.run.run import Run
from understudy.run.waits.points import IN_PROCESS, RETRY
from understudy.state.records import PointAnswered, PointReached
from understudy.state.run_state import Call, Point
from understudy.tools import OutcomeUnknown
from understudy.tools.result import FAILURES, RETRIES, RemoteToolError, ResultLost

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

CANCELLED_INSIDE = "it was cancelled from within"
LONGEST = 100 * 365 * 86_400.0
SOON = (0.5, 2.0)
"""Seconds before each further attempt at a call without a policy whose effect is unknown. They are
waited for in memory."""
MOST = 1000
"""The maximum number of retries of a call, whatever its policy says."""

_NOT_AGAIN: tuple[type[Exception], ...] = (
    HookFailed,
    *RETRIES,
    *FAILURES,
    RemoteToolError,
    ResultLost,
)
"""Exceptions that are meant for the model, or are no error of the tool: they are not retried."""


async def with_retries(
    run: Run,
    ready: ReadyCall,
    body: Callable[[], Awaitable[Any]],
    begin_again: Callable[[], Awaitable[None]],
) -> Any:
    """What the body returns, in this attempt at the call or in a later one.

    A call of an idempotent tool of which nobody knows what it did runs again under its key: by the
    policy of the tool, or else twice, soon. Other errors are repeated by a policy alone.

    Args:
        run: the run of the call.
        ready: the call.
        body: the body of the tool.
        begin_again: records that the call starts again.

    Raises:
        Exception: the error of the last attempt.
        InDoubt: if nobody knows what the last attempt did.
        CallSuspended: if the next attempt is too far away to be waited for here.

    """
    call, policy = ready.call, ready.tool.retry
    while True:
        try:
            return await body()
        except asyncio.CancelledError as inside:
            if is_cancelled():
                raise
            is_unknown = call.effect != "read_only"
            failed: BaseException = InDoubt(CANCELLED_INSIDE) if is_unknown else inside
            error: Exception = OutcomeUnknown()
        except InDoubt as doubt:
            failed, is_unknown = doubt, True
            error = doubt.error if isinstance(doubt.error, Exception) else OutcomeUnknown()
        except _NOT_AGAIN:
            raise
        except Exception as raised:
            if isinstance(raised, UnderstudyError) and not raised.ends_with_runtime:
                raise  # the same error would come again
            failed, error, is_unknown = raised, raised, False
        if is_cancelled() or call.result is not None:
            raise failed
        now = run.clock.now()
        if policy is not None:
            seconds = await _seconds_until_next(policy, call, error, now)
        else:
            seconds = _seconds_by_default(call) if is_unknown else None
        if seconds is None:
            raise failed
        name = f"{RETRY}{len(_failures(call)) + 1}"
        due = now + timedelta(seconds=seconds)
        reason = failed.reason if isinstance(failed, InDoubt) else error_text(error)
        await _wait(run, call, name, due, seconds, reason, is_unknown=is_unknown)
        await begin_again()


def _seconds_by_default(call: Call) -> float | None:
    """Seconds to wait before a call in doubt runs again; None if it does not run again."""
    failures = len(_failures(call))
    return SOON[failures] if failures < len(SOON) else None


async def _wait(
    run: Run,
    call: Call,
    name: str,
    due: datetime,
    seconds: float,
    reason: str,
    *,
    is_unknown: bool,
) -> None:
    """Record the failure, and wait for the next attempt; or end this one."""
    parts = parts_of(run, call)
    is_long = seconds > IN_PROCESS
    run.record(
        PointReached(
            call_key=call.key,
            name=name,
            what="sleep",
            at=run.clock.now(),
            due=due,
            suspends=is_long and not parts.any_runs,
            reason=reason,
            unknown=is_unknown,
        )
    )
    if is_long:
        parts.suspended = True
        raise CallSuspended
    await _rest(seconds)
    over = PointAnswered(call_key=call.key, name=name, what="sleep", how="over", at=run.clock.now())
    run.record(over)


# A test may stand around this: `testing.seams`.
async def _rest(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _failures(call: Call) -> list[Point]:
    """The failures so far that were retried."""
    return [point for name, point in call.points.items() if name.startswith(RETRY)]


async def _seconds_until_next(
    policy: AsyncRetrying, call: Call, error: Exception, now: datetime
) -> float | None:
    """Seconds that the policy waits after this failure; None if it gives up.

    Raises:
        UsageError: if the policy returns something that is no time.

    """
    before = _failures(call)
    if len(before) >= MOST:
        return None
    from tenacity import RetryCallState  # the code that made the policy has loaded it

    state = RetryCallState(policy, None, (), {})
    state.attempt_number = len(before) + 1
    state.set_exception((type(error), error, error.__traceback__))
    # The run's clock counts, because earlier failures may have been in other processes.
    since = min((point.since for point in before if point.since is not None), default=now)
    state.start_time, state.outcome_timestamp = 0.0, (now - since).total_seconds()
    if not await _said(policy.retry, state):
        return None
    seconds = state.upcoming_sleep = await _said(policy.wait, state)
    if await _said(policy.stop, state):
        return None
    if not isinstance(seconds, (int, float)) or not 0 <= seconds <= LONGEST:
        raise UsageError(
            f"The retry policy of tool {call.part.tool_name!r} waits for {shown(seconds)}: it must "
            "be a number of seconds from 0 to 100 years"
        ) from error
    return float(seconds)


async def _said(part: Any, state: RetryCallState) -> Any:
    """The result of a part of a policy: a function of the state, async or plain, or None."""
    if part is None:
        return 0.0
    said = part(state)
    return await said if inspect.isawaitable(said) else said

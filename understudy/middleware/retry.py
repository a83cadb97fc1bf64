"""`Retry`: a model call that fails is made again, as a policy says."""

from __future__ import annotations

from typing import ClassVar

from pydantic_ai.messages import ModelResponse
from tenacity import AsyncRetrying, DoAttempt, DoSleep, RetryCallState, RetryError

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown, storable_text
from understudy.errors import BudgetUnknown, BudgetUsedUp, JournalFailed, UsageError
from understudy.interrupts import Defer
from understudy.middleware.base import Middleware, NextModelCall
from understudy.models.reply_checks import EmptyReply, RefusedReply
from understudy.run.hooks import HookFailed
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.run.waits.points import IN_PROCESS, RETRY
from understudy.state.run_state import Point

_FINAL = (RefusedReply, EmptyReply, HookFailed, JournalFailed, BudgetUsedUp, BudgetUnknown)
"""The errors that are not retried."""


class Retry(Middleware):
    """A middleware that repeats a model call that raises, by a policy of Tenacity.

    `Agent(retry=policy)` is short for it, as the innermost middleware. It does not repeat a call if
    a reply is refused or empty, because the same model would give the same reply again, or if a
    budget has no room.

    A wait of up to 5 seconds is in memory. For a longer wait the model call is put off: the run
    waits, as for `Defer`, and earlier failures still count. A call by `run.ask_model` always waits
    in memory.

    Args:
        policy: the errors that are retried, the number of retries, and the waits between them.

    Raises:
        UsageError: if `policy` is not a `tenacity.AsyncRetrying`.

    """

    stream_safe: ClassVar[bool] = True
    wraps_ask_model: ClassVar[bool] = True

    def __init__(self, policy: AsyncRetrying) -> None:
        if not isinstance(policy, AsyncRetrying):
            raise UsageError(f"Retry takes a tenacity.AsyncRetrying, got {shown(policy)}")
        self._policy = policy

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        policy = self._policy.copy()
        policy.begin()
        state = RetryCallState(policy, None, (), {})
        is_of_step = request.ask_key is None
        if is_of_step:
            state.attempt_number += _failures_before(run)
            state.start_time -= _seconds_before(run)
        while True:
            try:
                do = await policy.iter(retry_state=state)
            except RetryError as error:
                last = error.last_attempt.exception()
                raise (last if isinstance(last, Exception) else error) from error
            if isinstance(do, DoAttempt):
                try:
                    state.set_result(await next(request))
                except _FINAL:
                    raise  # the same error would come again, or it is no error of the model
                except Exception as error:
                    state.set_exception((type(error), error, error.__traceback__))
            elif not isinstance(do, DoSleep):
                assert isinstance(do, ModelResponse), "what a policy ends with is the result"
                return do
            elif do > IN_PROCESS and is_of_step:
                failed = state.outcome.exception() if state.outcome is not None else None
                reason = storable_text(error_text(failed)) if failed is not None else None
                raise Defer(do, key=f"{RETRY}{state.attempt_number}", reason=reason)
            else:
                state.prepare_for_next_attempt()
                slept = policy.sleep(do)
                if slept is not None:
                    await slept


def _points(run: Run) -> list[Point]:
    """The failures of this model call for which it was put off."""
    waited = run.current.model_call
    points = {} if waited is None else waited.call.points
    return [
        point
        for name, point in points.items()
        if name.startswith(RETRY) and name.removeprefix(RETRY).isdecimal()
    ]


def _failures_before(run: Run) -> int:
    return max((int(point.name.removeprefix(RETRY)) for point in _points(run)), default=0)


def _seconds_before(run: Run) -> float:
    """Seconds since the first failure, by the run's clock: failures may have been in other
    processes.
    """
    since = min((point.since for point in _points(run) if point.since is not None), default=None)
    return 0.0 if since is None else (run.clock.now() - since).total_seconds()

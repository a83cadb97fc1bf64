"""`Limits`: the maximum steps, tokens, USD, seconds and failed tool calls of a run.

It only emits stop signals. The pipeline stops the run, the same way for each signal, so a limit can
be overridden by `run.request_continuation`. It owns no interrupts.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, get_args

from pydantic_ai.messages import FinishReason

from understudy._base.json_values import checked_seconds
from understudy._base.usd import shown_usd
from understudy.errors import CostUnknown, UsageError
from understudy.middleware.base import Middleware
from understudy.models.prices import Prices, Pricing, amount
from understudy.run.hooks import HookFailed
from understudy.run.run import Run
from understudy.state.costs import unpriced
from understudy.stopping import StopSignal


class Limits(Middleware):
    """A middleware that stops a run at a limit. The state of the run keeps all its work.

    Each limit is checked before a step, with `>=`, so a running step may exceed it. A final answer
    is kept even if it exceeds a limit. All limits count over the whole run, including its resumes.
    None = no limit.

    Args:
        max_steps: the maximum number of model calls.
        max_tokens: the maximum number of input and output tokens, including all agents inside.
        max_cost: the maximum cost in USD, including all agents inside: a number, or a text such
            as `"0.50"`. Each reply is priced when it comes. A run whose model has no price does
            not begin. If only a reply shows that its cost is unknown, the run fails with
            `CostUnknown`.
        max_seconds: the maximum seconds spent running, without the waits for people.
        finish_reasons: the finish reasons that end the run, as `Completed`, once the tools of
            the reply are done: `stop`, `length`, `content_filter`, `tool_call`, `error`.
        max_consecutive_tool_errors: the maximum number of error results without a success
            between them.
        on_limit: what happens at a limit. `"stop"` ends the run as `Stopped`. `"generate"` lets
            the model answer once more, without a tool, and ends the run as
            `Completed(early_stopped=True)`; a run with an until tool is stopped nevertheless.
        pricing: the prices, as in `Runtime(pricing=)`; None = the prices of the runtime, or
            else published prices.

    Raises:
        UsageError: if a limit is invalid, such as 0, or if `pricing` is given without
            `max_cost`.

    """

    def __init__(
        self,
        max_steps: int | None = None,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        finish_reasons: Sequence[FinishReason] | None = None,
        max_consecutive_tool_errors: int | None = None,
        *,
        max_cost: Decimal | float | str | None = None,
        on_limit: Literal["stop", "generate"] = "stop",
        pricing: Pricing | None = None,
    ) -> None:
        self._max_steps = _count(max_steps, "max_steps")
        self._max_tokens = _count(max_tokens, "max_tokens")
        self._max_errors = _count(max_consecutive_tool_errors, "max_consecutive_tool_errors")
        if max_seconds is not None:
            checked_seconds(max_seconds, what="Limits(max_seconds=)")
        self._max_seconds = max_seconds
        self._finish_reasons = _reasons(finish_reasons)
        if on_limit not in ("stop", "generate"):
            raise UsageError(f"Limits: `on_limit` must be 'stop' or 'generate', got {on_limit!r}")
        self._answer = on_limit == "generate"
        self.keeps_time: bool = max_seconds is not None
        self._max_cost = None if max_cost is None else amount(max_cost, what="Limits(max_cost=)")
        if self._max_cost == 0:
            raise UsageError("Limits: `max_cost` must be more than 0, or None for no limit")
        if pricing is not None and max_cost is None:
            raise UsageError("Limits: `pricing` is for `max_cost`: give both, or Runtime(pricing=)")
        self.needs_cost: bool = max_cost is not None
        self.prices: Prices | None = Prices.given(pricing, what="Limits(pricing=)")

    async def before_step(self, run: Run) -> None:
        if self._max_cost is not None and (unknown := unpriced(run.usage)):
            raise HookFailed(_unknown(self.name, run, unknown))
        for signal in self._reached(run):
            run.signal(signal, answer=self._answer)

    def _reached(self, run: Run) -> list[StopSignal]:
        """A signal for each limit that is reached.

        The messages are the same for each call with one state, because the same signal is recorded
        once.
        """
        current = run.current
        found = []
        if self._max_steps is not None and current.model_calls >= self._max_steps:
            message = f"{current.model_calls} of {self._max_steps} steps were made"
            found.append(StopSignal.steps_limit(message, source="limits.max_steps"))
        tokens = run.usage.total_tokens
        if self._max_tokens is not None and tokens >= self._max_tokens:
            message = f"{tokens} of {self._max_tokens} tokens were used"
            found.append(StopSignal.token_limit(message, source="limits.max_tokens"))
        if self._max_cost is not None and (cost := run.cost.recorded) >= self._max_cost:
            message = f"{shown_usd(cost)} of {shown_usd(self._max_cost)} were spent"
            found.append(StopSignal.cost_limit(message, source="limits.max_cost"))
        if self._max_seconds is not None and run.seconds >= self._max_seconds:
            message = f"its {self._max_seconds:g} seconds were over"
            found.append(StopSignal.time_limit(message, source="limits.max_seconds"))
        if self._max_errors is not None and current.tool_errors >= self._max_errors:
            message = f"{current.tool_errors} tool calls failed in a row"
            found.append(
                StopSignal.retry_limit(message, source="limits.max_consecutive_tool_errors")
            )
        return found

    async def after_step(self, run: Run) -> None:
        turn = run.current.turn
        reason = turn.response.finish_reason if turn is not None else None
        if reason is not None and reason in self._finish_reasons:
            message = f"the model finished by {reason!r}"
            run.signal(StopSignal.finish_reason(message, source="limits.finish_reasons"))


def _unknown(middleware: str, run: Run, unknown: int) -> CostUnknown:
    models = [line.model for line in run.cost.lines if line.unknown and line.model]
    named = list(dict.fromkeys(models))
    return CostUnknown(middleware=middleware, hook="before_step", models=named, requests=unknown)


def _count(given: int | None, name: str) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise UsageError(
            f"Limits: `{name}` must be an integer of at least 1, or None for no limit, got "
            f"{given!r}"
        )
    return given


def _reasons(given: Sequence[FinishReason] | None) -> tuple[FinishReason, ...]:
    if given is None:
        return ()
    known = get_args(FinishReason)
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise UsageError(
            f"Limits: `finish_reasons` must be None or a non-empty list of {', '.join(known)}, "
            f"got {given!r}"
        )
    for reason in given:
        if reason not in known:
            raise UsageError(
                f"Limits: `finish_reasons` must hold any of {', '.join(known)}, got {reason!r}"
            )
    return tuple(given)

"""Whether a run continues: the step `check_stop`, and what else ends a run before its work is done.

- Stop signals: they are decided on at the boundary between two turns, by `check_stop` before a turn
  and by `continue_or_finish` after one. `end_by` says how signals end a run.
- Cancellation sources and the deadline: they are checked before each step. The deadline also
  interrupts a step in progress: `within_deadline`.
- A halt by a tool: it ends the whole tree of agents. The run waits to be dismissed: `halted`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from pydantic_ai.messages import ModelResponse

from understudy.errors import JournalFailed, NotHaltable, RunLimitExceeded, UntilToolNotCalled
from understudy.interrupts import Halt, Request
from understudy.models.attribution import for_itself
from understudy.models.messages import user_message
from understudy.modes.steps.conditions import acts_if
from understudy.outcomes import Outcome
from understudy.run.cancellation import CancellationSource, signal_of
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.run.waits.dues import end_reached
from understudy.state.continuation import allows_answer, continuation_of
from understudy.state.records import CancelRequested, EarlyStopBegun, End
from understudy.stopping import StopReason, StopSignal, StopSignals

ANSWER_NOW = (
    "You have reached the limit of what you may do here. Do not call any tools: give your final "
    "answer now, as well as you can with what you have found out so far, and say what is missing."
)
ANSWER_PROMPT = "run/early_stopping_prompt"
"""The key under which a run keeps a text of its own in place of `ANSWER_NOW`."""
RECHECK = 1.0
"""Seconds between two looks at the time of day, for a run that ends at a time of day."""
NO_ANSWER = "I reached the limit of what I may do here before I had an answer."
"""The text of a run that stopped early and whose last reply has no text."""


def _may_stop(run: Run) -> bool:
    current = run.current
    if current.turn is not None or current.closing is not None or current.early_stop is not None:
        return False
    if current.model_call is not None:
        return False  # the turn has begun: its model call waits, or waited
    if current.signals or run.timed or run.definition.hooks.before_step:
        return True
    return current.model_calls >= current.max_runs


@acts_if(_may_stop)
async def check_stop(run: Run) -> Outcome | None:
    """Call `before_step` before a turn. Then stop the run by an active signal or at `max_runs`.

    It does nothing if the model is to give its last answer now, or if the run is to end.
    """
    current = run.current
    if not _may_stop(run):
        return None
    if run.timed:
        run.keep_time()
    for hook in run.definition.hooks.before_step:
        await hook(run.threads, run)
    if current.signals:
        outcome = stop_before(run)
        if outcome is not None or current.early_stop is not None:
            return outcome
    if current.model_calls < current.max_runs:
        return None
    if current.early_stopping == "generate" and current.until_tool is None:
        _begin_early_stop(run)
        return None
    return run.failed(RunLimitExceeded(max_runs=current.max_runs))


# --------------------------------------------------------------------------- stop signals


def stop_before(run: Run) -> Outcome | None:
    """The outcome if an active signal ends the run before the next turn.

    None if the run continues, or if the model is to answer once more first.
    """
    decision = continuation_of(run.current)
    if not decision.should_stop:
        return None
    if allows_answer(run.current):
        _begin_early_stop(run)
        return None
    end = end_by(run, decision.signals, _last_text(run))
    if end.outcome == "stopped":
        return run.stopped(decision.signals)
    if end.outcome == "failed":
        return run.failed(until_tool_not_called(run))
    return run.completed(end.text)


def end_by(run: Run, signals: StopSignals, text: str) -> End:
    """How signals end the run: as stopped; completed if the strongest is not a forced stop."""
    highest = signals.highest
    assert highest is not None, "only called with at least one signal"
    data = signals.to_dict()
    if highest.reason.was_force_stopped:
        return End(outcome="stopped", signals=data)
    if run.current.until_tool is not None:
        return End(outcome="failed", error=until_tool_not_called(run).to_dict())
    if highest.reason is StopReason.COMPLETED:
        text = text or highest.message
    return End(outcome="completed", text=text, signals=data)


def until_tool_not_called(run: Run) -> UntilToolNotCalled:
    """The error of a run that ends without a result of its until tool."""
    current = run.current
    return UntilToolNotCalled(
        tools=current.until_tool or (), success_required=current.require_tool_success
    )


def _last_text(run: Run) -> str:
    """The text of the last reply in this run."""
    if run.current.turns == 0:
        return ""
    for message in reversed(run.state.messages):
        if isinstance(message, ModelResponse):
            return message.text or ""
    return ""


def _begin_early_stop(run: Run) -> None:
    own = run.current.once.get(ANSWER_PROMPT)
    prompt = own or run.definition.early_stopping_prompt or ANSWER_NOW
    message = for_itself(user_message(prompt, at=run.clock.now()))
    run.record(EarlyStopBegun(turn=run.current.turns, message=message))


# ------------------------------------------------------------- cancellation and deadline


async def check_sources(run: Run) -> None:
    """Record a cancellation if one of the cancellation sources says so."""
    for source in run.cancellation:
        if run.current.cancelled is not None:
            return
        signal = await _signal_from(run, source)
        if signal is not None:
            run.record(CancelRequested(signal=signal.to_dict()))


async def _signal_from(run: Run, source: CancellationSource) -> StopSignal | None:
    hook = Hook.of(source, "check", source.check)
    answer = await hook(run.threads, run.state)
    try:
        return signal_of(answer, source)
    except Exception as error:
        raise HookFailed(hook.failure(error)) from error


def deadline_reached(run: Run) -> CancelRequested:
    """The record of a cancellation by the run's deadline, or by the time at which it ends."""
    deadline, ends_at = run.current.deadline, run.current.ends_at
    if ends_at is not None and ends_at <= run.clock.now():
        return CancelRequested(signal=end_reached(ends_at).to_dict())
    signal = StopSignal.time_limit(
        f"its deadline of {deadline:g} seconds came", source="deadline", deadline=deadline
    )
    return CancelRequested(signal=signal.to_dict())


async def within_deadline(run: Run, pipeline: Awaitable[Outcome]) -> Outcome | None:
    """The outcome of the pipeline, or None if the deadline passed first.

    A model call or async tool is interrupted at once. The thread of a plain tool is abandoned.
    Async code that ignores its cancellation is waited for, until a runtime abandons the attempt.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def check() -> None:
        nonlocal timer
        left = run.seconds_left
        if left:  # the run's clock may be slower than the loop's, or may be set
            timer = loop.call_later(min(left, recheck), check)
            return
        # Race: the process may crash between the deadline and the end of what it interrupts. The
        # cancellation is recorded first, so that the next attempt ends the run as well
        # (test_the_wish_to_stop_is_recorded_before_anything_is_interrupted).
        # In a halted tree it is not recorded: the halt came first and takes precedence
        # (test_a_halt_stands_where_the_time_is_over_before_its_siblings_are_done).
        # A journal that refuses it refuses the next record too, and the run fails by that one.
        with suppress(JournalFailed):
            if run.current.cancelled is None and run.root.current.halt is None:
                run.ledger.record(deadline_reached(run))
        scope.reschedule(loop.time())
        abandon_later = run.environment.abandon_later
        timer = abandon_later() if abandon_later is not None else None

    recheck = RECHECK if run.current.ends_at is not None else float("inf")
    scope = asyncio.timeout(None)
    try:
        async with scope:
            timer = loop.call_later(min(run.seconds_left or 0.0, recheck), check)
            return await pipeline
    except TimeoutError:
        if not scope.expired():  # some other timeout: no deadline of this run
            raise
        return None
    finally:
        if timer is not None:
            timer.cancel()


# ------------------------------------------------------------------------------- halts


def halt_request(call: ToolCall, halt: Halt) -> Request:
    """The request that reports a halt; it can only be dismissed.

    Its source is the nearest agent, from the call's own upwards, that has `Haltable`; empty if none
    has it.
    """
    place: Run | None = call.run
    while place is not None and not place.definition.haltable:
        place = place.parent
    source = place.definition.name if place is not None else ""
    return call.request(kind="halt", allowed=("dismiss",), payload=halt.message, source=source)


def halted(run: Run) -> Outcome:
    """The outcome of a run in a halted tree.

    An agent below the root is only interrupted. The root fails if no agent in the path of the halt
    has `Haltable`; else it is interrupted until the halt is dismissed, and stopped after that.
    """
    halt = run.root.current.halt
    assert halt is not None, "only called for a halted tree"
    if run.parent is not None:
        return run.interrupted()
    if not halt.source:
        return run.failed(
            NotHaltable(tool=halt.tool_name, agent_path=halt.agent_path, message=str(halt.payload))
        )
    if not run.current.dismissed:
        return run.interrupted()
    signal = StopSignal(
        StopReason.STOP_REQUESTED,
        str(halt.payload),
        {"agent_path": list(halt.agent_path), "tool_call_id": halt.tool_call_id},
        source=halt.tool_name,
    )
    return run.stopped(StopSignals((signal,)))

"""Whether a run goes on: `check_stop` before each step, and what is decided after it (P3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

from pydantic_ai.messages import ModelResponse

from understudy.errors import JournalFailed, NotHaltable, RunLimitExceeded, UntilToolNotCalled
from understudy.interrupts import Halt, Request
from understudy.models.attribution import for_itself
from understudy.models.messages import user_message
from understudy.outcomes import Outcome
from understudy.run.cancellation import CancellationSource, signal_of
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.continuation import allows_answer, continuation_of
from understudy.state.records import CancelRequested, EarlyStopBegun, End
from understudy.stopping import StopReason, StopSignal, StopSignals

ANSWER_NOW = (
    "You have reached the limit of what you may do here. Do not call any tools: give your final "
    "answer now, as well as you can with what you have found out so far, and say what is missing."
)
NO_ANSWER = "I reached the limit of what I may do here before I had an answer."
"""The text of a run that stopped early and whose model had nothing to say even then (R1)."""


async def check_stop(run: Run) -> Outcome | None:
    """Before a step: ask the guards, stop by a signal nobody overrides, and at `max_runs` (P3, R1).

    A run whose model is answering already, or whose end is decided, is asked no more.
    """
    current = run.current
    if current.turn is not None or current.closing is not None or current.early_stop is not None:
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


def stop_before(run: Run) -> Outcome | None:
    """Stop, or let the model answer first, if a signal stands before the next turn."""
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
        return run.failed(_no_until_tool(run))
    return run.completed(end.text)


def end_by(run: Run, signals: StopSignals, text: str) -> End:
    """How signals end the run: as completed where none of them forces it (P5)."""
    highest = signals.highest
    assert highest is not None, "signals that stop a run are there"
    told = signals.to_dict()
    if highest.reason.was_force_stopped:
        return End(outcome="stopped", signals=told)
    if run.current.until_tool is not None:
        return End(outcome="failed", error=_no_until_tool(run).to_dict())
    if highest.reason is StopReason.COMPLETED:
        text = text or highest.message
    return End(outcome="completed", text=text, signals=told)


def _no_until_tool(run: Run) -> UntilToolNotCalled:
    current = run.current
    return UntilToolNotCalled(
        tools=current.until_tool or (), success_required=current.require_tool_success
    )


def _last_text(run: Run) -> str:
    """What the model said last in this run."""
    if run.current.turns == 0:
        return ""
    for message in reversed(run.state.messages):
        if isinstance(message, ModelResponse):
            return message.text or ""
    return ""


def _begin_early_stop(run: Run) -> None:
    message = for_itself(user_message(ANSWER_NOW, at=run.clock.now()))
    run.record(EarlyStopBegun(turn=run.current.turns, message=message))


# ------------------------------------------------------------------- cancellation


async def ask_sources(run: Run) -> None:
    """Cancel the run if one of its sources says so (P7)."""
    for source in run.cancellation:
        if run.current.cancelled is not None:
            return
        signal = await _asked(run, source)
        if signal is not None:
            run.record(CancelRequested(signal=signal.to_dict()))


async def _asked(run: Run, source: CancellationSource) -> StopSignal | None:
    hook = Hook.of(source, "check", source.check)
    answer = await hook(run.threads, run.state)
    try:
        return signal_of(answer, source)
    except Exception as error:
        raise HookFailed(hook.failure(error)) from error


def time_is_over(run: Run) -> CancelRequested:
    """That the run's deadline has come, as a fact (P9)."""
    deadline = run.current.deadline
    signal = StopSignal.time_limit(
        f"its deadline of {deadline:g} seconds came", source="deadline", deadline=deadline
    )
    return CancelRequested(signal=signal.to_dict())


async def within_deadline(run: Run, going: Awaitable[Outcome]) -> Outcome | None:
    """What the drive brings, or None where its time was over first.

    A model call or async tool is interrupted at once; the thread of a plain one is abandoned. The
    wish to stop is recorded before anything is interrupted, so a crash in between changes nothing.
    In a halted tree there is none: what still goes on is interrupted, and the halt stands (I11).
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        left = run.seconds_left
        if left:  # by the run's own clock, which need not keep pace with the loop's
            timer = loop.call_later(left, look)
            return
        with suppress(JournalFailed):  # it refuses the next record as well, and that is told
            if run.current.cancelled is None and run.root.current.halt is None:
                run.ledger.record(time_is_over(run))
        scope.reschedule(loop.time())

    scope = asyncio.timeout(None)
    try:
        async with scope:
            timer = loop.call_later(run.seconds_left or 0.0, look)
            return await going
    except TimeoutError:
        if not scope.expired():
            raise
        return None
    finally:
        if timer is not None:
            timer.cancel()


def halt_request(call: ToolCall, halt: Halt) -> Request:
    """What a person is told, and can only dismiss."""
    source, run = "", call.run
    path = [run]
    while run.parent is not None:
        run = run.parent
        path.append(run)
    for place in path:
        if place.definition.haltable:
            source = place.definition.name
            break
    return call.request(kind="halt", allowed=("dismiss",), payload=halt.message, source=source)


def halted(run: Run) -> Outcome:
    """How a run in a halted tree stands: the root tells it, and all below it just stop."""
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

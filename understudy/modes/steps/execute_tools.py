"""The steps that run tools: `execute_tools` and `propagate_state`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from understudy.errors import UsageError
from understudy.modes.steps.tool_arguments import Ready, doubted, prepare
from understudy.modes.steps.tool_invocation import perform, start
from understudy.modes.steps.tool_results import (
    denied_result,
    failed_result,
    in_doubt,
    make_part,
    responded_result,
)
from understudy.outcomes import Outcome
from understudy.run.run import Run
from understudy.state.fold import IN_DOUBT
from understudy.state.records import Propagated, Result
from understudy.state.run_state import Call, Turn

__all__ = ["execute_tools", "propagate_state"]

CRASHED = "it was cut off before its result was recorded"
STOPPED = "Not run: another call of the same reply asked the run to stop."
CUT_OFF = "Not executed: the reply that asked for this call was cut off before its end."


async def execute_tools(run: Run) -> Outcome | None:
    """Run the calls of the open turn that were never started, and no other (J3).

    Async tools run together on the loop and plain ones in threads; a sequential one runs alone
    (T1). Each result is recorded the moment its tool returns.
    """
    current = run.current
    turn = current.turn
    if turn is None or turn.propagated:
        return None
    asks = run.definition.hooks.check_tool_calls or run.gates
    if asks and not turn.interrupts_checked and not turn.cut and not turn.has_all_results:
        raise UsageError("a middleware gates tools, but the mode has no step check_interrupts")
    ready = []
    for call in turn.calls.values():
        if turn.cut and call.result is None:  # its arguments may be half of what was meant (R6)
            part = make_part(run, call, CUT_OFF, "interrupted")
            run.record(Result(call_key=call.key, part=part))
        elif call.result is None and not call.pending_requests:
            may_run = _release(run, call)
            if may_run is not None:
                ready.append(may_run)
    for group in _batches(ready):
        if run.root.current.halt is not None:
            break
        if current.signals and _stopped_in(turn):  # only what was started before goes on
            group = [item for item in group if item.call.running]
        batch = [item for item in group if not doubted(run, item)]
        if not batch:
            continue
        for item in batch:
            start(run, item)
        await run.durable()  # `started` before the body: a crash from here on is a doubt
        if len(batch) == 1:
            await perform(run, batch[0])
        else:
            await _together(run, batch)
    if current.signals and _stopped_in(turn):
        _leave_out(run, turn)
    return None


def _stopped_in(turn: Turn) -> bool:
    """Whether a tool of this turn raised `StopAgent` (P6)."""
    return any(call.result is not None and call.result.signal for call in turn.calls.values())


def _leave_out(run: Run, turn: Turn) -> None:
    """The run is to stop: what was not started, or waits for somebody, is not done any more."""
    for call in turn.calls.values():
        if call.result is not None:
            continue
        doubt = next(
            (r.payload["reason"] for r in call.pending_requests if r.kind == "doubt"), None
        )
        told = STOPPED if doubt is None else IN_DOUBT.format(reason=doubt)
        part = make_part(run, call, told, "interrupted")
        run.record(Result(call_key=call.key, part=part, doubt=doubt))


def _release(run: Run, call: Call) -> Ready | None:
    """The call if it is to run now; else what is known of it is recorded."""
    if call.running:
        tool = run.definition.tools.get(call.part.tool_name)
        if tool is None or not tool.idempotent or call.copied_from:
            unknown = in_doubt(run, call, CRASHED)
            if unknown is not None:
                run.record(unknown)
            return None
    decided = _decided(run, call) if call.requests else None
    if decided is not None:
        run.record(decided)
        return None
    ready = prepare(run, call)
    if isinstance(ready, Ready):
        return ready
    run.record(failed_result(run, call, ready))
    return None


def _decided(run: Run, call: Call) -> Result | None:
    """The result that a person's answer is, where the tool is not to run (I6)."""
    decided = [(request, call.decisions[request.id]) for request in call.requests.values()]
    for request, decision in decided:
        if decision.type == "reject":  # one no is enough
            return denied_result(run, call, request, decision)
    for request, decision in decided:
        if decision.type == "respond" and request.kind != "interrupt":
            return responded_result(run, call, decision)
    return None


def _batches(ready: list[Ready]) -> Iterator[list[Ready]]:
    """Calls that may run beside each other; a sequential one is a batch of its own."""
    batch: list[Ready] = []
    for item in ready:
        if item.tool.sequential:
            if batch:
                yield batch
            yield [item]
            batch = []
        else:
            batch.append(item)
    if batch:
        yield batch


async def _together(run: Run, batch: list[Ready]) -> None:
    """All at once. What is no tool's failure (a cancellation, say) ends the others too."""
    tasks = [asyncio.ensure_future(_guarded(run, item)) for item in batch]
    try:
        for done in asyncio.as_completed(tasks):
            if (died := await done) is not None:
                raise died
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _guarded(run: Run, item: Ready) -> BaseException | None:
    """What ended the call, told and not raised: a task that dies of SystemExit ends its loop."""
    try:
        await perform(run, item)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error
    return None


async def propagate_state(run: Run) -> Outcome | None:
    """When every call has its result: make the turn's message and merge the deltas, once."""
    turn = run.current.turn
    if turn is not None and turn.calls and not turn.propagated and turn.has_all_results:
        run.record(Propagated(turn=turn.index, at=run.clock.now()))
    return None

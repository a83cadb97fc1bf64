"""A run that a tool halted: it waits to be dismissed, and never goes on (I11)."""

from __future__ import annotations

from understudy.errors import NotHaltable
from understudy.interrupts import Halt, Request
from understudy.outcomes import Outcome
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.stopping import StopReason, StopSignal, StopSignals

__all__ = ["halt_request", "halted"]


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

"""From how a run ended to its outcome, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.errors import error_from_dict
from understudy.outcomes import Completed, Failed, Stopped, ToolCallResult
from understudy.records import End
from understudy.run import Run
from understudy.state import AgentState
from understudy.stopping import StopSignals
from understudy.tools import Tool

__all__ = ["end_of", "outcome_of"]


def end_of(run: Run, outcome: Completed | Stopped | Failed) -> End:
    """The outcome as data. What a turn decided before stands as it was recorded (J1)."""
    if isinstance(outcome, Stopped):
        return End(outcome="stopped", signals=outcome.signals.to_dict())
    if isinstance(outcome, Failed):
        return End(outcome="failed", error=outcome.error.to_dict())
    closing = run.current.closing
    if closing is not None and closing.outcome == "completed" and closing.text == outcome.text:
        return closing
    return End(outcome="completed", text=outcome.text, early_stopped=outcome.early_stopped)


def outcome_of(
    end: End, state: AgentState, tools: Mapping[str, Tool[Any]], live: dict[str, object]
) -> Completed | Stopped | Failed:
    """The outcome that `end` tells.

    Args:
        live: return values that this process still has, by call key; others are rebuilt through
            the tool's return annotation (J18).

    """
    run = state.run
    assert run is not None, "an end belongs to a run"
    if end.outcome == "failed":
        assert end.error is not None, "a failed end tells its error"
        error = error_from_dict(end.error)
        return Failed(error=error, run_id=run.run_id, state=state, usage=run.usage)
    if end.outcome == "stopped":
        assert end.signals is not None, "a stopped end tells its signals"
        signals = StopSignals.from_dict(end.signals)
        return Stopped(signals=signals, run_id=run.run_id, state=state, usage=run.usage)
    tool_result = _tool_result(end, state, tools, live) if end.tool_call is not None else None
    return Completed(
        text=end.text,
        tool_result=tool_result,
        early_stopped=end.early_stopped,
        run_id=run.run_id,
        state=state,
        usage=run.usage,
    )


def _tool_result(
    end: End, state: AgentState, tools: Mapping[str, Tool[Any]], live: dict[str, object]
) -> ToolCallResult:
    run = state.run
    assert run is not None, "an end belongs to a run"
    assert run.ended_call is not None, "the turn that ended by a tool kept its call"
    assert end.tool_call is not None, "the end names its call"
    result, part = run.ended_by[end.tool_call], run.ended_call
    lost = result.value_is == "lost" and end.tool_call not in live
    value: object = None
    failed = result.part.outcome != "success"
    if failed:
        lost = False
    elif end.tool_call in live:
        value = live[end.tool_call]
    elif not lost:
        stored = result.value if result.value_is == "separate" else result.part.content
        try:
            tool = tools.get(part.tool_name)
            value = tool.load_value(stored) if tool is not None else stored
        except ValueError:  # what the annotation does not accept is no value of the tool
            given = result.value_is == "given"
            value, lost = (stored, False) if given else (None, True)
    return ToolCallResult(
        tool_name=part.tool_name,
        call_key=end.tool_call,
        tool_call_id=part.tool_call_id,
        arguments=dict(end.tool_arguments or {}),
        content=result.part.content,
        value=value,
        is_error=failed,
        value_lost=lost,
    )

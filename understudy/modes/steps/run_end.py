"""The end of a run: as a record, and as an outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.errors import error_from_dict
from understudy.outcomes import Completed, Failed, Stopped, ToolCallResult
from understudy.run.definition import AgentDefinition
from understudy.run.run import Run
from understudy.state.agent_state import AgentState
from understudy.state.records import End
from understudy.stopping import StopSignals
from understudy.tools import Tool


def end_of(run: Run, outcome: Completed | Stopped | Failed) -> End:
    """The end to record for an outcome; the one that a turn decided takes precedence."""
    if isinstance(outcome, Stopped):
        return End(outcome="stopped", signals=outcome.signals.to_dict())
    if isinstance(outcome, Failed):
        return End(outcome="failed", error=outcome.error.to_dict())
    closing = run.current.closing
    if closing is not None and closing.outcome == "completed" and closing.text == outcome.text:
        return closing
    return End(outcome="completed", text=outcome.text, early_stopped=outcome.early_stopped)


def final_end(definition: AgentDefinition, text: str) -> End:
    """The end of a run by a final text, with the output parsed from it.

    Raises:
        InvalidOutput: if the text is not a value of the output type.

    """
    output = definition.output
    if output is None:
        return End(outcome="completed", text=text)
    value = output.read(text)
    key = output.key if output.typed or text else None
    if not output.typed:
        return End(outcome="completed", text=text, output_key=key)
    return End(outcome="completed", text=text, output=value, has_output=True, output_key=key)


def outcome_of(
    end: End, state: AgentState, definition: AgentDefinition, live: dict[str, object]
) -> Completed | Stopped | Failed:
    """The outcome that `end` records.

    Args:
        end: how the run ended.
        state: the state after the run.
        definition: of the agent, to rebuild the output and the until tool's value by their types.
        live: return values of until tools that this process still has, by call key.

    """
    run = state.run
    assert run is not None, "an end belongs to a run"
    if end.outcome == "failed":
        assert end.error is not None, "a failed end has an error"
        error = error_from_dict(end.error)
        return Failed(error=error, run_id=run.run_id, state=state, usage=run.usage)
    if end.outcome == "stopped":
        assert end.signals is not None, "a stopped end has signals"
        signals = StopSignals.from_dict(end.signals)
        return Stopped(signals=signals, run_id=run.run_id, state=state, usage=run.usage)
    tool_result = None
    if end.tool_call is not None:
        tool_result = _tool_result(end, state, definition.tools, live)
    results = run.progress.results if run.progress is not None else {}
    return Completed(
        text=end.text,
        tool_result=tool_result,
        early_stopped=end.early_stopped,
        output=_output(end, definition),
        results=tuple(results[index] for index in sorted(results)),
        run_id=run.run_id,
        state=state,
        usage=run.usage,
    )


def _output(end: End, definition: AgentDefinition) -> Any:
    if not end.has_output:
        return end.text
    try:
        return definition.output.load(end.output) if definition.output is not None else end.output
    except ValueError:  # the type has changed since: the stored data is all there is
        return end.output


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
        except ValueError:  # the return annotation does not accept it
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

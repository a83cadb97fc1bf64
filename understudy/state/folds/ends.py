"""Folds the ends of runs, with what they leave open: calls, doubts, agents inside."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart

from understudy.interrupts import DoubtfulCall
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.costs import adding, below
from understudy.state.folds.places import open_run
from understudy.state.run_state import Call, RunState, Turn, is_child_of
from understudy.state.shared_empties import with_item
from understudy.state.workflow_sharing import add_decisions_and_doubts, add_result, merge_child

NOT_RUN = "Not run: the run ended before this call was started."
IN_DOUBT = (
    "The outcome of this call is unknown: it was started and {reason}. It may or may not have "
    "taken effect. Do not repeat it; tell the user, or check by other means."
)
CHILD_STOPPED = "The agent that this call ran was stopped before it had finished."
WAITED = "Not finished: the run ended while this call waited. What it had done before stands."
MOVED_ON = "Not run: the user moved on instead of answering whether this call may run."


def run_ended(state: AgentState, record: r.RunEnded) -> None:
    run = open_run(state)
    turn = run.turn
    run.model_call = None
    if turn is not None:
        if turn.calls and not turn.propagated:
            parts: list[ModelRequestPart] = []
            parts += [_closing_part(state, call, record) for call in turn.calls.values()]
            parts += _prompts(turn)
            for call in turn.calls.values():
                end_children(state, call.key, record.at)
                if call.result is not None and call.result.state is not None:
                    state.merge(call.result.state)
            message = ModelRequest(parts=parts, timestamp=record.at)
            state.messages = state.messages.appending(message)
        run.turn = None
    for key, child in state.agents.items():
        assert child.run is not None, "agents are children with a run"
        if not child.run.over:
            run_ended(child, r.RunEnded(end=r.End(outcome="withdrawn"), at=record.at))
        del state.children[key]
        merge_child(state, child)
    run.end = record.end
    run.paused = None


def sub_run_ended(state: AgentState, record: r.SubRunEnded) -> None:
    child = state.children.pop(record.child)
    add_result(open_run(state), child, record)
    merge_child(state, child)


def end_children(state: AgentState, call_key: str, at: datetime) -> None:
    """End the agents that the call ran; their usage, decisions and doubts are kept."""
    for key in [key for key in state.children if is_child_of(key, call_key)]:
        child = state.children.pop(key)
        if child.run is None:
            continue
        usage = child.run.usage
        if not child.run.over:
            run_ended(child, r.RunEnded(end=r.End(outcome="withdrawn"), at=at))
        run = open_run(state)
        run.usage.incr(usage)
        run.costs = adding(run.costs, below(run.agent, child.run.costs))
        run.done = run.done.with_agent(child.run.agent, child.run.done)
        add_decisions_and_doubts(state, child)


def _closing_part(state: AgentState, call: Call, record: r.RunEnded) -> ToolReturnPart:
    """The result part of a call that the end of the run finds open, or its own result."""
    if call.result is not None:
        return call.result.part
    inside = any(is_child_of(key, call.key) for key in state.children)
    if inside and (call.effect != "effects" or not call.running):
        content, moved_on = _why_child_stopped(state, call), False
    elif call.running:
        reason = "the run ended before it answered"
        doubt = told_doubt(open_run(state), call, reason, record.at)
        state.doubts = with_item(state.doubts, call.key, doubt)
        content, moved_on = IN_DOUBT.format(reason=reason), False
    else:
        moved_on = call.withdrawn
        content = MOVED_ON if moved_on else WAITED if call.points else NOT_RUN
    return ToolReturnPart(
        tool_name=call.part.tool_name,
        content=content,
        tool_call_id=call.part.tool_call_id,
        timestamp=record.at,
        outcome="denied" if moved_on else "interrupted",
    )


def _why_child_stopped(state: AgentState, call: Call) -> str:
    """What the model learns of a call whose agent did not finish; with a halt that it raised."""
    halt = open_run(state).halt
    if halt is not None:
        for key in state.children:
            inside = halt.run_id == key or halt.run_id.startswith(key + ".")
            if is_child_of(key, call.key) and inside:
                return f"The agent that this call ran halted the run: {halt.payload}"
    return CHILD_STOPPED


def _prompts(turn: Turn) -> list[UserPromptPart]:
    """What the tools of the turn give the model beside their results."""
    return [
        call.result.user_prompt
        for call in turn.calls.values()
        if call.result is not None and call.result.user_prompt is not None
    ]


def put_output(state: AgentState, end: r.End) -> None:
    if end.output_key is not None:
        state.put({end.output_key: end.output if end.has_output else end.text})


def told_doubt(run: RunState, call: Call, reason: str, since: datetime) -> DoubtfulCall:
    """A call in doubt of which only the model is told."""
    ends_at = None if run.doubt_ends is None else since + timedelta(seconds=run.doubt_ends)
    return replace(doubtful_call(run, call, reason, since), ends_at=ends_at)


def doubtful_call(run: RunState, call: Call, reason: str, since: datetime) -> DoubtfulCall:
    """A call in doubt, as shown to the person who decides about the next call of the tool."""
    return DoubtfulCall(
        call_key=call.key,
        tool_name=call.part.tool_name,
        tool_call_id=call.part.tool_call_id,
        arguments=last_arguments(call),
        reason=reason,
        agent=run.agent,
        since=since,
        token_hashes=tuple(
            each
            for point in call.points.values()
            if point.answer is None or point.answer.how == "expired"
            for each in point.token_hashes
        ),
    )


def last_arguments(call: Call) -> dict[str, Any]:
    """Those of the latest decision or request, otherwise the model's."""
    for request in reversed(call.requests.values()):
        decision = call.decisions.get(request.id)
        if decision is not None and decision.edited is not None:
            return decision.edited
        return request.arguments
    return call.made_arguments

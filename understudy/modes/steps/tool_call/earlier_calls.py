"""Equal calls that were made before: what a person is shown who decides about one more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

from understudy._base.json_values import digest
from understudy.interrupts import EarlierCall
from understudy.modes.steps.tool_call.arguments import ReadyCall, canonical
from understudy.run.run import Run
from understudy.state.agent_state import AgentState
from understudy.tools import InvalidArguments, Tool

MOST_LOOKED_AT = 1_000
"""Calls of an agent that are looked at, newest first."""
MOST_SHOWN = 5
MOST_CHARACTERS = 200


def earlier_calls(run: Run, ready: ReadyCall) -> tuple[EarlierCall, ...]:
    """The equal calls of the whole tree of agents, newest first; those of the same reply first."""
    wanted, tool = digest(canonical(ready)), ready.tool
    found = list(_in_reply(run, ready, wanted))
    for state in run.root.state.tree:
        name = state.run.agent if state.run is not None and state is not run.state else ""
        found += _in_conversation(state, tool, wanted, agent=name)
        found += _of_agents_that_are_over(state, tool, wanted)
    return tuple(found[:MOST_SHOWN])


def _in_reply(run: Run, ready: ReadyCall, wanted: str) -> Iterator[EarlierCall]:
    turn = run.current.turn
    for other in turn.calls.values() if turn is not None else ():
        if other is not ready.call and _is_equal(ready.tool, other.part, wanted):
            result = other.result
            yield EarlierCall(
                tool_call_id=other.part.tool_call_id,
                outcome="open" if result is None else result.part.outcome,
                content="" if result is None else _shortened(result.part),
                at=None if result is None else result.at,
            )


def _in_conversation(
    state: AgentState, tool: Tool, wanted: str, *, agent: str
) -> Iterator[EarlierCall]:
    results: dict[str, ToolReturnPart] = {}
    looked_at = 0
    for message in reversed(state.messages):
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart) and part.tool_name == tool.name:
                    results[part.tool_call_id] = part
        elif isinstance(message, ModelResponse):
            for call in reversed(message.tool_calls):
                looked_at += 1
                result = results.pop(call.tool_call_id, None)
                if result is not None and _is_equal(tool, call, wanted):
                    yield EarlierCall(
                        tool_call_id=call.tool_call_id,
                        outcome=result.outcome,
                        content=_shortened(result),
                        at=result.timestamp,
                        agent=agent,
                    )
        if looked_at >= MOST_LOOKED_AT:
            return


def _of_agents_that_are_over(state: AgentState, tool: Tool, wanted: str) -> Iterator[EarlierCall]:
    """Those of agents that this run has run: nothing is left of their conversations."""
    done = state.run.done if state.run is not None else None
    for call in reversed(done.newest) if done is not None else ():
        # Arguments that were too long to be kept whole are no JSON any more, and equal nothing.
        if call.agent and call.tool_name == tool.name and _runs_as(tool, call.arguments, wanted):
            yield EarlierCall(
                tool_call_id="", outcome="success", content="", at=None, agent=call.agent
            )


def _is_equal(tool: Tool, part: ToolCallPart, wanted: str) -> bool:
    return part.tool_name == tool.name and _runs_as(tool, part.args, wanted)


def _runs_as(tool: Tool, arguments: str | dict[str, Any] | None, wanted: str) -> bool:
    """Whether these are the arguments that are looked for, as the tool would get them."""
    try:
        return digest(tool.canonical(tool.validate(arguments))) == wanted
    except InvalidArguments:
        return False  # it could not run


def _shortened(part: ToolReturnPart) -> str:
    text = part.model_response_str()
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."

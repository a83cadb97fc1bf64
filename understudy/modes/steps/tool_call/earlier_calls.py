"""Calls that were made before: what a person is shown who decides about one more.

They are those that equal it. Of a tool that runs agents by their names they are also those which
ran the same agent and did not succeed: their results tell what that agent has done.
"""

from __future__ import annotations

from collections.abc import Iterator

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
MOST_OF_AGENT = 6_000
"""Characters of what an agent did that a call ran, and that did not finish."""


def earlier_calls(run: Run, ready: ReadyCall) -> tuple[EarlierCall, ...]:
    """The calls of the whole tree of agents, newest first; those of the same reply first."""
    wanted, tool = _Wanted(ready), ready.tool
    found = list(_in_reply(run, ready, wanted))
    for state in run.root.state.tree:
        name = state.run.agent if state.run is not None and state is not run.state else ""
        found += _in_conversation(state, tool, wanted, agent=name)
    return tuple(found[:MOST_SHOWN])


def _in_reply(run: Run, ready: ReadyCall, wanted: _Wanted) -> Iterator[EarlierCall]:
    turn = run.current.turn
    for other in turn.calls.values() if turn is not None else ():
        result = other.result
        outcome = None if result is None else result.part.outcome
        if other is not ready.call and wanted.fits(ready.tool, other.part, outcome):
            yield EarlierCall(
                tool_call_id=other.part.tool_call_id,
                outcome="open" if result is None else result.part.outcome,
                content="" if result is None else _shortened(result.part),
                at=None if result is None else result.at,
            )


def _in_conversation(
    state: AgentState, tool: Tool, wanted: _Wanted, *, agent: str
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
                if result is not None and wanted.fits(tool, call, result.outcome):
                    yield EarlierCall(
                        tool_call_id=call.tool_call_id,
                        outcome=result.outcome,
                        content=_shortened(result),
                        at=result.timestamp,
                        agent=agent,
                    )
        if looked_at >= MOST_LOOKED_AT:
            return


class _Wanted:
    """Which calls are shown beside this one."""

    def __init__(self, ready: ReadyCall) -> None:
        arguments = canonical(ready)
        self._digest = digest(arguments)
        self._agent = arguments.get(ready.tool.agent_argument)

    def fits(self, tool: Tool, part: ToolCallPart, outcome: str | None) -> bool:
        if part.tool_name != tool.name:
            return False
        try:
            arguments = tool.canonical(tool.validate(part.args))
        except InvalidArguments:
            return False  # it could not run
        is_unfinished = outcome in ("failed", "interrupted")
        if is_unfinished and self._agent is not None:
            return bool(arguments[tool.agent_argument] == self._agent)
        return digest(arguments) == self._digest


def _shortened(part: ToolReturnPart) -> str:
    text = part.content if isinstance(part.content, str) else part.model_response_str()
    most = MOST_CHARACTERS if part.outcome == "success" else MOST_OF_AGENT
    return text if len(text) <= most else f"{text[:most]}..."

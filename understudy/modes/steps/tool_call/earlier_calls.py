"""Earlier calls: what a person sees who decides about one more call.

They are the equal calls. For a tool that runs agents by name, they are also the calls which ran the
same agent and did not succeed: their results say what that agent has done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart

from understudy._base.json_values import digest
from understudy.interrupts import EarlierCall
from understudy.run.run import Run
from understudy.state.agent_state import AgentState
from understudy.state.done_calls import whole_arguments
from understudy.state.folds.ends import last_arguments
from understudy.state.run_state import Call
from understudy.tools import InvalidArguments, Tool

EDITED = "run_with_arguments_changed_by_a_person"
"""The key of the arguments that ran, in the result of a call that a person edited."""
MOST_LOOKED_AT = 1_000
"""The maximum number of calls of an agent that are looked at, newest first."""
MOST_SHOWN = 5
MOST_CHARACTERS = 200
MOST_OF_AGENT = 6_000
"""The maximum characters about what an unfinished agent did that a call ran."""


def earlier_calls(
    run: Run, call: Call, tool: Tool, arguments: Mapping[str, Any]
) -> tuple[EarlierCall, ...]:
    """The equal calls of the whole tree of agents, newest first; those of the same reply first.

    Args:
        run: the run of the call.
        call: the call that a person is asked about.
        tool: its tool.
        arguments: the canonical arguments, which the person is shown.

    """
    wanted = _Wanted(tool, arguments)
    found = list(_under_way(run.state, wanted, call))
    others = [state for state in run.root.state.tree if state is not run.state]
    for state in others:
        found += _under_way(state, wanted, call, agent=_name_of(state))
    for state in (run.state, *others):
        before = list(
            _in_conversation(state, wanted, "" if state is run.state else _name_of(state))
        )
        found += before
        found += _inside(state, wanted, {each.agent for each in before})
    return tuple(found[:MOST_SHOWN])


class _Wanted:
    """Which calls are shown beside the one that a person is asked about."""

    def __init__(self, tool: Tool, arguments: Mapping[str, Any]) -> None:
        self.tool = tool
        self._digest = digest(arguments)
        self._agent = arguments.get(tool.agent_argument)

    def is_called(self, name: str) -> bool:
        return name in self.tool.names

    def has(
        self, arguments: str | Mapping[str, Any] | None, outcome: str | None = "success"
    ) -> bool:
        """Whether a call of the tool that ended so is to be shown.

        It is if it has the arguments, or if it has run the same agent and did not succeed.
        """
        try:
            canonical = self.tool.canonical(self.tool.validate(arguments))
        except InvalidArguments:
            return False  # it could not run
        if self._agent is not None and outcome in ("failed", "interrupted"):
            return bool(canonical[self.tool.agent_argument] == self._agent)
        return digest(canonical) == self._digest


def _outcome_of(call: Call) -> str | None:
    return None if call.result is None else call.result.part.outcome


def _found(state: AgentState, tool_call_id: str) -> tuple[str, str]:
    """Who has settled a call in doubt, and how, where its result does not say so."""
    finding = state.findings.get(tool_call_id) if state.findings else None
    if finding is not None:
        return finding.by, finding.text
    for record in reversed(state.decisions):
        request = record.request
        if request.kind == "doubt" and request.tool_call_id == tool_call_id:
            return record.decision.by or "", ""
    return "", ""


def _name_of(state: AgentState) -> str:
    return state.run.agent if state.run is not None else ""


def _under_way(
    state: AgentState, wanted: _Wanted, asked: Call, *, agent: str = ""
) -> Iterator[EarlierCall]:
    """The calls of the open reply of an agent. A call that has its result may be among them."""
    turn = state.run.turn if state.run is not None else None
    for other in turn.calls.values() if turn is not None and not turn.propagated else ():
        same_tool = other is not asked and wanted.is_called(other.part.tool_name)
        if same_tool and wanted.has(json.dumps(last_arguments(other)), _outcome_of(other)):
            result, (found_by, found) = other.result, _found(state, other.part.tool_call_id)
            yield EarlierCall(
                tool_call_id=other.part.tool_call_id,
                outcome="open" if result is None else result.part.outcome,
                content="" if result is None else _shortened(result.part),
                at=None if result is None else result.at,
                agent=agent,
                found_by=found_by,
                found=found,
            )


def _in_conversation(state: AgentState, wanted: _Wanted, agent: str) -> Iterator[EarlierCall]:
    results: dict[str, ToolReturnPart] = {}
    looked_at = 0
    shared = state.run.shared if agent and state.run is not None else None
    # What a workflow passed to an agent is in the workflow's conversation: it is looked at once.
    messages = state.messages if shared is None else state.messages.since(shared.inherited)
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, ToolReturnPart) and wanted.is_called(part.tool_name):
                    results[part.tool_call_id] = part
        elif isinstance(message, ModelResponse):
            author = (message.metadata or {}).get("author")
            for call in reversed(message.tool_calls):
                if looked_at == MOST_LOOKED_AT:
                    return
                looked_at += 1
                result = results.pop(call.tool_call_id, None)
                if result is not None and wanted.has(_that_ran(call.args, result), result.outcome):
                    found_by, found = _found(state, call.tool_call_id)
                    yield EarlierCall(
                        tool_call_id=call.tool_call_id,
                        outcome=result.outcome,
                        content=_shortened(result),
                        at=result.timestamp,
                        agent=agent if author is None else author,
                        found_by=found_by,
                        found=found,
                    )


def _that_ran(
    written: str | Mapping[str, Any] | None, result: ToolReturnPart
) -> str | Mapping[str, Any] | None:
    """The arguments that ran in a finished call: the model's, or a person's in their place."""
    content = result.content
    first = content[0] if isinstance(content, list) and content else content
    edited = first.get(EDITED) if isinstance(first, dict) else None
    return json.dumps(edited) if isinstance(edited, dict) else written


def _inside(state: AgentState, wanted: _Wanted, known: set[str]) -> Iterator[EarlierCall]:
    """The calls of agents inside whose runs are over: their conversations are gone.

    Args:
        state: the state of the agent that ran them.
        wanted: the calls to show.
        known: the agents whose calls are in the conversation.

    """
    done = state.run.done if state.run is not None else None
    for each in reversed(done.newest if done is not None else ()):
        if not each.agent or each.agent in known or not wanted.is_called(each.tool_name):
            continue
        arguments = whole_arguments(each)
        if arguments is not None and wanted.has(arguments):
            yield EarlierCall(
                tool_call_id="", outcome="success", content="", at=None, agent=each.agent
            )


def _shortened(part: ToolReturnPart) -> str:
    text = part.content if isinstance(part.content, str) else part.model_response_str()
    most = MOST_CHARACTERS if part.outcome == "success" else MOST_OF_AGENT
    return text if len(text) <= most else f"{text[:most]}..."

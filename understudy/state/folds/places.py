"""Lookups of the place in a state that a record changes: its open run, turn, calls."""

from __future__ import annotations

from datetime import datetime, timezone

from pydantic_ai.messages import ToolCallPart

from understudy.errors import UsageError
from understudy.state.agent_state import AgentState
from understudy.state.run_state import Call, ModelCall, RunState, Turn

_SUSPENDED = frozenset({"interrupted", "paused"})
"""The statuses of an agent whose run waits for a person, or is paused."""
UNREAD = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""A time that nobody reads, such as the time of a child's last message when its call is over."""


def note_status(state: AgentState, status: str, at: datetime | None) -> None:
    """Note the status that the agent has from this time on."""
    state.status = status
    if state.run is not None:
        state.run.suspended_since = at if status in _SUSPENDED else None


def open_run(state: AgentState) -> RunState:
    """The run in progress.

    Raises:
        UsageError: if there is no open run, so the records do not fit together.

    """
    run = state.run
    if run is None or run.end is not None:
        raise UsageError("These records do not fit together: no run is in progress")
    return run


def open_turn(state: AgentState) -> Turn:
    turn = open_run(state).turn
    if turn is None:
        raise UsageError("These records do not fit together: no turn is open")
    return turn


def find_call(state: AgentState, key: str) -> Call:
    run = open_run(state)
    return waiting_model_call(run, key).call if run.turn is None else run.turn.calls[key]


def waiting_model_call(run: RunState, key: str) -> ModelCall:
    """The model call of the next turn, which waits from its first fact on."""
    if key != run.model_call_key:
        raise UsageError("These records do not fit together: no turn is open")
    if run.model_call is None:
        run.model_call = ModelCall(Call(key, ToolCallPart("", {}, tool_call_id="")))
    return run.model_call


def call_of_request(state: AgentState, request_id: str) -> Call:
    for call in open_run(state).calls:
        if request_id in call.requests:
            return call
    raise UsageError(f"These records do not fit together: there is no request {request_id!r}")

"""What the store tells of calls: the run that a call is for, and decisions that are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.actors.agent.messages import AgentMessage, Retry
from understudy.errors import DecisionError
from understudy.interrupts import checked_decision
from understudy.journal import StoreReads
from understudy.state.agent_state import AgentState
from understudy.state.run_state import RunState


async def latest_state(store: StoreReads, agent_id: str) -> AgentState | None:
    """The state that the store has of an agent."""
    loaded = await store.load_latest(agent_id)
    return None if loaded is None else loaded.folded()


def run_of_call(state: AgentState | None, message: AgentMessage) -> RunState | None:
    """The run that a call is for that names none: the one that is open now, if it may be meant.

    A retry is for the last one, if that has failed.
    """
    run = state.run if state is not None else None
    if run is None:
        return None
    if isinstance(message, Retry):
        return run if run.has_failed or (run.is_held and not run.over) else None
    return None if run.over else run


def run_of_decisions(state: AgentState, decisions: Mapping[str, Any]) -> str | None:
    """The id of the run that goes on by these decisions; None unless all of them are recorded."""
    made = {record.request.id: record for inner in state.tree for record in inner.decisions}
    run_id: str | None = None
    for request_id, given in decisions.items():
        record = made.get(request_id)
        if record is None:
            return None
        try:
            is_same = checked_decision(record.request, given).same_as(record.decision)
        except DecisionError:
            return None
        if not is_same:
            return None
        run_id = record.request.run_id.partition(".")[0]
    return run_id

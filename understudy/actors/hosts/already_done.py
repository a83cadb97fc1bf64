"""What the store tells of a call: the run that it is for."""

from __future__ import annotations

from understudy._base.pieces import in_pieces
from understudy.actors.agent.messages import AgentMessage, Retry
from understudy.journal import StoreReads
from understudy.state.agent_state import AgentState
from understudy.state.run_state import RunState


async def latest_state(store: StoreReads, agent_id: str) -> AgentState | None:
    """The state that the store has of an agent."""
    loaded = await store.load_latest(agent_id)
    return None if loaded is None else await in_pieces(loaded.folding())


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

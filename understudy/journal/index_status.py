"""How an agent stands, as the index of a store knows it: by its state."""

from __future__ import annotations

from understudy.journal.contracts import IndexStatus
from understudy.state.agent_state import AgentState
from understudy.stopping import StopReason, StopSignals

__all__ = ["index_status_of", "is_busy", "rest_status"]

HELD = ("failed", "cancelled")
"""After these the queue waits for a newer message (A2)."""
AT_REST = ("idle", *HELD)


def index_status_of(state: AgentState) -> IndexStatus:
    """What the agent waits for."""
    run = state.run
    if run is None or run.over:
        held = not state.queue or rest_status(state) in HELD
        return IndexStatus.REST if held else IndexStatus.QUEUED
    if run.quarantined is not None:
        return IndexStatus.QUARANTINED
    if run.cancelled is None and not is_busy(state) and (state.pause is not None or state.requests):
        return IndexStatus.WAITS
    return IndexStatus.SUSPECT if run.fruitless > 1 else IndexStatus.OPEN


def is_busy(state: AgentState) -> bool:
    """Whether a call is under way, here or inside: what its siblings ask makes nothing stand.

    But a halt does, whatever is under way (I11).
    """
    halt = state.run.halt if state.run is not None else None
    if halt is not None and halt.source:
        return False
    runs = [inner.run for inner in state.tree if inner.run is not None and not inner.run.over]
    turns = [run.turn for run in runs if run.turn is not None]
    return any(call.running for turn in turns for call in turn.calls.values())


def rest_status(state: AgentState) -> str:
    """How an agent with no open run stands: also where that was not noted any more (A1)."""
    end = state.run.end if state.run is not None else None
    if end is None or state.status in AT_REST:
        return state.status if state.status in AT_REST else "idle"
    if end.outcome == "stopped" and end.signals is not None:
        highest = StopSignals.from_dict(end.signals).highest
        asked = highest is not None and highest.reason is StopReason.USER_REQUESTED
        return "cancelled" if asked else "idle"
    return "failed" if end.outcome == "failed" else "idle"

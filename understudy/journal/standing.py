"""How an agent stands, as the index of a store knows it: by its state."""

from __future__ import annotations

from understudy.journal.base import Standing
from understudy.state import AgentState

__all__ = ["is_busy", "standing_of"]

HELD = ("failed", "cancelled")
"""After these the queue waits for a newer message (A2)."""


def standing_of(state: AgentState) -> Standing:
    """What the agent waits for."""
    run = state.run
    if run is None or run.over:
        return Standing.QUEUED if state.queue and state.status not in HELD else Standing.REST
    if run.quarantined is not None:
        return Standing.QUARANTINED
    if run.cancelled is None and not is_busy(state) and (state.pause is not None or state.requests):
        return Standing.WAITS
    return Standing.SUSPECT if run.fruitless > 1 else Standing.OPEN


def is_busy(state: AgentState) -> bool:
    """Whether a call is under way, here or inside: what its siblings ask makes nothing stand."""
    runs = [inner.run for inner in state.tree if inner.run is not None and not inner.run.over]
    turns = [run.turn for run in runs if run.turn is not None]
    return any(call.running for turn in turns for call in turn.calls.values())

"""How an agent stands, as the index of a store knows it: by its state."""

from __future__ import annotations

from understudy.journal.base import Standing
from understudy.state import AgentState, RunState

__all__ = ["standing_of"]

HELD = ("failed", "cancelled")
"""After these the queue waits for a newer message (A2)."""


def standing_of(state: AgentState) -> Standing:
    """What the agent waits for."""
    run = state.run
    if run is None or run.over:
        return Standing.QUEUED if state.queue and state.status not in HELD else Standing.REST
    if run.quarantined is not None:
        return Standing.QUARANTINED
    if run.cancelled is None and not _busy(run) and (state.pause is not None or state.requests):
        return Standing.WAITS
    return Standing.SUSPECT if run.fruitless > 1 else Standing.OPEN


def _busy(run: RunState) -> bool:
    """Whether a call is under way: what its siblings ask does not make the run stand still."""
    return run.turn is not None and any(call.running for call in run.turn.calls.values())

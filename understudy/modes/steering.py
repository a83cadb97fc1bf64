"""Messages that are to steer the run that goes on (A2)."""

from __future__ import annotations

from understudy.run.run import Run
from understudy.state.agent_state import QueuedMessage

__all__ = ["steering"]


def steering(run: Run) -> list[QueuedMessage]:
    """Those that wait for the next model call; in a workflow they wait at its top."""
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
    queue = run.state.queue
    return [queued for queued in queue.values() if queued.steer] if queue else []

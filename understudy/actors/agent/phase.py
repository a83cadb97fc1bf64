"""`Phase`: where an agent is between passive and running, and which phase may follow which."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Phase(enum.Enum):
    """What is going on for one agent id. Its `AgentSlot` owns the phase; it changes on the loop."""

    PASSIVE = "passive"
    """The agent is not in memory. A message activates it."""
    ACTIVATING = "activating"
    """The agent's actor starts, and reads the agent from the store. Messages wait in the inbox."""
    IDLE = "idle"
    """The agent is in memory, and has no run task."""
    BEGINNING = "beginning"
    """A run task is under way whose first record is not made yet."""
    RUNNING = "running"
    """A run task is under way, and its run is recorded."""
    ENDED = "ended"
    """The run task has ended. No actor has looked at its result yet."""
    PASSIVATING = "passivating"
    """The agent's actor stops as soon as everything is durable. Messages wait in the inbox."""
    RELEASING = "releasing"
    """The agent's actor has stopped. The store compacts, deletes or releases it; messages wait."""

    @property
    def has_run_task(self) -> bool:
        """Whether a run task is under way whose result is still to be handled."""
        return self is Phase.BEGINNING or self is Phase.RUNNING

    @property
    def is_in_memory(self) -> bool:
        """Whether the agent is in memory, or about to be, and not about to leave it."""
        return self not in (Phase.PASSIVE, Phase.PASSIVATING, Phase.RELEASING)


NEXT_PHASES: Mapping[Phase, frozenset[Phase]] = {
    Phase.PASSIVE: frozenset({Phase.ACTIVATING, Phase.RELEASING}),  # released: deleted unseen
    Phase.ACTIVATING: frozenset({Phase.IDLE, Phase.RELEASING, Phase.PASSIVE}),
    # An actor that is stopped from outside skips PASSIVATING.
    Phase.IDLE: frozenset(
        {Phase.BEGINNING, Phase.RUNNING, Phase.PASSIVATING, Phase.RELEASING},
    ),
    # A run whose store fails is passivated while its task is still being cancelled.
    Phase.BEGINNING: frozenset({Phase.RUNNING, Phase.ENDED, Phase.PASSIVATING}),
    Phase.RUNNING: frozenset({Phase.ENDED, Phase.PASSIVATING}),
    Phase.ENDED: frozenset({Phase.IDLE, Phase.PASSIVATING}),
    Phase.PASSIVATING: frozenset({Phase.RELEASING}),
    Phase.RELEASING: frozenset({Phase.PASSIVE}),
}
"""The phases that may follow a phase. Any other change is a defect of ours, and asserted."""

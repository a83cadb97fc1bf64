"""How far a workflow is, and what an agent of it is to give back: a part of the run's state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from understudy.models.messages import StoredMessage

__all__ = ["AgentResult", "Progress", "Shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """How an agent of a workflow ended its part."""

    agent: str
    """Its name."""
    outcome: Literal["completed", "failed", "stopped"]
    text: str = ""
    """Its final text."""
    output: Any = None
    """The value of its `output_type`, as JSON; None without one."""
    error: dict[str, Any] | None = None
    """Why it failed, as of `error.to_dict()`."""
    signals: dict[str, Any] | None = None
    """Why it was stopped, as of `signals.to_dict()`."""
    escalated: bool = False
    """One of its tools asked to end the nearest loop (W2)."""


@dataclass(slots=True)
class Progress:
    """Which agents of a workflow are done: the next drive goes on behind them (W7)."""

    round: int = 0
    results: dict[int, AgentResult] = field(default_factory=dict)
    """Of this round, by their place."""
    text: str = ""
    """The latest that was not empty."""

    def copied(self) -> Progress:
        return Progress(self.round, dict(self.results), self.text)


@dataclass(slots=True)
class Shared:
    """What an agent of a workflow has of it, and what it is to give back (W5)."""

    inherited: int = 0
    """How many messages of its conversation were there before it."""
    said: list[StoredMessage] = field(default_factory=list)
    """What it said before a middleware of its own rewrote its conversation."""
    changes: list[tuple[Literal["merge", "set"], dict[str, Any]]] = field(default_factory=list)
    """What it did to the values."""

    def copied(self) -> Shared:
        return Shared(self.inherited, list(self.said), list(self.changes))

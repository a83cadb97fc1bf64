"""The parts of a run's state that only workflows and their agents have."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from understudy.models.messages import StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """How an agent of a workflow ended its run."""

    agent: str
    """The agent's name."""
    outcome: Literal["completed", "failed", "stopped"]
    text: str = ""
    """The final text."""
    output: Any = None
    """The value of its `output_type`, as JSON; None without a value."""
    error: dict[str, Any] | None = None
    """The `to_dict()` of the error by which it failed."""
    signals: dict[str, Any] | None = None
    """The `to_dict()` of the signals that stopped it."""
    escalated: bool = False
    """Whether one of its tools asked to end the nearest loop."""


@dataclass(slots=True)
class Progress:
    """The progress of a workflow: the agents that have ended in this round. A resumed run continues
    after them.
    """

    round: int = 0
    results: dict[int, AgentResult] = field(default_factory=dict)
    """The results of this round, by the agent's index."""
    text: str = ""
    """The latest final text that was not empty."""

    def copied(self) -> Progress:
        return Progress(self.round, dict(self.results), self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The part of the workflow's conversation with which an agent's own conversation begins."""

    start: int
    """The index of the first message that it may see."""
    end: int
    """The number of the workflow's messages at that time."""
    at: datetime
    """The time at which the agent began."""


@dataclass(slots=True)
class Shared:
    """What an agent of a workflow adds to the workflow's conversation and values."""

    inherited: int = 0
    """The number of messages of its conversation that come from the workflow."""
    said: list[StoredMessage] = field(default_factory=list)
    """The messages that it added before a middleware of its own replaced its conversation."""
    changes: list[tuple[Literal["merge", "set"], dict[str, Any]]] = field(default_factory=list)
    """Its changes to the values, oldest first."""
    told: View | None = None
    """The view from which its inherited messages are made again. None if the conversation of the
    agent or of the workflow was replaced since: then a stored state has all messages."""

    def copied(self) -> Shared:
        return Shared(self.inherited, list(self.said), list(self.changes), self.told)

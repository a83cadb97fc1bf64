"""What an agent's actor may be asked, by its ref."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelRequest

from understudy.agent.runner import Decisions
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome
from understudy.run.until_tool import UntilTool
from understudy.state.records import Revoked, Settled
from understudy.stopping import StopSignal

__all__ = [
    "AgentMessage",
    "Cancel",
    "Compact",
    "Delete",
    "Notify",
    "Passivate",
    "Pause",
    "Query",
    "RecordFact",
    "Resume",
    "Retry",
    "RunChoices",
    "RunRequest",
    "Send",
    "Unpause",
    "WaitOutcome",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """How a run was asked to end; checked against the agent's definition where that is known."""

    until_tool: UntilTool | None = None
    until_tool_success: UntilTool | None = None
    max_runs: int | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Somebody wants a run and waits for its outcome."""

    message: ModelRequest | None
    """None where the message stands in the queue already."""
    choices: RunChoices
    future: Future[Outcome]
    message_id: str | None
    """Given by the caller: a repeat attaches to this run (J14)."""
    refuse_if_interrupted: bool = False
    callers: tuple[str, ...] = ()
    """The agents in whose runs it was wanted: none of them can answer meanwhile."""


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a message, and run it when its turn comes."""

    message: ModelRequest
    message_id: str
    steer: bool
    self_sent: bool
    future: Future[str]


@dataclass(frozen=True, slots=True)
class Resume:
    """Answer requests."""

    decisions: Decisions
    future: Future[Outcome]


@dataclass(frozen=True, slots=True)
class WaitOutcome:
    """Wait for the outcome of the run that goes on; one that stands or is over has its own."""

    future: Future[Outcome | None]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run that goes on, or stands."""

    signal: StopSignal
    future: Future[Outcome | None]


@dataclass(frozen=True, slots=True)
class Pause:
    """Hold the run after the next model reply."""

    reason: str
    future: Future[None]


@dataclass(frozen=True, slots=True)
class Unpause:
    """Let it go on."""

    future: Future[None]


@dataclass(frozen=True, slots=True)
class Retry:
    """Release a quarantined run."""

    future: Future[Outcome]


@dataclass(frozen=True, slots=True)
class Query:
    """Read something of the agent between two messages."""

    future: Future[Any]
    what: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Notify:
    """Hand a message to a middleware of the agent (A7)."""

    middleware: str
    message: Any
    future: Future[None]


@dataclass(frozen=True, slots=True)
class Passivate:
    """Lie down, once the step in progress is recorded."""

    future: Future[bool]


@dataclass(frozen=True, slots=True)
class Compact:
    """Put a snapshot down in place of all records so far."""

    future: Future[None]


@dataclass(frozen=True, slots=True)
class Delete:
    """End whatever goes on, and delete the agent."""

    signal: StopSignal
    future: Future[bool]


@dataclass(frozen=True, slots=True)
class RecordFact:
    """Record that a standing answer, or a doubt, is over."""

    fact: Revoked | Settled
    future: Future[None]


AgentMessage = (
    RunRequest
    | Send
    | Resume
    | WaitOutcome
    | Cancel
    | Pause
    | Unpause
    | Retry
    | Query
    | Notify
    | Passivate
    | Compact
    | Delete
    | RecordFact
)

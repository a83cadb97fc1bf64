"""How a run ends, or stops for now: match an outcome with `match`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.usage import RunUsage

from understudy.errors import DecisionError, UnderstudyError
from understudy.explanations import (
    why_completed,
    why_failed,
    why_interrupted,
    why_paused,
    why_stopped,
)
from understudy.interrupts import Decision, Request, checked_decision
from understudy.state.agent_state import AgentState
from understudy.state.workflow_progress import AgentResult
from understudy.stopping import StopSignals

__all__ = ["Completed", "Failed", "Interrupted", "Outcome", "Paused", "Stopped", "ToolCallResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResult:
    """What the until tool's call brought (U7)."""

    tool_name: str
    call_key: str
    tool_call_id: str
    arguments: dict[str, Any]
    """As they were run."""
    content: Any
    """What the model was, or would have been, told."""
    value: Any
    """The tool's own return value; after a recovery rebuilt through its return annotation.

    None where the result is an error: the tool returned nothing.
    """
    is_error: bool
    value_lost: bool = False
    """The tool's own value is not there any more (J18).

    It could not be stored, or the tool's annotation does not accept any more what was.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The run is done."""

    text: str
    """The model's final text; may be empty when an until tool ended the run."""
    tool_result: ToolCallResult | None = None
    """Of the until tool, if the run had one."""
    output: Any = field(default=None, repr=False)
    """The final text as a value of the agent's `output_type`; without one the text (W4)."""
    results: tuple[AgentResult, ...] = field(default=(), repr=False)
    """Of a workflow: what each of its agents came to, in declared order; of a loop in its last
    round."""
    early_stopped: bool = False
    """The run reached a limit, and the model answered with what it had (R1)."""
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """In one sentence, why the run ended."""
        return why_completed(
            self.state,
            self.tool_result.tool_name if self.tool_result is not None else None,
            early=self.early_stopped,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """The run waits for a person. Answer with `agent.resume(outcome.state, {request.id: ...})`."""

    requests: tuple[Request, ...]
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """In one sentence, what the run waits for."""
        return why_interrupted(self.state, self.requests)

    def decide(self, *decisions: Decision | Mapping[str, Any]) -> dict[str, Decision]:
        """One decision for each request, in order, as the mapping that `resume` takes.

        Raises:
            DecisionError: if their number differs, or one does not fit its request (I5).

        """
        if len(decisions) != len(self.requests):
            raise DecisionError(
                f"{len(self.requests)} requests stand and {len(decisions)} decisions came: give "
                "one for each in order, or a mapping of request ids to resume()"
            )
        return {
            request.id: checked_decision(request, decision)
            for request, decision in zip(self.requests, decisions, strict=True)
        }

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The run stands still until somebody lets it go on: `agent.resume(outcome.state)`."""

    reason: str
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """In one sentence, why the run stands."""
        return why_paused(self.state, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The run was stopped; all that was finished before is in the state (P7)."""

    signals: StopSignals
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """In one sentence, what stopped the run."""
        return why_stopped(self.state, self.signals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run ended by an error; all that was finished before is in the state."""

    error: UnderstudyError
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """In one sentence, why the run failed."""
        return why_failed(self.state, self.error)


Outcome = Completed | Interrupted | Paused | Stopped | Failed

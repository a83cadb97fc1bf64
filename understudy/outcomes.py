"""How a run ends, or stops for now: match an outcome with `match`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelRequest
from pydantic_ai.usage import RunUsage

from understudy.errors import DecisionError, UnderstudyError
from understudy.interrupts import Decision, Request, checked_decision
from understudy.state.agent_state import AgentState, RunState
from understudy.state.continuation import continuation_of, overridden_signals, overrides_exhausted
from understudy.state.workflow_progress import AgentResult, Progress
from understudy.stopping import StopSignal, StopSignals

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
        return _why_completed(
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
        return _why_interrupted(self.state, self.requests)

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
        return _why_paused(self.state, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The run was stopped; all that was finished before is in the state (P7)."""

    signals: StopSignals
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """In one sentence, what stopped the run."""
        return _why_stopped(self.state, self.signals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run ended by an error; all that was finished before is in the state."""

    error: UnderstudyError
    run_id: str = ""
    state: AgentState = field(repr=False)
    usage: RunUsage = field(repr=False)

    def explain(self) -> str:
        """In one sentence, why the run failed."""
        return _why_failed(self.state, self.error)


Outcome = Completed | Interrupted | Paused | Stopped | Failed


def _why_completed(state: AgentState, tool: str | None, *, early: bool) -> str:
    """Of a completed run; `tool` is the until tool that ended it."""
    run = _run(state)
    if early:
        return _sentence(state, "Completed early", f"{_limit(run)}, so the model answered")
    if tool is not None:
        return _sentence(state, "Completed", f"the tool {tool!r} has its result")
    decision = continuation_of(run)
    highest = decision.signals.highest
    if highest is not None and decision.should_stop and not highest.reason.was_force_stopped:
        return _sentence(state, "Completed", f"{highest}")
    if run.progress is not None:
        return _sentence(state, "Completed", _way_of(run.progress))
    if len(state.messages) > 0 and isinstance(state.messages[-1], ModelRequest):
        return _sentence(state, "Completed", "a tool that it called ended it")
    return _sentence(state, "Completed", "the model gave its final answer")


def _way_of(progress: Progress) -> str:
    """How the agents of a workflow came to its end."""
    results = [result for _, result in sorted(progress.results.items())]
    rounds = f" in round {progress.round + 1}" if progress.round else ""
    told = f"its agents have done their part{rounds}"
    for result in results:
        if result.escalated:
            told = f"its agent {result.agent!r} escalated{rounds}"
    for result in results:
        if result.signals is not None:
            highest = StopSignals.from_dict(result.signals).highest
            told += f"; {result.agent!r} was stopped by {highest}"
        elif result.error is not None:
            told += f"; {result.agent!r} failed: {result.error['message']}"
    return told


def _why_stopped(state: AgentState, signals: StopSignals) -> str:
    """Of a stopped run."""
    highest = signals.highest
    others = [signal for signal in signals if signal is not highest]
    told = f"{highest}"
    if others:
        told += f", and also {_listed(others)}"
    run = _run(state)
    asked = any(override.turn == run.turns for override in run.overrides)
    if asked and run.cancelled is None and (worn := overrides_exhausted(run)):
        told += f", although somebody asked to go on: {', '.join(worn)} was overridden "
        told += f"{run.max_overrides} times in a row already"
    return _sentence(state, "Stopped", told)


def _why_failed(state: AgentState, error: UnderstudyError) -> str:
    """Of a failed run."""
    return _sentence(state, "Failed", f"{type(error).__name__}: {error}")


def _why_interrupted(state: AgentState, requests: Sequence[Request]) -> str:
    """Of a run that waits for a person."""
    asked = ", ".join(f"{request.kind} of {request.tool_name!r}" for request in requests)
    many = "1 request stands" if len(requests) == 1 else f"{len(requests)} requests stand"
    return _sentence(state, "Waits for a person", f"{many}: {asked}")


def _why_paused(state: AgentState, reason: str) -> str:
    """Of a run that stands still."""
    return _sentence(state, "Paused", reason)


def _limit(run: RunState) -> str:
    """What made the model answer early."""
    given = [g for g in run.signals if g.turn == run.early_stop and g.answer]
    if not given:
        return f"its max_runs={run.max_runs} were used up"
    return _listed([StopSignal.from_dict(g.signal) for g in given])


def _sentence(state: AgentState, how: str, why: str) -> str:
    run = _run(state)
    asked = run.model_calls if run.workflow is None else state.usage.requests
    calls = "1 model call" if asked == 1 else f"{asked} model calls"
    passed = overridden_signals(run)
    before = f" (it had gone on in spite of {_listed(list(passed))})" if passed else ""
    return f"{how} after {calls}: {why.rstrip('.')}{before}."


def _listed(signals: Sequence[StopSignal]) -> str:
    told: dict[str, int] = {}
    for signal in signals:
        told[str(signal)] = told.get(str(signal), 0) + 1
    return ", ".join(f"{text} ({n} times)" if n > 1 else text for text, n in told.items())


def _run(state: AgentState) -> RunState:
    assert state.run is not None, "an outcome is of a run"
    return state.run

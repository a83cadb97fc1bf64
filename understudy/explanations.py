"""One sentence about how a run ended, or why it stands."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelRequest

from understudy.errors import UnderstudyError
from understudy.interrupts import Request
from understudy.state.agent_state import AgentState, RunState
from understudy.state.continuation import continuation_of, overridden_signals, worn_out
from understudy.state.workflow_progress import Progress
from understudy.stopping import StopSignal, StopSignals

__all__ = [
    "why_completed",
    "why_failed",
    "why_interrupted",
    "why_paused",
    "why_stopped",
]


def why_completed(state: AgentState, tool: str | None, *, early: bool) -> str:
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


def why_stopped(state: AgentState, signals: StopSignals) -> str:
    """Of a stopped run."""
    highest = signals.highest
    others = [signal for signal in signals if signal is not highest]
    told = f"{highest}"
    if others:
        told += f", and also {_listed(others)}"
    run = _run(state)
    asked = any(override.turn == run.turns for override in run.overrides)
    if asked and run.cancelled is None and (worn := worn_out(run)):
        told += f", although somebody asked to go on: {', '.join(worn)} was overridden "
        told += f"{run.max_overrides} times in a row already"
    return _sentence(state, "Stopped", told)


def why_failed(state: AgentState, error: UnderstudyError) -> str:
    """Of a failed run."""
    return _sentence(state, "Failed", f"{type(error).__name__}: {error}")


def why_interrupted(state: AgentState, requests: Sequence[Request]) -> str:
    """Of a run that waits for a person."""
    asked = ", ".join(f"{request.kind} of {request.tool_name!r}" for request in requests)
    many = "1 request stands" if len(requests) == 1 else f"{len(requests)} requests stand"
    return _sentence(state, "Waits for a person", f"{many}: {asked}")


def why_paused(state: AgentState, reason: str) -> str:
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

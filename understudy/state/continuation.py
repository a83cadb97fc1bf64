"""The boundary between two turns of a run: who wants it to stop there, and who to go on (P3, P4).

Boundary number n lies before turn n. A signal or an override given in turn n, or between the turns,
belongs to the next boundary and to no other. So nothing must be taken back: where turn n came
although a signal stood before it, the signal was overridden.
"""

from __future__ import annotations

from understudy.state.agent_state import RunState
from understudy.state.records import Signalled
from understudy.stopping import ExecutionContinuation, StopSignal, StopSignals

__all__ = [
    "active_signals",
    "continuation_of",
    "overridden_signals",
    "overrides_exhausted",
    "wants_answer",
]


def active_signals(run: RunState) -> list[Signalled]:
    """Those that count at the boundary before the next turn."""
    return [given for given in run.signals if given.turn == run.turns]


def continuation_of(run: RunState) -> ExecutionContinuation:
    """Whether the next turn may come. An override of a guard too often overridden is none (P4)."""
    signals = StopSignals(tuple(StopSignal.from_dict(g.signal) for g in active_signals(run)))
    asked = any(override.turn == run.turns for override in run.overrides)
    return ExecutionContinuation(signals, asked and not overrides_exhausted(run))


def overrides_exhausted(run: RunState) -> list[str]:
    """The guards that stand now and were overridden `max_overrides` times in a row already (P4)."""
    by_turn: dict[int, set[str]] = {}
    for given in run.signals:
        by_turn.setdefault(given.turn, set()).add(_guard(given))
    worn = []
    for guard in by_turn.get(run.turns, ()):
        turn = run.turns
        while guard in by_turn.get(turn - 1, ()):
            turn -= 1
        if run.turns - turn >= run.max_overrides:
            worn.append(guard)
    return sorted(worn)


def wants_answer(run: RunState) -> bool:
    """Whether all that stands would let the model answer once more before the run ends.

    A run that must end by a tool cannot end by an answer.
    """
    return run.until_tool is None and all(given.answer for given in active_signals(run))


def overridden_signals(run: RunState) -> StopSignals:
    """Those that the run went on in spite of, oldest first."""
    passed = [g for g in run.signals if g.turn < run.turns and g.turn != run.early_stop]
    return StopSignals(tuple(StopSignal.from_dict(g.signal) for g in passed))


def _guard(given: Signalled) -> str:
    return str(given.signal.get("source") or given.signal["reason"])

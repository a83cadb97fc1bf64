"""Whether a run continues at the boundary between two turns: its signals and overrides there.

Boundary n is before turn n. A signal or an override given in turn n - 1, or between the turns,
belongs to boundary n and to no other. So no signal has to be removed: if turn n began although
boundary n has a signal, the signal was overridden.
"""

from __future__ import annotations

from understudy.state.records import Signalled
from understudy.state.run_state import RunState
from understudy.stopping import ExecutionContinuation, StopSignal, StopSignals


def active_signals(run: RunState) -> list[Signalled]:
    """The signals at the boundary before the next turn."""
    return [given for given in run.signals if given.turn == run.turns]


def override_requested(run: RunState) -> bool:
    """Whether an override was given for the boundary before the next turn."""
    return any(override.turn == run.turns for override in run.overrides)


def continuation_of(run: RunState) -> ExecutionContinuation:
    """Whether the next turn may begin. An override has no effect on a guard that had too many."""
    signals = StopSignals(tuple(StopSignal.from_dict(g.signal) for g in active_signals(run)))
    return ExecutionContinuation(signals, override_requested(run) and not overrides_exhausted(run))


def overrides_exhausted(run: RunState) -> list[str]:
    """The guards that signal now and were overridden `max_overrides` times in a row already."""
    by_turn: dict[int, set[str]] = {}
    for given in run.signals:
        by_turn.setdefault(given.turn, set()).add(_guard(given))
    exhausted = []
    for guard in by_turn.get(run.turns, ()):
        turn = run.turns
        while guard in by_turn.get(turn - 1, ()):
            turn -= 1
        if run.turns - turn >= run.max_overrides:
            exhausted.append(guard)
    return sorted(exhausted)


def allows_answer(run: RunState) -> bool:
    """Whether every active signal lets the model answer once more before the run ends.

    A run with an until tool cannot end by an answer.
    """
    return run.until_tool is None and all(given.answer for given in active_signals(run))


def overridden_signals(run: RunState) -> StopSignals:
    """The signals in spite of which the run continued, oldest first."""
    passed = [g for g in run.signals if g.turn < run.turns and g.turn != run.early_stop]
    return StopSignals(tuple(StopSignal.from_dict(g.signal) for g in passed))


def _guard(given: Signalled) -> str:
    """The name under which overrides are counted: the signal's source, or else its reason."""
    return str(given.signal.get("source") or given.signal["reason"])

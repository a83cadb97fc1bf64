"""The steps that close a turn: `check_until_tool` and `continue_or_finish`."""

from __future__ import annotations

from typing import Any

from understudy.errors import UntilToolNotCalled
from understudy.modes.ends import outcome_of
from understudy.modes.tool_ready import Ready, prepare
from understudy.outcomes import Outcome
from understudy.records import End, TurnClosed
from understudy.run import Run
from understudy.state import Call

__all__ = ["check_until_tool", "continue_or_finish"]


async def check_until_tool(run: Run) -> Outcome | None:
    """End the run if an until tool has a result that counts, the first in call order (U1, U3).

    A call that never ran (denied, or not executed) brought no result of the tool.
    """
    current = run.current
    turn = current.turn
    if turn is None or current.until_tool is None or not turn.propagated:
        return None
    counting = ("success",) if current.require_tool_success else ("success", "failed")
    for call in turn.calls.values():
        if call.part.tool_name not in current.until_tool or call.result is None:
            continue
        if call.result.part.outcome in counting:
            end = End(
                outcome="completed",
                text=turn.response.text or "",
                tool_call=call.key,
                tool_arguments=_arguments(run, call),
            )
            return _close(run, end)
    return None


async def continue_or_finish(run: Run) -> Outcome | None:
    """Go round again after tool calls; finish after a reply without any (J1)."""
    current = run.current
    turn = current.turn
    if turn is None:
        return None
    if turn.broken is not None:
        return _close(run, End(outcome="failed", error=turn.broken))
    if turn.calls or turn.response.state == "suspended" or _steered(run):
        run.record(TurnClosed(turn=turn.index))
        return None
    if current.until_tool is not None:
        error = UntilToolNotCalled(
            tools=current.until_tool, success_required=current.require_tool_success
        )
        return _close(run, End(outcome="failed", error=error.to_dict()))
    return _close(run, End(outcome="completed", text=turn.response.text or ""))


def _steered(run: Run) -> bool:
    """Whether a message waits that is to steer this run (A2)."""
    return any(queued.steer for queued in run.state.queue.values())


def _close(run: Run, end: End) -> Outcome:
    turn = run.current.turn
    assert turn is not None, "only an open turn is closed"
    run.record(TurnClosed(turn=turn.index, end=end))
    return outcome_of(end, run.state, run.definition.tools, run.live_values)


def _arguments(run: Run, call: Call) -> dict[str, Any]:
    ready = prepare(run, call)
    if isinstance(ready, Ready):
        return ready.tool.canonical(ready.checked)
    raw = call.part.args
    return dict(raw) if isinstance(raw, dict) else {"raw": raw}

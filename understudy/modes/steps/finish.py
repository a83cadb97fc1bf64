"""The steps that close a turn: `check_until_tool` and `continue_or_finish`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelRequest

from understudy.errors import UntilToolNotCalled
from understudy.models.messages import user_message
from understudy.models.output import InvalidOutput
from understudy.modes.steps.call_llm import steering
from understudy.modes.steps.check_stop import NO_ANSWER, end_by
from understudy.modes.steps.run_end import final_end, outcome_of
from understudy.modes.steps.tool_arguments import Ready, prepare
from understudy.outcomes import Outcome
from understudy.run.run import Run
from understudy.state.continuation import allows_answer, continuation_of
from understudy.state.records import End, TurnClosed
from understudy.state.run_state import Call, Turn
from understudy.stopping import ExecutionContinuation

__all__ = ["check_until_tool", "continue_or_finish"]

GO_ON = "Go on."
"""What the model is told where it is asked again after its final reply, and nobody said more."""


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
    """Stop by a signal, go on by an override; else go round again after tool calls (P3, J1)."""
    current = run.current
    turn = current.turn
    if turn is None:
        return None
    if turn.broken is not None:
        return _close(run, End(outcome="failed", error=turn.broken))
    for hook in run.definition.hooks.after_step:
        await hook(run.threads, run)
    asks = turn.calls or turn.response.state == "suspended" or steering(run)
    goes_on = bool(asks) and not _by_request(turn)
    if current.signals or current.overrides or current.early_stop is not None:
        decision = continuation_of(current)
        end = _end_after(run, turn, decision)
        if end is not None:
            return _close(run, end)
        if decision.continuation_requested and not goes_on:
            run.record(TurnClosed(turn=turn.index, message=_prompt(run)))
            return None
    if goes_on:
        run.record(TurnClosed(turn=turn.index))
        return None
    if current.until_tool is not None:
        error = UntilToolNotCalled(
            tools=current.until_tool, success_required=current.require_tool_success
        )
        return _close(run, End(outcome="failed", error=error.to_dict()))
    text = turn.response.text or ""
    if turn.calls:  # a tool ended it: its words beside the call are no final answer (W3, W4)
        return _close(run, End(outcome="completed", text=text))
    try:
        return _close(run, final_end(run.definition, text))
    except InvalidOutput as error:
        at = run.clock.now()
        told = user_message(f"Your answer does not fit:\n{error}\nAnswer again.", at=at)
        run.record(TurnClosed(turn=turn.index, message=told))
        return None


def _by_request(turn: Turn) -> bool:
    """Whether a tool of the turn asked to end the run with it (W3)."""
    for call in turn.calls.values():  # once a step: a generator takes 3 times as long
        if call.result is not None and call.result.skip_summarization:
            return True
    return False


def _end_after(run: Run, turn: Turn, decision: ExecutionContinuation) -> End | None:
    """How signals, or an early stop, end the run after this turn.

    A signal that lets the model answer first does not: before the next step it begins the answer,
    and a final reply is one already.
    """
    text = turn.response.text or ""
    if decision.should_stop and not allows_answer(run.current):
        end = end_by(run, decision.signals, text)
        final = end.outcome == "completed" and bool(text) and not turn.calls
        return _as_final(run, end) if final else end
    if run.current.early_stop is not None:
        return _early_end(run, text)
    return None


def _early_end(run: Run, text: str) -> End:
    """The end by an answer before its time."""
    end = End(outcome="completed", text=text, early_stopped=True)
    return end if text == NO_ANSWER else _as_final(run, end)


def _as_final(run: Run, end: End) -> End:
    """The end with what becomes of its text: no value of the output type, and it is none (W4)."""
    try:
        final = final_end(run.definition, end.text)
    except InvalidOutput:
        return end  # the model is not asked again: its text is all there is
    return replace(final, early_stopped=end.early_stopped, signals=end.signals)


def _prompt(run: Run) -> ModelRequest:
    """What the model is told that is asked again after its final reply."""
    current = run.current
    prompts = [o.prompt for o in current.overrides if o.turn == current.turns and o.prompt]
    return user_message("\n\n".join(prompts) or GO_ON, at=run.clock.now())


def _close(run: Run, end: End) -> Outcome:
    turn = run.current.turn
    assert turn is not None, "only an open turn is closed"
    run.record(TurnClosed(turn=turn.index, end=end))
    return outcome_of(end, run.state, run.definition, run.live_values)


def _arguments(run: Run, call: Call) -> dict[str, Any]:
    ready = prepare(run, call)
    if isinstance(ready, Ready):
        return ready.tool.canonical(ready.checked)
    raw = call.part.args
    return dict(raw) if isinstance(raw, dict) else {"raw": raw}

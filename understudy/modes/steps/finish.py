"""The steps that close a turn, and may end the run: `check_until_tool`, `continue_or_finish`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse

from understudy.errors import EffectUnknown, ReplyCut, ResultNotKept, RunError
from understudy.models.messages import user_message
from understudy.models.output import InvalidOutput
from understudy.modes.steps.call_llm import steering_messages
from understudy.modes.steps.check_stop import NO_ANSWER, end_by, until_tool_not_called
from understudy.modes.steps.conditions import acts_if
from understudy.modes.steps.run_end import final_end, outcome_of
from understudy.modes.steps.tool_call.arguments import ReadyCall, prepare
from understudy.outcomes import Outcome
from understudy.run.run import Run
from understudy.state.continuation import allows_answer, continuation_of
from understudy.state.records import End, TurnClosed
from understudy.state.run_state import Call, Turn
from understudy.stopping import ExecutionContinuation

GO_ON = "Go on."
"""The user message for a continuation after a final reply, if the override has no prompt."""
CUT = "Your reply was cut off at its length limit. Reply again, and keep it shorter."
"""The user message after a reply that was cut and cannot be used."""


def _may_end_by_tool(run: Run) -> bool:
    return run.current.until_tool is not None or bool(run.definition.output_tools)


@acts_if(_may_end_by_tool)
async def check_until_tool(run: Run) -> Outcome | None:
    """End the run by the first result of an until tool, in call order, or by the output tool.

    A call that was denied or not executed has no result of the tool.
    """
    current = run.current
    turn = current.turn
    if turn is None or not turn.propagated:
        return None
    if current.until_tool is None:
        return _end_by_output_tool(run, turn) if run.definition.output_tools else None
    counting = ("success",) if current.require_tool_success else ("success", "failed")
    for call in turn.calls.values():
        if call.result is None or not run.is_until_tool(call.part.tool_name):
            continue
        if call.result.part.outcome in counting:
            end = End(
                outcome="completed",
                text=turn.response.text or "",
                tool_call=call.key,
                tool_arguments=_arguments(run, call),
            )
            return _close(run, end)
        if call.result.doubt is not None or call.result.ran:
            return _close(run, End(outcome="failed", error=_why_not_again(call).to_dict()))
    return None


def _why_not_again(call: Call) -> RunError:
    """Why the model is not asked to call the until tool once more: it may have taken effect."""
    assert call.result is not None, "only asked for a call that has its result"
    tool, doubt = call.part.tool_name, call.result.doubt
    if doubt is not None:
        return EffectUnknown(tool=tool, call_key=call.key, reason=doubt)
    return ResultNotKept(tool=tool, call_key=call.key, text=str(call.result.part.content))


def _end_by_output_tool(run: Run, turn: Turn) -> Outcome | None:
    """End the run by the first valid answer that the model gave with the output tool."""
    output, names = run.definition.output, {tool.name for tool in run.definition.output_tools}
    if output is None or output.is_held_back(turn.calls.values()):
        return None
    for call in turn.calls.values():
        result = call.result
        if call.part.tool_name not in names or result is None:
            continue
        if result.part.outcome == "success":
            value = result.value if result.value_is == "separate" else result.part.content
            end = End(
                outcome="completed",
                text=json.dumps(value, ensure_ascii=False),
                output=value,
                has_output=True,
                output_key=output.key,
                early_stopped=run.current.early_stop is not None,
            )
            return _close(run, end)
    return None


async def continue_or_finish(run: Run) -> Outcome | None:
    """Close the turn. Stop by a signal, continue by an override or after tool calls, or finish."""
    current = run.current
    turn = current.turn
    if turn is None:
        return None
    if turn.broken is not None:
        return _close(run, End(outcome="failed", error=turn.broken))
    for hook in run.definition.hooks.after_step:
        await hook(run.threads, run)
    pending = turn.calls or turn.response.state == "suspended" or steering_messages(run)
    goes_on = bool(pending) and not _skips_summarization(turn)
    if current.signals or current.overrides or current.early_stop is not None:
        decision = continuation_of(current)
        end = await _end_after(run, turn, decision)
        if end is not None:
            return _close(run, end)
        if decision.continuation_requested and not goes_on:
            run.record(TurnClosed(turn=turn.index, message=_continuation_prompt(run)))
            return None
    if goes_on:
        if turn.cut and turn.calls and not steering_messages(run):
            return _close_cut(run, turn)
        run.record(TurnClosed(turn=turn.index))
        return None
    text = turn.response.text or ""
    if turn.cut and (current.until_tool is not None or not text.strip()):
        return _close_cut(run, turn)
    if current.until_tool is not None:
        return _close(run, End(outcome="failed", error=until_tool_not_called(run).to_dict()))
    if turn.calls:  # a tool ended it: text next to a tool call is not a final answer
        return _close(run, End(outcome="completed", text=text))
    try:
        return _close(run, await final_end(run, text))
    except InvalidOutput as error:
        if turn.cut:
            return _close_cut(run, turn)
        at = run.clock.now()
        message = user_message(f"Your answer does not fit:\n{error}\nAnswer again.", at=at)
        run.record(TurnClosed(turn=turn.index, message=message))
        return None


def _close_cut(run: Run, turn: Turn) -> Outcome | None:
    """Ask for a cut reply again; end the run where it was cut before, at the same limit."""
    tokens = turn.response.usage.output_tokens
    before = _cut_before(run)
    if before is not None and tokens <= before.usage.output_tokens:  # a hook may raise the limit
        settings = run.definition.model_settings or run.models[0].settings or {}
        error = ReplyCut(max_tokens=settings.get("max_tokens"), output_tokens=tokens)
        return _close(run, End(outcome="failed", error=error.to_dict()))
    message = None if turn.calls else user_message(CUT, at=run.clock.now())
    run.record(TurnClosed(turn=turn.index, message=message))
    return None


def _cut_before(run: Run) -> ModelResponse | None:
    """The reply of this run before that of the open turn, if it was cut too."""
    messages = run.state.messages
    replies = 0
    for index in range(len(messages) - 1, run.current.first_message - 1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse):
            replies += 1
            if replies == 2:
                return message if message.finish_reason == "length" else None
    return None


def _skips_summarization(turn: Turn) -> bool:
    """Whether a tool of the turn ends the run, without another model call."""
    for call in turn.calls.values():
        if call.result is not None and call.result.skip_summarization:
            return True
    return False


async def _end_after(run: Run, turn: Turn, decision: ExecutionContinuation) -> End | None:
    """How signals, or an early stop, end the run after this turn.

    A signal with `answer` does not end it here. Before the next turn it begins the early stop, and
    after a final reply there is an answer already.
    """
    text = turn.response.text or ""
    if decision.should_stop and not allows_answer(run.current):
        end = end_by(run, decision.signals, text)
        final = end.outcome == "completed" and bool(text) and not turn.calls
        return await _with_output(run, end) if final else end
    if run.current.early_stop is not None:
        end = End(outcome="completed", text=text if text.strip() else NO_ANSWER, early_stopped=True)
        return end if end.text == NO_ANSWER else await _with_output(run, end)
    return None


async def _with_output(run: Run, end: End) -> End:
    """The end with the output that is parsed from its text, if it can be."""
    try:
        final = await final_end(run, end.text)
    except InvalidOutput:
        return end  # the model is not asked again
    return replace(final, early_stopped=end.early_stopped, signals=end.signals)


def _continuation_prompt(run: Run) -> ModelRequest:
    """The user message for a model that is asked again after its final reply."""
    current = run.current
    prompts = [o.prompt for o in current.overrides if o.turn == current.turns and o.prompt]
    return user_message("\n\n".join(prompts) or GO_ON, at=run.clock.now())


def _close(run: Run, end: End) -> Outcome:
    turn = run.current.turn
    assert turn is not None, "only an open turn is closed"
    if _ends_at_once(run, end):
        run.ends_by = end
    else:
        run.record(TurnClosed(turn=turn.index, end=end))
    return outcome_of(end, run.state, run.definition, run.live_values)


def _ends_at_once(run: Run, end: End) -> bool:
    """Whether the run ends by this before anything else is done, so that one record holds both.

    Nothing is awaited between the two then: a crash in between would let another attempt decide
    anew how the run ends.
    """
    definition = run.definition
    return (
        definition.has_plain_turns
        and end.outcome == "completed"
        and end.tool_call is None
        and not (definition.hooks.on_run_end or run.state.children)
        and run.seconds_left is None
    )


def _arguments(run: Run, call: Call) -> dict[str, Any]:
    ready = prepare(run, call)
    if isinstance(ready, ReadyCall):
        return ready.tool.canonical(ready.checked)
    return call.part.args_as_dict()

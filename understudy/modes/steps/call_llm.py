"""The step `call_llm`: one request to the model, and its reply as a record.

In order: queued steering messages enter the conversation; instructions and `before_model` make the
`ModelInput`; the model is asked, through the middleware around it; `after_model` sees the reply;
unusable tool call ids are replaced; the reply is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.settings import ToolChoice

from understudy.errors import BudgetUnknown, BudgetUsedUp, ModelFailed, StreamBroken, UsageError
from understudy.models.reply_text import as_storable, copied
from understudy.modes.steps.check_stop import NO_ANSWER, stop_before
from understudy.modes.steps.model_call.ask_model import Answer, PutOff, ask_model, check_changed
from understudy.modes.steps.model_call.deltas import DeltaEmitter
from understudy.modes.steps.model_call.display_texts import with_texts_of_calls
from understudy.modes.steps.questions import ask_before_turn, at_rest, put_off
from understudy.modes.steps.run_end import outcome_of
from understudy.outcomes import Outcome
from understudy.run.hooks import Hook, HookFailed
from understudy.run.instructions import render
from understudy.run.model_input import ModelInput
from understudy.run.run import Run, outermost_workflow
from understudy.state.plans import QueuedMessage
from understudy.state.records import Reply, UserMessage
from understudy.tools import Tool


async def call_llm(run: Run) -> Outcome | None:
    """Ask the model, unless a turn is open or the last turn decided to end the run."""
    current = run.current
    if current.turn is not None:
        return None
    if current.closing is None:
        waited = current.model_call
        if waited is not None:
            outcome = at_rest(run)
            if outcome is not None or waited.held is not None:
                return outcome or await _accept_held(run, waited.held)
        elif current.signals and current.early_stop is None:  # of a custom step before this one
            outcome = stop_before(run)
            if outcome is not None:
                return outcome
        run.in_model_call = True
        if current.early_stop is None:
            for queued in steering_messages(run):
                ids = (queued.message_id,)
                run.record(UserMessage(message=queued.message, message_ids=ids, by=queued.by))
        hooks = run.definition.hooks
        texts = await _instructions(run) if run.definition.instructions else []
        prompt = _model_input(run, texts)
        if hooks.before_model:
            try:
                prompt = await _before_model(run, prompt)
            except HookFailed as failed:
                return ask_before_turn(run, failed, None)
        choice = _tool_choice(run, prompt)
        if choice is not None:
            prompt = prompt.replace(settings={**(prompt.settings or {}), "tool_choice": choice})
        answer = await ask_model(run, prompt)
        if isinstance(answer, BudgetUsedUp):
            from understudy.modes.steps.model_call.budgets import NoRoom, at_limit  # few have one

            assert isinstance(answer.__cause__, NoRoom), "nothing else raises it"
            return at_limit(run, answer.__cause__)
        if isinstance(answer, (ModelFailed, BudgetUnknown)):
            return run.failed(answer)
        if isinstance(answer, PutOff):
            return put_off(run, answer.middleware, answer.defer, answer.used, answer.costs)
        if hooks.after_model:
            # Race: a crash now would lose results that this reply is based on, while a hook acted
            # on the reply. So they are durable first
            # (test_a_build_with_one_rule_left_out_is_found_out). Without hooks nothing sees the
            # reply before it is durable itself, and its record is behind theirs: one commit for
            # both (test_a_step_of_a_model_that_answers_at_once_is_one_commit).
            await run.durable()
            return await _accept_through_hooks(run, answer)
        _record(run, _own(run, answer), answer.error)
        return None
    return outcome_of(current.closing, run.state, run.definition, run.live_values)


def steering_messages(run: Run) -> list[QueuedMessage]:
    """The queued messages for the next model call. Those to a workflow are in its own queue."""
    queue = outermost_workflow(run).state.queue
    return [queued for queued in queue.values() if queued.steer] if queue else []


async def _instructions(run: Run) -> list[str]:
    definition = run.definition
    texts = []
    for instructions in definition.instructions:
        text = await render(instructions, run.state, agent=definition.name)
        if text:
            texts.append(text)
    return texts


def _model_input(run: Run, texts: list[str]) -> ModelInput:
    """The request of the next turn, with these texts and others as its instructions."""
    definition = run.definition
    if definition.output is not None and definition.output.instructions:
        texts.append(definition.output.instructions)
    current = run.current
    if current.told:
        texts.append(current.told)
    is_whole = current.contents == "default"
    return ModelInput(
        messages=run.state.messages if is_whole else _visible_messages(run),
        instructions="\n\n".join(texts),
        tools=run.tools,
        settings=definition.model_settings,
        native_tools=definition.native_tools,
    )


async def _before_model(run: Run, prompt: ModelInput) -> ModelInput:
    """The request as the hooks `before_model` leave it."""
    kept, shown = run.state.messages, prompt.messages
    for hook in run.definition.hooks.before_model:
        replaced = await hook(run.threads, run, prompt)
        _check_returned(hook, replaced, ModelInput)
        if replaced is not None:
            check_changed(hook, prompt, replaced)
            prompt = replaced
            if kept is not run.state.messages:  # by run.replace_history
                visible = _visible_messages(run)
                if list(prompt.messages) == list(visible):  # so a later hook may replace it, too
                    prompt = prompt.replace(messages=visible)
                    shown = visible
        elif prompt.messages is shown and kept is not run.state.messages:
            prompt = prompt.replace(messages=_visible_messages(run))  # by run.replace_history
            shown = prompt.messages
        kept = run.state.messages
    return prompt


def _tool_choice(run: Run, prompt: ModelInput) -> ToolChoice:
    """The choice of tools that the settings must have; None if they stay as they are.

    All tools are sent in either case: providers want those that the conversation called, and cache
    them with it.
    """
    current = run.current
    if current.early_stop is not None:
        return "none" if prompt.tools or run.definition.output_tools else None
    if current.forced and current.until_tool is not None:
        return [tool.name for tool in prompt.tools if run.is_until_tool(tool.name)] or None
    return None


def _visible_messages(run: Run) -> Sequence[ModelMessage]:
    """The part of the conversation that `include_contents` lets the model see."""
    current, messages = run.current, run.state.messages
    if current.contents == "none" and current.shared is None:
        return messages[current.first_message :]
    return messages


def _check_returned(hook: Hook, returned: object, expected: type) -> None:
    if returned is not None and not isinstance(returned, expected):
        error = UsageError(f"it returned {returned!r}; return a {expected.__name__}, or None")
        raise HookFailed(hook.failure(error)) from error


# -------------------------------------------------------------------------------- the reply


async def _accept_held(run: Run, held: ModelResponse | None) -> Outcome | None:
    """Record a reply that was held, as `after_model` returns it now. The model is not asked."""
    assert held is not None, "only called with a reply"
    run.in_model_call = True
    return await _accept_through_hooks(run, Answer(deepcopy(held), run.models[0], is_copy=True))


def _own(run: Run, answer: Answer) -> ModelResponse:
    """The reply of the answer, copied if others hold it, so that it may be changed."""
    response = answer.response if answer.is_copy else copied(answer.response)
    response.timestamp = run.clock.now()
    if answer.error is not None:
        response.state = "interrupted"
    return response


async def _accept_through_hooks(run: Run, answer: Answer) -> Outcome | None:
    """Record the reply as `after_model` returns it; the outcome if a middleware asks about it."""
    response = _own(run, answer)
    if answer.error is None:
        raw, parts = response, list(response.parts)  # a hook may change those of the reply
        try:
            response = await _after_model(run, response)
        except HookFailed as asked:
            waited = run.current.model_call
            held = replace(raw, parts=parts) if waited is None or waited.held is None else None
            return ask_before_turn(run, asked, held)
    _record(run, response, answer.error)
    return None


def _record(run: Run, response: ModelResponse, failed: StreamBroken | ModelFailed | None) -> None:
    """Record the reply.

    No tool call of a broken or cut reply runs: it may be incomplete.
    """
    current = run.current
    if failed is None:
        if current.early_stop is not None:
            response = _without_calls(response, run.definition.output_tools)
        if not run.definition.hooks.streams_safely and run.streaming and response.text:
            DeltaEmitter(run).emit_text(response.text)  # as after_model left it
    response = _with_usable_ids(run, response)
    if run.definition.has_display_texts:
        response = with_texts_of_calls(response, run.definition.tools)
    run.record(
        Reply(
            turn=current.turns,
            response=response,
            cut=failed is not None or response.finish_reason == "length",
            broken=failed.to_dict() if failed is not None else None,
        )
    )
    run.in_model_call = False
    if run.timed:
        run.keep_time()


async def _after_model(run: Run, response: ModelResponse) -> ModelResponse:
    for hook in run.definition.hooks.after_model:
        replaced = await hook(run.threads, run, response)
        _check_returned(hook, replaced, ModelResponse)
        if replaced is not None:
            response = as_storable(replaced)
    return response


def _without_calls(response: ModelResponse, output_tools: Sequence[Tool[Any]]) -> ModelResponse:
    """The last reply of a run that stops early: without tool calls, and never without an answer."""
    parts = [
        part
        for part in response.parts
        if not isinstance(part, ToolCallPart)
        or any(part.tool_name == tool.name for tool in output_tools)
    ]
    answers = any(isinstance(part, ToolCallPart) for part in parts)
    if not answers and not (response.text or "").strip():
        parts = [part for part in parts if not isinstance(part, TextPart)]
        parts.append(TextPart(NO_ANSWER))
    return replace(response, parts=parts)


def _with_usable_ids(run: Run, response: ModelResponse) -> ModelResponse:
    """The reply with a new id for each tool call whose id is empty, used already, or holds `/`."""
    seen: set[str] = set()
    parts: list[Any] | None = None
    for index, part in enumerate(response.parts):
        if not isinstance(part, ToolCallPart):
            continue
        identity = part.tool_call_id
        if not identity or "/" in identity or identity in seen or _is_used(identity, run):
            identity = f"call_{run.run_id[:20]}_{run.current.turns}_{index}"
            while identity in seen or _is_used(identity, run):
                identity += "x"
            parts = list(response.parts) if parts is None else parts
            parts[index] = replace(part, tool_call_id=identity)
        seen.add(identity)
    if seen and run.current.shared is not None:
        outermost_workflow(run).call_ids.update(seen)
    return response if parts is None else replace(response, parts=parts)


def _is_used(identity: str, run: Run) -> bool:
    """Whether a call in the conversation has this id; in a workflow, a call of any agent of it.

    The agents of a workflow have states of their own while they run, which are joined later.
    """
    if run.state.messages.has_call_id(identity):
        return True
    if run.current.shared is None:
        return False
    workflow = outermost_workflow(run)
    return identity in workflow.call_ids or workflow.state.messages.has_call_id(identity)

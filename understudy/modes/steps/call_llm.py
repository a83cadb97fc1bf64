"""The step `call_llm`: one request to the model, and its reply as a record.

In order: queued steering messages enter the conversation; instructions and `before_model` make the
`ModelInput`; the model, or the first fallback that works, is asked; `after_model` sees the reply;
unusable tool call ids are replaced; the reply is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestAttempt,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from tenacity import RetryError

from understudy._base.causes import cause_of, message_of
from understudy._base.event_loops import is_cancelled
from understudy._base.json_values import check_text
from understudy.errors import ModelFailed, ModelRefused, RunError, StreamBroken, UsageError
from understudy.events import ReplyStarted
from understudy.models.preparation import needs_preparation, prepared
from understudy.models.reply_checks import EmptyReply, RefusedReply, check_finished, fault_of
from understudy.models.reply_text import with_valid_text
from understudy.modes.steps.check_stop import NO_ANSWER, stop_before
from understudy.modes.steps.deltas import DeltaEmitter
from understudy.modes.steps.display_texts import with_texts_of_calls
from understudy.modes.steps.model_request import parameters_of, tool_choice
from understudy.modes.steps.run_end import outcome_of
from understudy.outcomes import Outcome
from understudy.run.hooks import Hook, HookFailed
from understudy.run.instructions import render
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.state.plans import QueuedMessage
from understudy.state.records import Reply, UserMessage
from understudy.tools import Tool


async def call_llm(run: Run) -> Outcome | None:
    """Ask the model, unless a turn is open or the last one decided to end the run."""
    current = run.current
    if current.turn is not None:
        return None
    if current.closing is None:
        if current.signals and current.early_stop is None:  # of a custom step before this one
            outcome = stop_before(run)
            if outcome is not None:
                return outcome
        run.in_model_call = True
        if current.early_stop is None:
            for queued in steering_messages(run):
                run.record(UserMessage(message=queued.message, message_ids=(queued.message_id,)))
        prompt = await _model_input(run)
        answer = await _ask_models(run, prompt)
        if isinstance(answer, ModelFailed):
            return run.failed(answer)
        if run.definition.hooks.after_model:
            # Race: a crash now would lose results that this reply is based on, while a hook acted
            # on the reply. So they are durable first
            # (test_a_build_with_one_rule_left_out_is_found_out). Without hooks nothing sees the
            # reply before it is durable itself, and its record is behind theirs: one commit for
            # both (test_a_step_of_a_model_that_answers_at_once_is_one_commit).
            await run.durable()
        await _accept(run, answer)
        if run.timed:
            run.keep_time()
        return None
    return outcome_of(current.closing, run.state, run.definition, run.live_values)


def steering_messages(run: Run) -> list[QueuedMessage]:
    """The queued messages for the next model call. Those to a workflow are in its own queue."""
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
    queue = run.state.queue
    return [queued for queued in queue.values() if queued.steer] if queue else []


async def _model_input(run: Run) -> ModelInput:
    definition = run.definition
    texts = []
    for instructions in definition.instructions:
        text = await render(instructions, run.state, agent=definition.name)
        if text:
            texts.append(text)
    if definition.output is not None and definition.output.instructions:
        texts.append(definition.output.instructions)
    kept = run.state.messages
    shown = kept if run.current.contents == "default" else _visible_messages(run)
    prompt = ModelInput(
        messages=shown,
        instructions="\n\n".join(texts),
        tools=run.tools,
        settings=definition.model_settings,
        native_tools=definition.native_tools,
    )
    for hook in definition.hooks.before_model:
        replaced = await hook(run.threads, run, prompt)
        _check_returned(hook, replaced, ModelInput)
        if replaced is not None:
            _check_text(hook, prompt, replaced)
            prompt = replaced
        elif prompt.messages is shown and kept is not run.state.messages:
            prompt = prompt.replace(messages=_visible_messages(run))  # by run.replace_history
            shown = prompt.messages
        kept = run.state.messages
    choice = tool_choice(run, prompt)
    if choice is not None:
        prompt = prompt.replace(settings={**(prompt.settings or {}), "tool_choice": choice})
    return prompt


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


def _check_text(hook: Hook, before: ModelInput, after: ModelInput) -> None:
    """Check what the hook has put in; what was there before it is valid."""
    messages: list[ModelMessage] = []
    if after.messages is not before.messages:
        known = {id(message) for message in before.messages}
        messages = [message for message in after.messages if id(message) not in known]
    added = (
        ("instructions", after.instructions),
        ("messages", messages),
        ("settings", after.settings if after.settings is not before.settings else None),
        (
            "native tools",
            after.native_tools if after.native_tools is not before.native_tools else (),
        ),
    )
    try:
        for what, value in added:
            if value:
                check_text(value, what=f"the text of the {what} that it returned")
    except UsageError as error:
        raise HookFailed(hook.failure(error)) from error


# ------------------------------------------------------------------------------ the request


@dataclass(slots=True)
class _Answer:
    response: ModelResponse
    model: Model
    failed: RunError | None = None
    """It is kept, but it is no answer: the run ends by this error."""
    seconds: float = 0.0
    """How long a rejected one took."""


async def _ask_models(run: Run, prompt: ModelInput) -> _Answer | ModelFailed:
    """The first answer of the model and its fallbacks. A fallback is used for this call only.

    A reply that is refused or empty is no answer. An empty one is asked for once more. What they
    cost is recorded with the answer; without one, the last of them is recorded in its place.
    """
    parameters = parameters_of(run, prompt)
    deltas = DeltaEmitter(run) if run.streaming else None
    ask = _ask if run.definition.retry is None else _ask_with_retry
    rejected: list[_Answer] = []
    failures: list[dict[str, str]] = []
    cause: BaseException | None = None
    for model in run.models:
        if run.observed:
            run.emit(
                ReplyStarted(
                    agent_path=run.agent_path,
                    turn=run.current.turns,
                    model=model.model_name,
                    run_id=run.run_id,
                )
            )
        try:
            since = run.clock.monotonic()
            answer = await ask(run, model, prompt, parameters, deltas)
            fault = _fault(run, answer)
            if isinstance(fault, EmptyReply):
                since = _reject(run, answer, since, rejected)
                answer = await ask(run, model, prompt, parameters, deltas)
                fault = _fault(run, answer)
            if fault is None:
                return _with_attempts(answer, rejected) if rejected else answer
            _reject(run, answer, since, rejected)
            raise fault
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            cause = error
            named = {"model": model.model_name, "type": type(error).__name__}
            failures.append({**named, "message": message_of(error)})
        if deltas is not None and deltas.said_text:
            break  # a person has read it: no other model says something else now
    refused = all(failure["type"] == RefusedReply.__name__ for failure in failures)
    failed = (ModelRefused if refused else ModelFailed)(failures=failures)
    failed.__cause__ = cause
    if not rejected:
        return failed
    last = rejected.pop()
    last.failed = failed
    if deltas is None or not deltas.said_text:
        last.response = replace(last.response, parts=[])
    return _with_attempts(last, rejected)


def _fault(run: Run, answer: _Answer) -> RefusedReply | EmptyReply | None:
    """Why the reply, whose text is valid from now on, is no answer."""
    answer.response = with_valid_text(answer.response)
    if answer.failed is not None:
        return None
    fault = fault_of(answer.response)
    if isinstance(fault, EmptyReply) and run.current.early_stop is not None:
        return None  # it becomes a sentence that says so
    return fault


def _reject(run: Run, answer: _Answer, since: float, rejected: list[_Answer]) -> float:
    """Note the reply as one that is no answer. Returns the time by the clock."""
    now = run.clock.monotonic()
    answer.seconds = now - since
    rejected.append(answer)
    return now


def _with_attempts(answer: _Answer, rejected: Sequence[_Answer]) -> _Answer:
    """The answer, with the replies that were rejected as attempts before it."""
    attempts = list(answer.response.failed_attempts or ())
    for each in rejected:
        attempts += each.response.failed_attempts or ()
        attempts.append(
            ModelRequestAttempt(
                model_name=each.model.model_name,
                provider_name=each.response.provider_name,
                outcome="rejected",
                error=cause_of(fault) if (fault := fault_of(each.response)) is not None else None,
                timestamp=each.response.timestamp,
                duration=timedelta(seconds=each.seconds),
                usage=each.response.usage,
            )
        )
    answer.response = replace(answer.response, failed_attempts=attempts or None)
    return answer


async def _ask_with_retry(
    run: Run,
    model: Model,
    prompt: ModelInput,
    parameters: ModelRequestParameters,
    deltas: DeltaEmitter | None,
) -> _Answer:
    retry = run.definition.retry
    assert retry is not None, "only called with a retry policy"
    try:
        return await retry.copy()(_ask, run, model, prompt, parameters, deltas)
    except RetryError as error:
        last = error.last_attempt.exception()
        raise (last if isinstance(last, Exception) else error) from error


async def _ask(
    run: Run,
    model: Model,
    prompt: ModelInput,
    parameters: ModelRequestParameters,
    deltas: DeltaEmitter | None,
) -> _Answer:
    kept = run.state.messages
    if prompt.messages is not kept:  # those of a hook: they were never prepared
        shown = prepared(model, list(prompt.messages), parameters, prompt.settings)
        return await _request(model, shown, prompt, parameters, deltas)
    with kept.borrowed() as messages:
        if needs_preparation(model, kept, prompt.settings):
            messages = prepared(model, messages, parameters, prompt.settings)
        return await _request(model, messages, prompt, parameters, deltas)


async def _request(
    model: Model,
    messages: list[ModelMessage],
    prompt: ModelInput,
    parameters: ModelRequestParameters,
    deltas: DeltaEmitter | None,
) -> _Answer:
    if deltas is not None:
        return await _stream(model, messages, prompt, parameters, deltas)
    response = await model.request(messages, prompt.settings, parameters)
    check_finished(response, model, streamed=False)
    return _Answer(response, model)


async def _stream(
    model: Model,
    messages: list[ModelMessage],
    prompt: ModelInput,
    parameters: ModelRequestParameters,
    deltas: DeltaEmitter,
) -> _Answer:
    """Ask for a stream and emit its deltas. A stream that breaks keeps what it brought so far."""
    partial: StreamedResponse | None = None
    try:
        async with model.request_stream(messages, prompt.settings, parameters) as stream:
            partial = stream
            try:
                async for event in stream:
                    deltas.emit(event)
            finally:
                deltas.end()
            response = stream.get()
        check_finished(response, model, streamed=True)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        received = partial.get() if partial is not None else None
        if received is None or not received.parts:
            raise
        return _Answer(received, model, StreamBroken(model=model.model_name, cause=cause_of(error)))
    return _Answer(response, model)


# -------------------------------------------------------------------------------- the reply


async def _accept(run: Run, answer: _Answer) -> None:
    """Record the reply. No tool call of a broken or cut reply runs: it may be incomplete."""
    response = object.__new__(type(answer.response))  # as copy.copy does, at a quarter of its cost
    response.__dict__.update(answer.response.__dict__)
    response.timestamp = run.clock.now()
    current = run.current
    failed = answer.failed
    if failed is not None:
        response.state = "interrupted"
    else:
        for hook in run.definition.hooks.after_model:
            replaced = await hook(run.threads, run, response)
            _check_returned(hook, replaced, ModelResponse)
            if replaced is not None:
                response = with_valid_text(replaced)
        if current.early_stop is not None:
            response = _without_calls(response, run.definition.output_tool)
        if not run.definition.hooks.streams_safely and run.streaming and response.text:
            DeltaEmitter(run).emit_text(response.text)  # as after_model left it
    response = with_texts_of_calls(_with_usable_ids(run, response), run.definition.tools)
    run.record(
        Reply(
            turn=current.turns,
            response=response,
            cut=failed is not None or response.finish_reason == "length",
            broken=failed.to_dict() if failed is not None else None,
        )
    )
    run.in_model_call = False


def _without_calls(response: ModelResponse, output_tool: Tool[Any] | None) -> ModelResponse:
    """The last reply of a run that stops early: without tool calls, and never without an answer."""
    parts = [
        part
        for part in response.parts
        if not isinstance(part, ToolCallPart)
        or (output_tool is not None and part.tool_name == output_tool.name)
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
    return response if parts is None else replace(response, parts=parts)


def _is_used(identity: str, run: Run) -> bool:
    """Whether a call in the conversation has this id; in a workflow, a call of any agent of it.

    The agents of a workflow have states of their own while they run, which are joined later.
    """
    if run.current.shared is None:
        return run.state.messages.has_call_id(identity)
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
    return any(state.messages.has_call_id(identity) for state in run.state.tree)

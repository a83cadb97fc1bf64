"""The step that asks the model: `call_llm`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from tenacity import RetryError

from understudy.errors import ModelFailed, StreamBroken, UsageError
from understudy.events import ReplyStarted, TextDelta, ThinkingDelta
from understudy.models.model_names import needs_preparation
from understudy.modes.steps.check_stop import NO_ANSWER, stop_before
from understudy.modes.steps.run_end import outcome_of
from understudy.outcomes import Outcome
from understudy.run.hooks import Hook, HookFailed
from understudy.run.instructions import render
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.state.agent_state import QueuedMessage
from understudy.state.records import Reply, UserMessage


async def call_llm(run: Run) -> Outcome | None:
    """Ask the model, if no turn is open and none has decided to end the run (J1)."""
    current = run.current
    if current.turn is not None:
        return None
    if current.closing is None:
        if current.signals and current.early_stop is None:  # of a step put before this one
            outcome = stop_before(run)
            if outcome is not None:
                return outcome
        run.asking = True
        if current.early_stop is None:
            _take_steering(run)
        prompt = await _prompt(run)
        answer = await _ask_models(run, prompt)
        if isinstance(answer, ModelFailed):
            return run.failed(answer)
        if run.definition.hooks.after_model:
            # The results before it: only then is the reply accepted (J2). Without hooks it is by
            # its record, which is durable after theirs and told after that: one commit for both.
            await run.durable()
        await _accept(run, answer)
        if run.timed:
            run.keep_time()
        return None
    return outcome_of(current.closing, run.state, run.definition, run.live_values)


def _take_steering(run: Run) -> None:
    """Messages that are to steer this run enter the conversation now (A2)."""
    for queued in steering(run):
        run.record(UserMessage(message=queued.message, message_ids=(queued.message_id,)))


async def _prompt(run: Run) -> ModelInput:
    definition = run.definition
    answering = run.current.early_stop is not None
    texts = []
    for instructions in definition.instructions:
        text = await render(instructions, run.state, agent=definition.name)
        if text:
            texts.append(text)
    if definition.output is not None and definition.output.instructions:
        texts.append(definition.output.instructions)
    kept = run.state.messages
    shown = kept if run.current.contents == "default" else _contents(run)
    prompt = ModelInput(
        messages=shown,
        instructions="\n\n".join(texts),
        tools=() if answering else run.tools,
        settings=definition.model_settings,
    )
    for hook in definition.hooks.before_model:
        replaced = await hook(run.threads, run, prompt)
        _check_returned(hook, replaced, ModelInput)
        if replaced is not None:
            prompt = replaced
        elif prompt.messages is shown and kept is not run.state.messages:
            prompt = prompt.replace(messages=_contents(run))  # the hook rewrote history
            shown = prompt.messages
        kept = run.state.messages
    if answering and prompt.tools:
        prompt = prompt.replace(tools=())  # whatever a hook would offer
    return prompt


def _contents(run: Run) -> Sequence[ModelMessage]:
    """The conversation, or what the agent is to see of it (W5)."""
    current, messages = run.current, run.state.messages
    if current.contents == "none" and current.shared is None:
        return messages[current.first_message :]
    return messages


def _check_returned(hook: Hook, returned: object, wanted: type) -> None:
    if returned is not None and not isinstance(returned, wanted):
        error = UsageError(f"it returned {returned!r}; return a {wanted.__name__}, or None")
        raise HookFailed(hook.failure(error)) from error


# ----------------------------------------------------------------------- asking


@dataclass(slots=True)
class _Answer:
    response: ModelResponse
    model: Model
    broken: BaseException | None = None


async def _ask_models(run: Run, prompt: ModelInput) -> _Answer | ModelFailed:
    """The first answer of the model and its fallbacks, for this call only (R5)."""
    parameters = _parameters(run, prompt)
    ask = _ask if run.definition.retry is None else _ask_with_retry
    failures = []
    cause: Exception | None = None
    for model in run.models:
        if run.observed:
            run.emit(
                ReplyStarted(
                    agent_path=run.agent_path, turn=run.current.turns, model=model.model_name
                )
            )
        try:
            return await ask(run, model, prompt, parameters)
        except Exception as error:
            cause = error
            failures.append(
                {"model": model.model_name, "type": type(error).__name__, "message": str(error)}
            )
    failed = ModelFailed(failures=failures)
    failed.__cause__ = cause
    return failed


def _parameters(run: Run, prompt: ModelInput) -> ModelRequestParameters:
    last = run.parameters
    if last is not None:
        asked, parameters = last
        if asked.tools is prompt.tools and asked.instructions == prompt.instructions:
            return parameters
    parameters = prompt.parameters()
    run.parameters = prompt, parameters
    return parameters


async def _ask_with_retry(
    run: Run, model: Model, prompt: ModelInput, parameters: ModelRequestParameters
) -> _Answer:
    retry = run.definition.retry
    assert retry is not None, "only asked where there is one"
    try:
        return await retry.copy()(_ask, run, model, prompt, parameters)
    except RetryError as error:
        last = error.last_attempt.exception()
        raise (last if isinstance(last, Exception) else error) from error


async def _ask(
    run: Run, model: Model, prompt: ModelInput, parameters: ModelRequestParameters
) -> _Answer:
    kept = run.state.messages
    if prompt.messages is not kept:  # a hook shows others; nobody has prepared them
        shown = model.prepare_messages(list(prompt.messages), parameters)
        return await _request(run, model, shown, prompt, parameters)
    with kept.borrowed() as messages:
        if not kept.plain or needs_preparation(model):
            messages = model.prepare_messages(messages, parameters)
        return await _request(run, model, messages, prompt, parameters)


async def _request(
    run: Run,
    model: Model,
    messages: list[ModelMessage],
    prompt: ModelInput,
    parameters: ModelRequestParameters,
) -> _Answer:
    if run.streaming:
        return await _stream(run, model, messages, prompt, parameters)
    return _Answer(await model.request(messages, prompt.settings, parameters), model)


async def _stream(
    run: Run,
    model: Model,
    messages: list[ModelMessage],
    prompt: ModelInput,
    parameters: ModelRequestParameters,
) -> _Answer:
    """Ask for a stream and tell its text as it comes. One that breaks keeps what came (R6)."""
    partial: StreamedResponse | None = None
    teller = _Teller(run)
    try:
        async with model.request_stream(messages, prompt.settings, parameters) as stream:
            partial = stream
            async for event in stream:
                teller.tell(event)
            response = stream.get()
    except Exception as error:
        came = partial.get() if partial is not None else None
        if came is None or not came.parts:
            raise
        return _Answer(came, model, error)
    if response.state == "incomplete":
        return _Answer(response, model, EOFError("it ended before the reply did"))
    return _Answer(response, model)


class _Teller:
    """Emits what a stream brings, numbered."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.count = 0
        self.live = run.observed and run.definition.hooks.streams_safely

    def tell(self, event: Any) -> None:
        if not self.live:
            return
        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ):
                self.text(text)
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text)))
            ):
                if text:
                    self.run.emit(ThinkingDelta(text=text, **self._place()))

    def text(self, text: str) -> None:
        if text:
            self.run.emit(TextDelta(text=text, **self._place()))

    def _place(self) -> dict[str, Any]:
        current = self.run.current
        self.count += 1
        return {
            "agent_path": self.run.agent_path,
            "turn": current.turns,
            "attempt": current.attempts,
            "n": self.count - 1,
        }


# -------------------------------------------------------------------- accepting


async def _accept(run: Run, answer: _Answer) -> None:
    """Record the reply. Of a broken or cut one no tool call is to run (R6)."""
    response = object.__new__(type(answer.response))  # as copy.copy does, at a quarter of its cost
    response.__dict__.update(answer.response.__dict__)
    response.timestamp = run.clock.now()
    current = run.current
    broken: StreamBroken | None = None
    if answer.broken is not None:
        response.state = "interrupted"
        cause = f"{type(answer.broken).__name__}: {answer.broken}"
        broken = StreamBroken(model=answer.model.model_name, cause=cause)
    else:
        for hook in run.definition.hooks.after_model:
            replaced = await hook(run.threads, run, response)
            _check_returned(hook, replaced, ModelResponse)
            if replaced is not None:
                response = replaced
        if current.early_stop is not None:
            response = _answer_only(response)
        if not run.definition.hooks.streams_safely and run.streaming and response.text:
            _Teller(run).text(response.text)
    response = with_own_ids(run, response)
    run.record(
        Reply(
            turn=current.turns,
            response=response,
            cut=broken is not None or response.finish_reason == "length",
            broken=broken.to_dict() if broken is not None else None,
        )
    )
    run.asking = False


def _answer_only(response: ModelResponse) -> ModelResponse:
    """The last reply of a run that stops early: its text, and no tool call (R1)."""
    parts = [part for part in response.parts if not isinstance(part, ToolCallPart)]
    if not (response.text or "").strip():
        parts = [part for part in parts if not isinstance(part, TextPart)]
        parts.append(TextPart(NO_ANSWER))
    return replace(response, parts=parts)


def with_own_ids(run: Run, response: ModelResponse) -> ModelResponse:
    """The reply with each unusable tool call id replaced (T7)."""
    seen: set[str] = set()
    parts: list[Any] | None = None
    for index, part in enumerate(response.parts):
        if not isinstance(part, ToolCallPart):
            continue
        identity = part.tool_call_id
        if not identity or "/" in identity or identity in seen or _occurs(identity, run):
            identity = f"call_{run.run_id[:20]}_{run.current.turns}_{index}"
            while identity in seen or _occurs(identity, run):
                identity += "x"
            parts = list(response.parts) if parts is None else parts
            parts[index] = replace(part, tool_call_id=identity)
        seen.add(identity)
    return response if parts is None else replace(response, parts=parts)


def _occurs(identity: str, run: Run) -> bool:
    """Whether a call has this id; in a workflow those of all of its agents will stand together."""
    if run.current.shared is None:
        return run.state.messages.has_call_id(identity)
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
    return any(state.messages.has_call_id(identity) for state in run.state.tree)


def steering(run: Run) -> list[QueuedMessage]:
    """Those that wait for the next model call; in a workflow they wait at its top."""
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
    queue = run.state.queue
    return [queued for queued in queue.values() if queued.steer] if queue else []

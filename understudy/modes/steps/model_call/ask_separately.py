"""A model call beside the conversation, with its answer as a record: `Run.ask_model`."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from understudy._base.json_values import check_sendable, checked_text, shown
from understudy.errors import ModelFailed, RecordRefused, UsageError
from understudy.models import resolve_model
from understudy.models.messages import normalised, user_message
from understudy.models.model_names import refresh_client
from understudy.models.output import InvalidOutput, Output
from understudy.modes.steps.model_call.ask_model import (
    Answer,
    ModelCall,
    ask_through,
    with_attempts,
)
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.state.records import ModelAsked, ModelGaveNoAnswer
from understudy.state.run_state import asked_key

MAX_ANSWERS = 3
"""The number of times that a model is asked for an answer that fits."""
_asking: contextvars.ContextVar[frozenset[tuple[str, str]]] = contextvars.ContextVar(
    "_asking", default=frozenset()
)
"""The questions that are being asked now, each as a run id and a key."""
_OF_TOOLS = ("tool_choice", "parallel_tool_calls")
"""Settings that providers refuse in a request without tools."""


async def ask_separately(
    run: Run, key: str, messages: Any, model: Any, output_type: Any, known: dict[str, Model]
) -> Any:
    """As `Run.ask_model`.

    Args:
        run: the run, with the agent's own models.
        key: identifies it within the run.
        messages: the question.
        model: the model to ask; None for the agent's own.
        output_type: the type of the answer.
        known: the models used so far, by name; it grows.

    """
    what = f"run.ask_model({shown(key)})"
    checked_text(key, what="run.ask_model: `key`")
    own_key = run.key_of_asker(key)
    request = _request(run, key, messages, what=what)
    if model is not None and (not isinstance(model, (str, Model)) or not model):
        raise UsageError(
            f"{what}: `model` must be a Pydantic AI Model, or its name such as "
            f"'openai:gpt-5-mini', got {shown(model)}"
        )
    output = Output(key=None, type=output_type, agent=f"{run.definition.name}, {what}")
    instructions = "\n\n".join(filter(None, (request.instructions, output.instructions)))
    request = request.replace(instructions=instructions)

    async def ask() -> ModelAsked:
        token = _asking.set(_asking.get() | {(run.run_id, own_key)})
        try:
            chosen = _model(run, model, known, what)
            answered = await _ask(run, own_key, request.replace(model=chosen), output)
        finally:
            _asking.reset(token)
        try:
            run.ledger.check(answered)
        except RecordRefused as refused:  # it was paid for nevertheless
            run.ledger.record(
                ModelGaveNoAnswer(key=own_key, response=answered.response, error=str(refused))
            )
            raise
        return answered

    if (run.run_id, own_key) in _asking.get():
        raise UsageError(
            f"{what} was called while it asks, by what stands around its model call: it would wait "
            "for itself. Give another key"
        )
    stored = await run.recorded(asked_key(own_key), ask)
    try:
        return output.load(stored)
    except ValueError as error:
        raise UsageError(
            f"{what}: the recorded answer is no {output_type!r}: give another key where another "
            "answer is wanted"
        ) from error


def _request(run: Run, key: str, given: object, *, what: str) -> ModelInput:
    is_conversation = (
        isinstance(given, Sequence)
        and bool(given)
        and all(isinstance(each, (ModelRequest, ModelResponse)) for each in given)
    )
    if not is_conversation:
        try:
            messages: list[ModelMessage] = [user_message(given, at=run.clock.now())]
        except UsageError as error:
            raise UsageError(
                f"{what}: `messages` must be a user's input, or a list of Pydantic AI's messages: "
                f"{error}"
            ) from error
        return ModelInput(messages, "", (), None, ask_key=key)
    conversation = cast("Sequence[ModelMessage]", given)
    if not isinstance(conversation[-1], ModelRequest):
        raise UsageError(f"{what}: the last of `messages` must be a ModelRequest, which asks")
    found = [each.instructions for each in conversation if isinstance(each, ModelRequest)]
    instructions = next((text for text in reversed(found) if text), "")
    check_sendable(instructions, what=f"{what}: a text of the instructions")
    return ModelInput(normalised(conversation), instructions, (), None, ask_key=key)


def _model(run: Run, given: str | Model | None, known: dict[str, Model], what: str) -> Model | None:
    """The model to ask; None for the agent's own."""
    if given is None:
        if not run.models:
            raise UsageError(
                f"{what}: agent {run.definition.name!r} has no model of its own: give `model`"
            )
        return None
    if isinstance(given, str):
        model = known.get(given)
        if model is None:
            model = known[given] = resolve_model(given)
    else:
        model = given
    refresh_client(model)
    return model


async def _ask(run: Run, key: str, request: ModelInput, output: Output) -> ModelAsked:
    """Ask until an answer fits.

    Raises:
        ModelFailed: if there is none.

    """
    if request.model is None and run.definition.model_settings:
        own = run.definition.model_settings
        settings = {name: value for name, value in own.items() if name not in _OF_TOOLS}
        request = request.replace(settings=cast("ModelSettings", settings))
    rejected: list[Answer] = []
    while True:
        answer = await ask_through(
            run, request, _CallBeside(run), run.definition.hooks.wrap_ask_model
        )
        if isinstance(answer, ModelFailed):
            _note_cost(run, key, rejected, answer)
            raise answer
        if answer.error is not None:
            _note_cost(run, key, [*rejected, answer], answer.error)
            raise answer.error
        try:
            value = _value(answer.response, output)
        except InvalidOutput as error:
            rejected.append(answer)
            if len(rejected) == MAX_ANSWERS:
                failed = _no_answer(rejected, error)
                _note_cost(run, key, rejected, failed)
                raise failed from error
            again = user_message(
                f"Your answer does not fit:\n{error}\nAnswer again.", at=run.clock.now()
            )
            spoken = replace(answer.response, parts=[*_texts(answer.response)])
            asked = [*request.messages, *([spoken] if spoken.parts else ()), again]
            request = request.replace(messages=asked)
            continue
        response = with_attempts(answer, rejected).response if rejected else answer.response
        return ModelAsked(
            key=key,
            response=replace(response, parts=[], timestamp=run.clock.now()),
            value=value,
        )


def _texts(response: ModelResponse) -> list[Any]:
    return [part for part in response.parts if part.part_kind == "text"]


def _value(response: ModelResponse, output: Output) -> Any:
    text = response.text or ""
    if not text.strip():
        if response.finish_reason == "length":
            raise InvalidOutput("It was cut off at its length limit before its text began.")
        raise InvalidOutput("It has no text.")
    return output.read(text)


def _no_answer(rejected: Sequence[Answer], error: InvalidOutput) -> ModelFailed:
    failure = {
        "model": rejected[-1].model.model_name,
        "type": type(error).__name__,
        "message": f"{len(rejected)} answers did not fit: {error}",
    }
    return ModelFailed(failures=[failure])


def _note_cost(run: Run, key: str, rejected: Sequence[Answer], error: Exception) -> None:
    """Record the cost of replies that are no answer, if there were any."""
    if not rejected:
        return
    *before, last = rejected
    response = with_attempts(last, before).response if before else last.response
    response = replace(response, timestamp=run.clock.now())
    run.ledger.record(ModelGaveNoAnswer(key=key, response=response, error=str(error)))


class _CallBeside(ModelCall):
    """A model call whose text nobody follows, and that asks for nothing beside its request."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._deltas = None

    def _begin(self, model: Model, request: ModelInput) -> ModelRequestParameters:
        return request.parameters()

    def _may_be_empty(self) -> bool:
        return False

"""One model call: through the middleware around it to the model, and back with a reply.

`wrap_model_call` hooks see each request and its reply. What the models raise passes through them;
what they raise themselves is a failure of the hook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import ClassVar

from pydantic_ai.messages import ModelMessage, ModelRequestAttempt, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from understudy._base.error_texts import error_text
from understudy._base.event_loops import is_cancelled
from understudy._base.json_values import check_sendable, shown
from understudy.errors import (
    BudgetUnknown,
    BudgetUsedUp,
    ModelFailed,
    ModelRefused,
    StreamBroken,
    UsageError,
)
from understudy.events import ReplyStarted
from understudy.interrupts import Defer
from understudy.models.not_found import model_error_text
from understudy.models.preparation import needs_preparation, prepared
from understudy.models.prices import priced, unasked
from understudy.models.reply_checks import (
    CancelledByModel,
    EmptyReply,
    RefusedReply,
    check_finished,
    fault_of,
)
from understudy.models.reply_text import as_storable
from understudy.modes.steps.hooks_around import HooksAround
from understudy.modes.steps.model_call.deltas import DeltaEmitter
from understudy.run.definition import AgentDefinition
from understudy.run.hooks import Hook, HookFailed
from understudy.run.model_input import ModelInput
from understudy.run.run import Run, end_if_stopped
from understudy.state.costs import Lines, adding, is_priced, line_of


@dataclass(slots=True)
class Answer:
    """A reply of a model."""

    response: ModelResponse
    model: Model
    error: StreamBroken | ModelFailed | None = None
    """The error by which the run ends: the reply is kept, but is no answer."""
    seconds: float = 0.0
    """The seconds that a rejected reply took."""
    is_copy: bool = False
    """Whether nobody else has the reply: it need not be copied before it is changed."""


@dataclass(frozen=True, slots=True)
class PutOff:
    """The model call is to begin again later."""

    middleware: str
    defer: Defer
    used: RunUsage | None
    """The usage of replies that were no answer."""
    costs: Lines
    """The cost of these replies, if they were priced."""


async def ask_model(
    run: Run, request: ModelInput
) -> Answer | ModelFailed | PutOff | BudgetUsedUp | BudgetUnknown:
    """The answer that the models and the middleware around them give to this request.

    A reply that is refused or empty is no answer. After an empty reply the model is asked once
    more. The cost of rejected replies is recorded with the answer. Without an answer, the last
    rejected reply is recorded in its place.
    """
    call = ModelCall(run)
    try:
        answer = await ask_through(run, request, call, run.definition.hooks.wrap_model_call)
        cause = answer.__cause__ if isinstance(answer, ModelFailed) else None
        if isinstance(cause, BudgetUsedUp):
            # A hook may have raised it `from` another error
            # (test_a_hook_that_raises_again_what_a_budget_has_refused_changes_nothing).
            cause.__cause__ = call.refused_by
        return cause if isinstance(cause, (BudgetUsedUp, BudgetUnknown)) else answer
    except HookFailed as failed:
        if isinstance(failed.__cause__, Defer):
            return PutOff(failed.error.middleware, failed.__cause__, call.used, call.costs)
        raise


async def ask_through(
    run: Run, request: ModelInput, call: ModelCall, hooks: Sequence[Hook]
) -> Answer | ModelFailed:
    """The answer of a model call, through these hooks around it."""
    try:
        if not hooks:
            answer = await call.ask(request)
            return with_attempts(answer, call.rejected) if call.rejected else answer
        response = await call.through(run, hooks, request)
    except Exception as error:
        if not call.raised_inside(error):
            raise
        return call.failed(error)
    return call.answer(response)


class ModelCall(HooksAround[ModelInput, ModelResponse]):
    """One model call of a turn: every request that is made for it, and what came of each."""

    # These values hold until something goes wrong: most calls are made once and keep one answer.
    _asking: bool = False
    _answers: tuple[Answer, ...] = ()
    rejected: tuple[Answer, ...] = ()
    """The replies that were no answer."""
    _failures: tuple[dict[str, str], ...] = ()
    _last_failed: Model | None = None
    _raised: tuple[BaseException, ...] = ()
    _broken: Answer | None = None
    ended: BaseException | None = None
    refused_by: BaseException | None = None
    """The reason for which budgets refused a request last; None if they refused none."""
    caught: ClassVar[tuple[type[BaseException], ...]] = (Exception, asyncio.CancelledError)

    def __init__(self, run: Run) -> None:
        self._run = run
        self._deltas = DeltaEmitter(run) if run.streaming else None

    async def innermost(self, passed: ModelInput) -> ModelResponse:
        """The reply of the request's model, for hooks.

        Raises:
            Exception: what the model raised, or what is wrong with its reply.

        """
        answer = await self.ask(passed)
        answer.is_copy = False
        self._answers += (answer,)
        return answer.response

    async def ask(self, passed: ModelInput) -> Answer:
        """The answer of the request's model, which no hook has seen: as `innermost`."""
        run = self._run
        if self.ended is not None:
            raise self.ended
        if passed.ask_key is None and run.environment.trust.stops is not run.passed_stops:
            end_if_stopped(run)  # else a tool may ask, whose body is under way, and ends
        if self._asking:
            raise UsageError("next was called while another call of it runs: await that one first")
        model = run.models[0] if passed.model is None else passed.model
        if self._deltas is not None and self._deltas.said_text:
            # A hook asks again although there was an answer.
            raise UsageError("next was called again after text of a reply was emitted")
        parameters = self._begin(model, passed)
        answered = self._answered
        account = run.root.ledger.account
        if account is not None and account.keeper.of_models:
            answered = self._answered_within_budgets
        self._asking = True
        try:
            since = run.clock.monotonic()
            answer, fault = await answered(model, passed, parameters)
            if fault is not None:
                since = self._reject(answer, since)
                if not isinstance(fault, EmptyReply):
                    raise fault
                answer, fault = await answered(model, passed, parameters)
                if fault is not None:
                    self._reject(answer, since)
                    raise fault
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            raised = self._note(model, error)
            if raised is error:
                raise
            raise raised from error
        finally:
            self._asking = False
        if answer.error is not None:  # its stream broke
            self._broken, self.ended = answer, answer.error
            self._raised += (answer.error,)
            raise answer.error
        return answer

    def _begin(self, model: Model, request: ModelInput) -> ModelRequestParameters:
        """Say that the model is asked now. Returns the parameters of the request."""
        run = self._run
        parameters = parameters_of(run, request)
        if run.observed:
            run.emit(
                ReplyStarted(
                    agent_path=run.agent_path,
                    turn=run.current.turns,
                    model=model.model_name,
                    run_id=run.run_id,
                )
            )
        return parameters

    def _may_be_empty(self) -> bool:
        """Whether an empty reply is an answer: a value, or a sentence that says so."""
        output = self._run.definition.output
        if output is not None and output.allows_nothing:
            return True
        return self._run.current.early_stop is not None

    def _note(self, model: Model, error: BaseException) -> Exception:
        """Note what a model raised. Returns what is raised in its place."""
        named = {"model": model.model_name, "type": type(error).__name__}
        if model is self._last_failed:
            self._failures = self._failures[:-1]  # the last failure of each model is kept
        self._last_failed = model
        self._failures += ({**named, "message": model_error_text(model, error)},)
        # Middleware must not take it for a cancellation of the run.
        raised = error if isinstance(error, Exception) else CancelledByModel(error_text(error))
        self._raised += (raised,)
        if isinstance(error, BudgetUsedUp):
            self.refused_by = error.__cause__
        if self._deltas is not None and self._deltas.said_text:
            self.ended = raised  # a person has read it: no other model says something else now
        return raised

    async def _answered_within_budgets(
        self, model: Model, request: ModelInput, parameters: ModelRequestParameters
    ) -> tuple[Answer, RefusedReply | EmptyReply | None]:
        """As `_answered`, if the budgets of the runtime have room for what it may cost."""
        from understudy.modes.steps.model_call.budgets import within_budgets  # few have budgets

        return await within_budgets(
            self._run,
            model,
            request,
            parameters,
            partial(self._answered, model, request, parameters),
            lambda found: found[0].response if found[0].error is None else None,
        )

    # A test may stand around this: `testing.seams`.
    async def _answered(
        self, model: Model, request: ModelInput, parameters: ModelRequestParameters
    ) -> tuple[Answer, RefusedReply | EmptyReply | None]:
        """The reply of the model, with valid text, and why it is no answer, if it is none."""
        run, settings = self._run, request.settings
        kept, instrument = run.state.messages, run.instrument
        with kept.borrowed() as messages:
            if request.messages is not kept:  # messages of a hook were never prepared
                messages = prepared(model, list(request.messages), parameters, settings)
            elif needs_preparation(model, kept, settings):
                messages = prepared(model, messages, parameters, settings)
            if instrument is not None:
                with instrument.model_call(run, model) as watched:
                    answer = await self._requested(watched, messages, settings, parameters)
                answer.model = model
            else:
                answer = await self._requested(model, messages, settings, parameters)
        received = answer.response
        response = answer.response = as_storable(received)
        answer.is_copy = response is not received
        if run.prices is not None or response.usage.cost is not None:
            response = answer.response = priced(response, run.prices, model.model_name)
        if answer.error is not None:
            return answer, None
        fault = fault_of(response)
        if fault is not None and isinstance(fault, EmptyReply) and self._may_be_empty():
            return answer, None
        return answer, fault

    async def _requested(
        self,
        model: Model,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> Answer:
        if self._deltas is not None and _can_stream(model):
            answer = await _stream(model, messages, settings, parameters, self._deltas)
            if answer is not None:
                return answer
        response = await model.request(messages, settings, parameters)
        check_finished(response, model, streamed=False)
        if self._deltas is not None and fault_of(response) is None:
            self._deltas.emit_parts(response.parts)
        return Answer(response, model)

    def _reject(self, answer: Answer, since: float) -> float:
        """Note the reply as one that is no answer. Returns the time by the clock."""
        now = self._run.clock.monotonic()
        answer.seconds = now - since
        self.rejected += (answer,)
        return now

    def raised_inside(self, error: BaseException) -> bool:
        return any(error is known for known in self._raised)

    def check_passed_on(self, hook: Hook, given: ModelInput, passed: object) -> None:
        if not isinstance(passed, ModelInput):
            wanted = "next takes the request, or request.replace(...)"
            raise UsageError(f"{wanted}, got {shown(passed)}")
        try:
            check_changed(hook, given, passed)
        except HookFailed as failed:
            self.ended = failed
            raise

    def check_returned(self, returned: object) -> None:
        if not isinstance(returned, ModelResponse):
            raise UsageError(f"it returned {returned!r}; return what next returned")

    def end_by(
        self, hook: Hook, given: ModelInput, error: BaseException, *, has_passed_on: bool
    ) -> BaseException:
        if isinstance(error, Defer) and given.ask_key is not None:
            error = UsageError(
                "Defer was raised in run.ask_model, whose call cannot be put off: it waits in "
                "memory"
            )
        elif isinstance(error, Defer) and self.has_reply:
            error = UsageError("Defer was raised after a reply came: raise it before `next`")
        return super().end_by(hook, given, error, has_passed_on=has_passed_on)

    @property
    def has_reply(self) -> bool:
        """Whether a model has answered, or text of it was emitted."""
        return bool(self._answers) or (self._deltas is not None and self._deltas.said_text)

    @property
    def used(self) -> RunUsage | None:
        """The usage of replies that were no answer; None without a reply."""
        if not self.rejected:
            return None
        used = RunUsage(requests=len(self.rejected))
        for each in self.rejected:
            used.incr(each.response.usage)
        return used

    @property
    def costs(self) -> Lines:
        """The cost of replies that were no answer, where they were priced."""
        replies = [each.response for each in self.rejected if is_priced(each.response.usage)]
        name = self._run.current.agent
        return adding((), (line_of(name, each.model_name, each.usage) for each in replies))

    def answer(self, response: ModelResponse) -> Answer:
        """The answer, as the middleware returned its reply."""
        chosen: Answer | None = None
        rejected = self.rejected
        for each in self._answers:
            if chosen is None and each.response is response:
                chosen = each
            else:
                rejected += (each,)
        if chosen is None:  # a hook changed the last one, or made one of its own
            model = self._run.models[0]
            if self._answers:
                model, rejected = rejected[-1].model, rejected[:-1]
            response = as_storable(response)
            if not self._answers and self._run.prices is not None:
                response = unasked(response, self._run.prices)
            chosen = Answer(response, model)
        return with_attempts(chosen, rejected) if rejected else chosen

    def failed(self, error: Exception) -> Answer | ModelFailed:
        """The answer if no model gave one: the broken reply, or a rejected reply."""
        if self._broken is not None and error is self._broken.error:
            return with_attempts(self._broken, self.rejected) if self.rejected else self._broken
        refused = all(each["type"] == RefusedReply.__name__ for each in self._failures)
        failed = (ModelRefused if refused else ModelFailed)(failures=self._failures)
        failed.__cause__ = error.__cause__ if isinstance(error, CancelledByModel) else error
        if not self.rejected:
            return failed
        *rejected, last = self.rejected
        last.error = failed
        if self._deltas is None or not self._deltas.said_text:
            last.response = replace(last.response, parts=[])
        return with_attempts(last, rejected)


def with_attempts(answer: Answer, rejected: Sequence[Answer]) -> Answer:
    """The answer, with the replies that were rejected as attempts before it."""
    attempts = list(answer.response.failed_attempts or ())
    for each in rejected:
        attempts += each.response.failed_attempts or ()
        attempts.append(
            ModelRequestAttempt(
                model_name=each.model.model_name,
                provider_name=each.response.provider_name,
                outcome="rejected",
                error=error_text(fault) if (fault := fault_of(each.response)) is not None else None,
                timestamp=each.response.timestamp,
                duration=timedelta(seconds=each.seconds),
                usage=each.response.usage,
            )
        )
    answer.response = replace(answer.response, failed_attempts=attempts or None)
    return answer


# ------------------------------------------------------------------------------ the request


def _can_stream(model: Model) -> bool:
    """Whether the model may have streams, as far as this is known before it is asked."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    if isinstance(model, FallbackModel):
        return all(map(_can_stream, model.models))
    # `stream_function` is an attribute of a FunctionModel, which few programs import.
    has_none = getattr(model, "stream_function", "") is None
    return not has_none and type(model).request_stream is not Model.request_stream


async def _stream(
    model: Model,
    messages: list[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    deltas: DeltaEmitter,
) -> Answer | None:
    """Ask for a stream and emit its deltas. A stream that breaks keeps what it brought so far.

    None, if the model says that it has no streams.
    """
    partial: StreamedResponse | None = None
    try:
        async with model.request_stream(messages, settings, parameters) as stream:
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
        if partial is None and isinstance(error, NotImplementedError):
            return None
        received = partial.get() if partial is not None else None
        if received is None or not received.parts:
            raise
        return Answer(
            received, model, StreamBroken(model=model.model_name, cause=error_text(error))
        )
    return Answer(response, model)


def parameters_of(run: Run, prompt: ModelInput) -> ModelRequestParameters:
    """The parameters of this request: the last request's own object if nothing has changed."""
    if prompt.made_parameters is not None:
        return prompt.made_parameters
    last = run.parameters
    if last is not None:
        sent, parameters = last
        same_tools = sent.tools is prompt.tools and sent.native_tools is prompt.native_tools
        if same_tools and sent.instructions == prompt.instructions:
            return parameters
    parameters = prompt.parameters()
    if run.current.until_tool is None:
        ask_for_output(parameters, run.definition)
    run.parameters = prompt, parameters
    return parameters


def ask_for_output(parameters: ModelRequestParameters, definition: AgentDefinition) -> None:
    """Make the parameters ask for the final answer in the agent's output mode, if it has one."""
    output, output_tools = definition.output, definition.output_tools
    if output is None or output.mode is None:
        return
    parameters.output_mode = output.mode
    if output_tools:
        tools = [replace(tool.definition, kind="output") for tool in output_tools]
        parameters.output_tools, parameters.allow_text_output = tools, False
    else:
        parameters.output_object = output.object_definition()


def check_changed(hook: Hook, before: ModelInput, after: ModelInput) -> None:
    """Check what a hook has put into a request; what was there before it is valid.

    Raises:
        HookFailed: for what cannot be sent.

    """
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
    model = after.model
    try:
        if model is not None and not isinstance(model, Model):
            raise UsageError(f"the `model` of a request must be a Pydantic AI Model, got {model!r}")
        for what, value in added:
            if value:
                check_sendable(value, what=f"what it returned as {what}")
    except UsageError as error:
        raise HookFailed(hook.failure(error)) from error

"""`RunSpans`: the spans of attempts at runs, and of what they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from pydantic_ai.models import Model
from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_core import to_json

from understudy.errors import Fenced
from understudy.outcomes import Failed, Outcome
from understudy.run.child_calls import CallSuspended
from understudy.run.instrument import AttemptWatch, CallWatch, Instrument
from understudy.run.ledger import Ledger
from understudy.run.run import AttemptEnded, Run
from understudy.state.records import Result
from understudy.state.run_state import Call, RunState
from understudy.telemetry import conventions as c
from understudy.telemetry.guarded import GuardedTracer, extra_attributes, guarded
from understudy.telemetry.meters import Meters
from understudy.telemetry.moments import moment
from understudy.telemetry.record_metrics import RecordMetrics
from understudy.telemetry.trace_context import (
    TRACEPARENT,
    link_to,
    parent_of,
    traceparent_of,
)

Attributes = dict[str, Any]


class RunSpans(Instrument[Run]):
    """Watches runs.

    Args:
        tracer: of all spans but those of models.
        meters: of all metrics but those of models.
        models: the settings of the spans and metrics of models.
        content: whether arguments, results and the text of errors are reported.
        continue_trace: whether attempts are in the trace of the first one.
        host: the name of the runtime, where there is one.

    """

    def __init__(
        self,
        tracer: GuardedTracer,
        meters: Meters,
        models: InstrumentationSettings,
        *,
        content: bool,
        continue_trace: bool,
        host: str | None = None,
    ) -> None:
        self._tracer = tracer
        self._meters = meters
        self._models = models
        self._content = content
        self._continue_trace = continue_trace
        self._host = host

    def follow(self, ledger: Ledger) -> None:
        """Make metrics, and the spans of waits, of its records."""
        metrics = RecordMetrics(ledger, self._tracer, self._meters, content=self._content)
        ledger.follow(metrics.record)

    def restarted(self, ledger: Ledger) -> None:
        """Report that the actor of this agent was restarted."""
        guarded("a restart", None, self._restarted, ledger)

    def _restarted(self, ledger: Ledger) -> None:
        run = ledger.state.run
        self._meters.add(c.RESTARTS, 1, {c.AGENT_NAME: "" if run is None else run.agent})
        if run is not None and not run.over:
            moment(self._tracer, c.RESTART_ACTOR, run, trace=run.trace)

    # ------------------------------------------------------------------------------ attempts

    @contextmanager
    def attempt(self, run: Run) -> Iterator[AttemptSpan]:
        """A span around an attempt at a run."""
        watch = guarded("an attempt", None, self._begun, run) or AttemptSpan(None, None)
        token = None if watch.context is None else otel_context.attach(watch.context)
        since = time.perf_counter()
        root = run.root.ledger if run.parent is None else None
        if root is not None:
            # An attempt that the runtime gives up may continue for ever, so the known facts are
            # reported now.
            root.on_fence += (watch.given_up,)
        try:
            yield watch
        except BaseException as error:
            watch.outcome = _how(error)
            watch.error = error if watch.outcome == "crashed" else None
            raise
        finally:
            if root is not None:
                root.on_fence = tuple(each for each in root.on_fence if each != watch.given_up)
            if token is not None:
                otel_context.detach(token)
            guarded("an attempt", None, self._ended, run, watch, time.perf_counter() - since)

    def _begun(self, run: Run) -> AttemptSpan:
        current = run.current
        is_workflow = current.workflow is not None
        operation = c.INVOKE_WORKFLOW if is_workflow else c.INVOKE_AGENT
        name = run.definition.name
        answered = run.parent is None and _is_answered(run)
        reason = "resume" if answered else "continue"
        if current.attempts == 0:
            reason = "start" if current.continues is None else "retry"
        attributes: Attributes = {
            c.OPERATION: operation,
            c.AGENT_NAME: name,
            c.AGENT_ID: run.agent_id,
            c.CONVERSATION_ID: run.root.agent_id,
            c.RUN_ID: current.run_id,
            c.RUN_ATTEMPT: current.attempts + 1,
            c.RUN_REASON: reason,
            c.AGENT_PATH: "/".join(run.agent_path),
        }
        if current.continues is not None:
            attributes[c.RUN_CONTINUES] = current.continues.run_id
        if run.definition.version:
            attributes[c.AGENT_VERSION] = str(run.definition.version)
        if self._host is not None:
            attributes[c.HOST] = self._host
        if run.parent is None and current.host is not None and run.ledger.host != current.host:
            self._meters.add(c.TAKEOVERS, 1, {c.AGENT_NAME: name})
        parent, links = self._parent(run, answered=answered)
        span = self._tracer.start_span(
            f"{operation} {name}",
            context=parent,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            links=links,
        )
        own = span.get_span_context()
        is_new = own.is_valid and own != _span_of(parent)
        trace = traceparent_of(own) if is_new else None
        if self._continue_trace and parent_of(current.trace) is not None:
            trace = current.trace  # of the first one, of which all are children
        return AttemptSpan(span, set_span_in_context(span, parent), trace)

    def _parent(self, run: Run, *, answered: bool) -> tuple[Context | None, list[Link]]:
        """The parent's context (None: that of the task) and the links of a new attempt."""
        current = run.current
        previous = parent_of(current.trace)
        links = link_to(current.trace, "previous")
        if run.parent is not None:
            return None, links  # what runs it is the current span here
        if self._continue_trace and previous is not None:
            return _here_below(previous), []
        if run.ledger.outlives_run is None:
            return None, links  # it runs in the task of its caller
        # Not the context of this task: that is of the caller that activated the agent
        # (test_a_run_is_no_part_of_the_trace_that_opened_the_runtime).
        if current.attempts == 0:
            caller = current.context.get(TRACEPARENT)
        else:
            caller = _decider(run) if answered else None
        return _here_below(parent_of(caller)), links

    def _ended(self, run: Run, watch: AttemptSpan, seconds: float) -> None:
        attributes = {c.AGENT_NAME: run.definition.name, c.OUTCOME: watch.outcome}
        self._meters.record(c.ATTEMPT_DURATION, seconds, attributes)
        if watch.outcome == "fenced" and run.parent is None:
            self._meters.add(c.FENCES, 1, {c.AGENT_NAME: run.definition.name})
            watch.fenced()
        watch.finish(content=self._content)

    # ----------------------------------------------------------------------------- tool calls

    @contextmanager
    def tool_call(self, run: Run, call: Call) -> Iterator[CallSpan]:
        """A span around an attempt at a tool call."""
        name = call.part.tool_name
        attributes: Attributes = {
            c.OPERATION: c.EXECUTE_TOOL,
            c.TOOL_NAME: name,
            c.TOOL_TYPE: "function",
            c.TOOL_CALL_ID: call.part.tool_call_id,
            c.AGENT_NAME: run.definition.name,
            c.CONVERSATION_ID: run.root.agent_id,
            c.CALL_KEY: call.key,
            c.CALL_ATTEMPT: call.attempts,
        }
        if self._content:
            attributes[c.TOOL_ARGUMENTS] = guarded("content", "", partial(_arguments, call))
        span = self._tracer.start_span(f"{c.EXECUTE_TOOL} {name}", attributes=attributes)
        watch = CallSpan(span)
        token = otel_context.attach(set_span_in_context(span))
        since = time.perf_counter()
        try:
            yield watch
        except BaseException as error:
            watch.outcome = "suspended" if isinstance(error, CallSuspended) else _how(error)
            raise
        finally:
            otel_context.detach(token)
            attributes = {c.TOOL_NAME: name, c.AGENT_NAME: run.definition.name}
            error_type = watch.finish(call, content=self._content)
            if error_type is not None:
                attributes[c.ERROR_TYPE] = error_type
            self._meters.record(c.TOOL_DURATION, time.perf_counter() - since, attributes)

    # --------------------------------------------------------------------------------- models

    @contextmanager
    def model_call(self, run: Run, model: Model) -> Iterator[Model]:
        """Pydantic AI's span around a request to a model, unless the model makes its own."""
        attributes = {
            c.OPERATION: c.CHAT,
            c.REQUEST_MODEL: model.model_name,
            c.PROVIDER: model.system,
        }
        extra = extra_attributes.set(
            {
                c.AGENT_NAME: run.definition.name,
                c.AGENT_ID: run.agent_id,
                c.CONVERSATION_ID: run.root.agent_id,
            }
        )
        since = time.perf_counter()
        try:
            yield model if _is_instrumented(model) else InstrumentedModel(model, self._models)
        except BaseException as error:
            attributes[c.ERROR_TYPE] = type(error).__name__
            raise
        finally:
            extra_attributes.reset(extra)
            self._meters.record(c.MODEL_DURATION, time.perf_counter() - since, attributes)


class AttemptSpan(AttemptWatch):
    """The span of one attempt at a run."""

    def __init__(
        self, span: Span | None, context: Context | None, trace: str | None = None
    ) -> None:
        self._span = span
        self.context: Context | None = context
        """The context in which the span is the current span."""
        self.trace: str | None = trace
        self.outcome: str = "passivated"
        self.error: BaseException | None = None
        self._ended = False

    def ended(self, outcome: Outcome) -> None:
        """The attempt has ended with an outcome."""
        self.outcome = type(outcome).__name__.lower()
        if isinstance(outcome, Failed):
            self.error = outcome.error

    def fenced(self) -> None:
        """Another host has taken the run."""
        if self._span is not None:
            self._span.add_event(c.FENCED)

    def given_up(self) -> None:
        """The runtime gives the attempt up: its code may continue for ever."""
        if self.outcome == "passivated":
            self.outcome = "abandoned"
        self.finish(content=False)

    def finish(self, *, content: bool) -> None:
        """End the span, once."""
        if self._ended or self._span is None:
            return
        self._ended = True
        self._span.set_attribute(c.OUTCOME, self.outcome)
        if self.error is not None:
            _set_error(self._span, type(self.error).__name__, self.error if content else None)
        self._span.end()


class CallSpan(CallWatch):
    """The span of one attempt at a tool call."""

    outcome: str = "asked"

    def __init__(self, span: Span) -> None:
        self._span = span
        self._result: Result | None = None

    def ended(self, result: Result | None) -> None:
        """The call has a result, or asks a person."""
        self._result = result
        if result is not None:
            self.outcome = result.part.outcome

    def finish(self, call: Call, *, content: bool) -> str | None:
        """End the span. The type of its error, if it is one."""
        result, span = self._result, self._span
        attributes: Attributes = {c.OUTCOME: self.outcome, c.CALL_ATTEMPT: call.attempts}
        error: str | None = None
        if result is not None and result.doubt is not None:
            attributes[c.IN_DOUBT], error = True, "in_doubt"
        elif self.outcome == "failed":
            error = "tool_failed"
        elif self.outcome == "crashed":
            error = "crashed"
        if content and result is not None:
            attributes[c.TOOL_RESULT] = guarded("content", "", _json, result.part.content)
        span.set_attributes(attributes)
        if error is not None:
            _set_error(span, error, None)
        span.end()
        return error


def _arguments(call: Call) -> str:
    """The arguments that the call runs with, as JSON."""
    made = call.arguments
    return call.part.args_as_json_str() if made is None else to_json(made).decode()


def _json(value: object) -> str:
    return value if isinstance(value, str) else to_json(value, fallback=repr).decode()


def _set_error(span: Span, error_type: str, error: BaseException | None) -> None:
    span.set_attribute(c.ERROR_TYPE, error_type)
    description = None if error is None else guarded("content", None, str, error)
    span.set_status(Status(StatusCode.ERROR, description))


def _how(error: BaseException) -> str:
    """How what ends by this exception ends, in one word."""
    if isinstance(error, AttemptEnded):
        return "passivated"
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "fenced" if isinstance(error, Fenced) else "crashed"


def _here_below(parent: Context | None) -> Context:
    """This context with another span, or none: what codecs have put into it stays."""
    span = INVALID_SPAN if parent is None else get_current_span(parent)
    return set_span_in_context(span, otel_context.get_current())


def _span_of(context: Context | None) -> SpanContext:
    return get_current_span(context).get_span_context()


def _is_answered(run: Run) -> bool:
    """Whether the attempt begins because a person has decided."""
    return bool(_answered_requests(run))


def _answered_requests(run: Run) -> set[str]:
    found: set[str] = set()
    for state in run.state.tree:
        inner: RunState | None = state.run
        for call in inner.calls if inner is not None and not inner.over else ():
            if call.result is None and not call.running:
                found.update(call.decisions)
    return found


def _decider(run: Run) -> str | None:
    """The span of the caller that made the newest decision by which the run continues."""
    requests = _answered_requests(run)
    newest: tuple[Any, Mapping[str, str]] | None = None
    for state in run.state.tree:
        for made in state.decisions:
            if made.request.id in requests and (newest is None or made.at >= newest[0]):
                newest = (made.at, made.context)
    return None if newest is None else newest[1].get(TRACEPARENT)


def _is_instrumented(model: Model) -> bool:
    while isinstance(model, WrapperModel):
        if isinstance(model, InstrumentedModel):
            return True
        model = model.wrapped
    return isinstance(model, InstrumentedModel)

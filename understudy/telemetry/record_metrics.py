"""`RecordMetrics`: metrics, and the spans of waits for people, from the records of an agent.

A record becomes durable once, in one process, whatever happens before and after. So everything is
counted once over crashes, restarts and hosts.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind
from pydantic_ai.messages import ModelResponse

from understudy.interrupts import Request
from understudy.run.ledger import Ledger
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.telemetry import conventions as c
from understudy.telemetry.guarded import GuardedTracer, guarded
from understudy.telemetry.meters import Meters
from understudy.telemetry.moments import moment, nanoseconds
from understudy.telemetry.trace_context import TRACEPARENT, link_to, parent_of


class RecordMetrics:
    """A listener of the durable records of one ledger."""

    def __init__(
        self, ledger: Ledger, tracer: GuardedTracer, meters: Meters, *, content: bool
    ) -> None:
        self._ledger = ledger
        self._tracer = tracer
        self._meters = meters
        self._content = content
        # These are the traces of durable attempts. The state is ahead of what is durable: a wait
        # belongs to the attempt that has asked, not to the next one
        # (test_a_wait_for_a_person_has_its_true_duration).
        self._traces: dict[tuple[str, ...], str | None] = {}
        self._held: set[tuple[str, ...]] = set()
        """The agents with a reply that waits for a person, and is recorded once more."""
        self._checked: set[str] = set()
        """The keys of the calls in doubt that wait for a check: they are counted already."""
        self._note_traces((), ledger.state)

    def _note_traces(self, path: tuple[str, ...], state: AgentState) -> None:
        if state.run is not None and not state.run.over:
            self._traces[path] = state.run.trace
            if state.run.model_call is not None and state.run.model_call.held is not None:
                self._held.add(path)
            self._checked.update(call.key for call in state.run.calls if call.check is not None)
            for child, inner in state.children.items():
                self._note_traces((*path, child), inner)

    def record(self, _seq: int, record: r.Record) -> None:
        """Take a durable record."""
        guarded("a record", None, self._measure, record)

    def _measure(self, record: r.Record) -> None:
        inside, record = r.agents_inside(record), r.innermost(record)
        path = tuple(each.child for each in inside)
        agent = "" if self._ledger.state.run is None else self._ledger.state.run.agent
        agent = inside[-1].name if inside else agent
        match record:
            case r.ReplyHeld(response=response):
                self._held.add(path)
                self._paid(agent, response)
            case r.Reply() if path in self._held:
                self._held.discard(path)  # the reply was paid for when it came
            case (
                r.Reply(response=response)
                | r.ModelAsked(response=response)
                | r.ModelGaveNoAnswer(response=response)
            ):
                self._paid(agent, response)
            case r.PointReached(costs=costs) if costs:
                for line in costs:
                    self._cost(agent, line.model, line.cost)
            case r.PointReached(what="check", call_key=key):
                if key not in self._checked:
                    self._checked.add(key)
                    self._in_doubt(agent, self._tool_of(key), "checked")
            case r.Requested(request=request):
                self._requested(agent, request)
            case r.InterruptsChecked(requests=requests, decided=decided):
                for request in requests:
                    self._requested(agent, request)
                for each in decided:
                    self._decided(each, path)
            case r.Decided():
                self._decided(record, path)
            case r.Attempt(trace=str()):
                self._traces[path] = record.trace
            case r.Result():
                is_new = not self._is_over(record.call_key)
                if record.doubt is not None and is_new:
                    self._in_doubt(agent, record.part.tool_name, "told")
                if record.settled is not None:
                    self._count(c.SETTLED, agent, {})
            case r.Settled():
                self._is_over(record.call_key)
                self._count(c.DOUBTS_ENDED if record.ended else c.SETTLED, agent, {})
            case r.Quarantined():
                self._count(c.QUARANTINES, agent, {})
                self._quarantined(record)
            case r.RunEnded(end=end, at=at):
                self._run_ended(path, end.outcome, at)
            case _:
                pass

    def _count(self, metric: c.Metric, agent: str, attributes: dict[str, Any]) -> None:
        self._meters.add(metric, 1, {c.AGENT_NAME: agent, **attributes})

    def _paid(self, agent: str, response: ModelResponse) -> None:
        """Count the cost of a reply, and of the replies that were rejected before it."""
        self._cost(agent, response.model_name, response.usage.cost)
        for attempt in response.failed_attempts or ():
            if attempt.usage is not None:
                self._cost(agent, attempt.model_name, attempt.usage.cost)

    def _cost(self, agent: str, model: str | None, cost: Decimal | None) -> None:
        if cost is not None:  # otherwise it is not priced, or its price is unknown
            attributes = {c.AGENT_NAME: agent, c.REQUEST_MODEL: model or ""}
            self._meters.add(c.COST, float(cost), attributes)

    def _requested(self, agent: str, request: Request) -> None:
        attributes = {c.TOOL_NAME: request.tool_name, c.REQUEST_KIND: request.kind}
        self._count(c.REQUESTS, agent, attributes)
        if request.kind == "doubt" and not self._is_over(request.call_key):
            self._in_doubt(agent, request.tool_name, "asked")

    def _in_doubt(self, agent: str, tool: str, what: str) -> None:
        """Count a call that has come into doubt. It is counted once, however often people are
        asked.
        """
        self._count(c.DOUBTS, agent, {c.TOOL_NAME: tool, c.DOUBT: what})

    def _is_over(self, call_key: str) -> bool:
        """Whether the wait of this call for its check is over by now."""
        waited = call_key in self._checked
        self._checked.discard(call_key)
        return waited

    def _tool_of(self, call_key: str) -> str:
        """The tool of a call that waits for its check."""
        doubt = self._ledger.state.doubts_in_tree.get(call_key)
        return "" if doubt is None else doubt.tool_name

    def _quarantined(self, record: r.Quarantined) -> None:
        run = self._ledger.state.run
        if run is not None:
            moment(
                self._tracer,
                c.QUARANTINE,
                run,
                trace=self._traces.get(()),
                at=record.at,
                error="quarantined",
                detail=record.cause if self._content else None,
            )

    def _run_ended(self, path: tuple[str, ...], outcome: str, at: datetime) -> None:
        state = self._ledger.state
        for known in [known for known in self._traces if known[: len(path)] == path]:
            del self._traces[known]
        self._held.discard(path)
        for child in path:
            inner = state.children.get(child)
            if inner is None:
                return  # its parent has its result already
            state = inner
        run = state.run
        if run is not None and run.began is not None:
            seconds = max((at - run.began).total_seconds(), 0.0)
            attributes = {c.AGENT_NAME: run.agent, c.OUTCOME: outcome}
            self._meters.record(c.RUN_DURATION, seconds, attributes)

    def _decided(self, record: r.Decided, path: tuple[str, ...]) -> None:
        request, decision = self._request(record.request_id), record.decision
        if request is None or decision.by_grant is not None:
            return  # nobody has waited for a decision by a grant
        seconds = max((record.at - request.created_at).total_seconds(), 0.0)
        attributes_of_wait = {
            c.TOOL_NAME: request.tool_name,
            c.REQUEST_KIND: request.kind,
            c.DECISION: decision.type,
            c.DECISION_ORIGIN: decision.origin,
        }
        self._meters.record(c.REQUEST_WAIT, seconds, attributes_of_wait)
        attributes: dict[str, Any] = {
            **attributes_of_wait,
            c.OPERATION: c.WAIT_FOR_PERSON,
            c.REQUEST_ID: request.id,
            c.RUN_ID: request.run_id,
            c.AGENT_ID: self._agent_id,
            c.CONVERSATION_ID: self._agent_id,
        }
        if self._content and decision.by is not None:
            attributes[c.DECIDED_BY] = decision.by
        span = self._tracer.start_span(
            f"{c.WAIT_FOR_PERSON} {request.tool_name}",
            # The span is below the attempt that has asked, where the wait began.
            context=parent_of(self._traces.get(path)) or Context(),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            links=link_to(record.context.get(TRACEPARENT), "decided"),
            start_time=nanoseconds(request.created_at),
        )
        span.end(nanoseconds(max(record.at, request.created_at)))

    @property
    def _agent_id(self) -> str:
        run = self._ledger.state.run
        return "" if run is None else run.agent_id

    def _request(self, request_id: str) -> Request | None:
        """The request of a decision, as the audit has it."""
        for state in self._ledger.state.tree:
            for made in reversed(state.decisions):
                if made.request.id == request_id:
                    return made.request
        return None

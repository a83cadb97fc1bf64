"""`ToolCall`: one call as middleware sees it, and the digest that binds an answer to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NoReturn

from understudy._base.grant_terms import EVERY_GRANT, GivenOffer, checked_offer
from understudy._base.json_values import checked_json, checked_text, digest
from understudy._base.quickly_made import quickly_made
from understudy._base.request_timing import (
    EscalateAfter,
    OnExpiry,
    RequestTiming,
    Seconds,
    request_timing,
)
from understudy._base.titles import checked_title
from understudy.approvals import Approval
from understudy.errors import UsageError
from understudy.events import ToolEmitted
from understudy.interrupts import (
    DECISION_TYPES,
    DecisionType,
    DoubtfulCall,
    Request,
    checked_allowed,
)
from understudy.run.child_calls import make_run_agent
from understudy.run.run import Run
from understudy.run.waits.points import Points
from understudy.state.run_state import Call
from understudy.tools import Tool, ToolContext
from understudy.tools.context import CallLimit

_ONLY_LOOKS = "A `check` {what}: it only finds out what a call did"


def binding(request: Request, *, run: Run, call: Call, fingerprint: str) -> str:
    """A digest of everything that a person was shown: an answer holds only if it is equal.

    It includes the salt of the request, so nobody can guess from it what is hidden from a person.

    Args:
        request: the request, with the arguments, the question and the allowed answers.
        run: the run of the agent that asks.
        call: the call that is asked about.
        fingerprint: the fingerprint of its tool.

    """
    part, settlers = call.part, request.call_approval
    return digest(
        [
            run.agent_id,
            run.run_id,
            call.key,
            part.tool_name,
            part.tool_call_id,
            part.args,
            fingerprint,
            request.salt,
            request.arguments,
            request.kind,
            request.display,
            request.payload,
            list(request.allowed),
            request.schema,
            *((request.source,) if request.rule or request.budget else ()),
            *(() if not request.title_format else ({"title": request.title_format},)),
            *(() if request.approval is None else (request.approval.to_dict(),)),
            *(() if request.offer is None else ({"offer": request.offer.to_dict()},)),
            *(() if settlers is None else ({"call_approval": settlers.to_dict()},)),
        ]
    )


def is_of_trust(request: Request) -> bool:
    """Whether several persons, or a rule or budget of the application, hold the call."""
    return request.approval is not None or bool(request.rule or request.budget)


@quickly_made
@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call with validated arguments."""

    key: str
    """The key of the call, `run.turn.index`: the same each time that this call runs."""
    tool: Tool
    tool_call_id: str
    arguments: dict[str, Any]
    """The canonical arguments: validated, with defaults filled in, as JSON data."""
    context: ToolContext
    """The context that the tool gets."""
    run: Run
    call: Call

    @property
    def tool_name(self) -> str:
        return self.tool.name

    def replace(self, arguments: Mapping[str, Any]) -> ToolCall:
        """Return the call with other arguments. If a person approved the call, it must be approved
        again.
        """
        return replace(self, arguments=dict(arguments))

    def request(
        self,
        *,
        kind: str = "approval",
        allowed: Sequence[DecisionType] = DECISION_TYPES,
        display: str | dict[str, Any] | None = None,
        title: str | None = None,
        payload: Any = None,
        schema: dict[str, Any] | None = None,
        question_key: str = "",
        remind_after: Seconds | Sequence[Seconds] = (),
        escalate_after: EscalateAfter | None = None,
        expires_after: Seconds | None = None,
        on_expiry: OnExpiry = "reject",
        timing: RequestTiming | None = None,
        approval: Approval | None = None,
        call_approval: Approval | None = None,
        grant: GivenOffer | None = None,
        doubts: tuple[DoubtfulCall, ...] = (),
        asked_again: str = "",
        source: str = "",
    ) -> Request:
        """Return a request for a decision about this call, for `check_tool_calls`.

        Args:
            kind: the kind of the request. Only a decision about an `approval` can be a grant
                for later calls.
            allowed: the types of decision that may answer it.
            display: what to show in addition to the arguments; JSON-able.
            title: the title in lists, such as `"Refund {amount}"`: see `Request.title_format`.
                By default the title of another request about the call, or of the gate of the
                tool.
            payload: the content of a tool's own question; JSON-able.
            schema: the JSON schema of an answer by `respond`, as
                `Interrupt(schema=...).schema`.
            question_key: the key of a middleware's own question; the pipeline sets it.
            remind_after: seconds or timedeltas, one or several, after which the person is
                reminded.
            escalate_after: the other people to notify, by the seconds after which they are
                notified.
            expires_after: seconds, or a timedelta, after which it expires; None = never.
            on_expiry: the effect of an expired request: `"reject"`, or `"stop"`, which stops
                the whole run.
            timing: the four options before, already checked.
            approval: who must agree; None = anybody with the right to decide is enough.
            call_approval: who had to agree to a call in doubt; the pipeline sets it.
            grant: the largest grant that it offers, as `offer(...)` makes it; True for any
                grant, False for none. None = any grant if it is an approval by one person.
            doubts: calls of this tool whose outcome is unknown.
            asked_again: the reason why a person is asked again; empty if this is the first
                request.
            source: the name of the middleware; the pipeline sets it for returned requests.

        Raises:
            UsageError: if `allowed` is empty or has an unknown decision, a time is not
                possible, or a value cannot be stored.

        """
        checked_text(kind, what="request(kind=...)")
        checked_text(source, what="request(source=...)", may_be_empty=True)
        offered = EVERY_GRANT if approval is None else None
        if grant is not None:
            offered = checked_offer(grant, what="request(grant=...)")
        run = self.run
        now: datetime = run.clock.now()
        # A call that was made under an earlier name of the tool keeps that name.
        fingerprint = self.tool.fingerprint_as(self.call.part.tool_name)
        timing = timing or request_timing(
            "request(...)",
            remind_after=remind_after,
            escalate_after=escalate_after,
            expires_after=expires_after,
            on_expiry=on_expiry,
        )
        if approval is not None and approval.within is not None:
            timing = timing.at_most(approval.within)
        if title is not None:
            title = checked_title(title, what="request(title=...)")
        shown = checked_json(
            {"display": display, "payload": payload}, what="request(...)", is_shown=True
        )
        request = Request(
            id=run.new_id(),
            kind=kind,
            agent_id=run.agent_id,
            run_id=run.run_id,
            agent_path=run.agent_path,
            call_key=self.key,
            tool_call_id=self.tool_call_id,
            tool_name=self.call.part.tool_name,
            arguments=self.arguments,
            display=shown["display"],
            title_format=self._usual_title() if title is None else title,
            payload=shown["payload"],
            allowed=checked_allowed(allowed, what="request(allowed=...)", kind=kind),
            created_at=now,
            **timing.times_from(now),
            fingerprint=fingerprint,
            digest="",
            doubts=doubts,
            asked_again=asked_again,
            source=source,
            context=run.root.current.context,
            schema=schema,
            question_key=question_key,
            approval=approval,
            call_approval=call_approval,
            salt=run.new_id(),
            offer=offered if kind == "approval" else None,
        )
        bound = binding(request, run=run, call=self.call, fingerprint=fingerprint)
        return replace(request, digest=bound)

    def _usual_title(self) -> str:
        asked = (each.title_format for each in self.call.requests.values() if each.title_format)
        gate = self.tool.gate
        return next(asked, "" if gate is None else gate.title)

    def request_in_place_of(
        self,
        old: Request,
        *,
        asked_again: str = "",
        doubts: tuple[DoubtfulCall, ...] | None = None,
        approval: Approval | None = None,
        grant: GivenOffer | None = None,
    ) -> Request:
        """Return a request that asks the same persons as an earlier request, about the present
        call.

        Args:
            old: the request that it replaces.
            asked_again: the reason why a person is asked again; empty if it is not said.
            doubts: the calls in doubt that it shows; None = those of `old`.
            approval: who must agree; None = as in `old`.
            grant: the largest grant that it offers; None = as in `old`.

        """
        request = self.request(
            kind=old.kind,
            allowed=old.allowed,
            display=old.display,
            title=old.title_format,
            payload=old.payload,
            schema=old.schema,
            timing=old.timing,
            approval=approval or old.approval,
            call_approval=old.call_approval,
            grant=(old.offer or False) if grant is None else grant,
            doubts=old.doubts if doubts is None else doubts,
            asked_again=asked_again,
            source=old.source,
        )
        return replace(request, requesters=old.requesters)


def make_context(
    run: Run, call: Call, *, is_check: bool = False, limit: CallLimit | None = None
) -> ToolContext:
    """The `ToolContext` of a call.

    Args:
        run: the run of the call.
        call: the call.
        is_check: whether it is for a check, which only looks and does not get the body's records.
        limit: the time limit of this attempt, which the tool may pause or begin anew.

    """
    answers = {
        id: True if answer.type == "approve" else answer.value
        for id, answer in call.interrupt_answers.items()
    }
    resume_value: Any = None
    if answers:
        given = list(answers.values())
        resume_value = given[0] if len(given) == 1 else given

    attempt = call.attempts

    def emit(context: ToolContext, data: Any) -> None:
        run.emit(
            ToolEmitted(
                agent_path=run.agent_path,
                call_key=context.call_key,
                tool_call_id=context.tool_call_id,
                tool_name=context.tool_name,
                data=data,
            )
        )

    async def run_no_agent(*_: object) -> NoReturn:
        raise UsageError(_ONLY_LOOKS.format(what="runs no agent"))

    def make_no_points() -> NoReturn:
        raise UsageError(_ONLY_LOOKS.format(what="has no points, and asks no model"))

    def begins_with_nothing() -> None:
        run.not_begun |= {call.key}

    return ToolContext(
        read_state=lambda: run.state.copied(deeply=True),
        agent_id=run.agent_id,
        agent_path=run.agent_path,
        run_id=run.run_id,
        call_key=call.key,
        tool_call_id=call.part.tool_call_id,
        tool_name=call.part.tool_name,
        deps=run.deps,
        resumed=bool(answers),
        resume_value=resume_value,
        answers=answers,
        emit=emit,
        run_agent=run_no_agent if is_check else make_run_agent(run, call),
        make_points=make_no_points if is_check else lambda: Points(run, call, attempt),
        context=run.root.current.context,
        shared=run.shared,
        limit=limit,
        begins_with_nothing=begins_with_nothing,
    )

"""A call before it runs: its arguments, and whether the decisions about it hold for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from understudy._base.json_values import digest
from understudy._base.quickly_made import quickly_made
from understudy.interrupts import DECISION_TYPES, DoubtfulCall, Request
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall, binding, make_context
from understudy.state.folds.ends import doubtful_call
from understudy.state.records import Requested
from understudy.state.run_state import Call
from understudy.tools import InvalidArguments, Tool


@quickly_made
@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call that can run, with the validated arguments for its function."""

    call: Call
    tool: Tool
    checked: dict[str, Any]
    edited: dict[str, Any] | None = None
    """The canonical arguments, if a person replaced the model's."""


def prepare(run: Run, call: Call) -> ReadyCall | str:
    """The call as it would run now, or the error text for the model."""
    tool = run.definition.tools.get(call.part.tool_name)
    if tool is None:
        known = ", ".join(run.definition.tools) or "none"
        return f"Unknown tool {call.part.tool_name!r}. Available tools: {known}"
    try:
        request = _first_shown(call) if call.requests else None
        edited = _edited_arguments(call)
        if edited is not None:
            checked = tool.revalidate(edited)
            return ReadyCall(call, tool, checked, edited=tool.canonical(checked))
        if request is not None:
            return ReadyCall(call, tool, _as_shown(tool, call, request.arguments))
        return ReadyCall(call, tool, tool.validate(call.part.args))
    except InvalidArguments as error:
        return f"Invalid arguments for {call.part.tool_name!r}:\n{error}"


def _first_shown(call: Call) -> Request | None:
    """The first request about these arguments; a middleware's own question is about none."""
    return next((each for each in call.requests.values() if not each.question_key), None)


def _as_shown(tool: Tool, call: Call, shown: dict[str, Any]) -> dict[str, Any]:
    """The validated form of the arguments that a person was shown.

    Sometimes they cannot be read back from that form (a validator that converts, a secret). Then
    these are the model's own; right before the body `answers_match` compares how they look.
    """
    try:
        checked = tool.revalidate(shown)
        if digest(tool.canonical(checked)) == digest(shown):
            return checked
    except InvalidArguments:
        pass  # the shown form is no valid input of the tool
    return tool.validate(call.part.args)


def _edited_arguments(call: Call) -> dict[str, Any] | None:
    for decision in reversed(call.decisions.values()):
        if decision.type == "edit":
            return decision.arguments
    return None


def canonical(ready: ReadyCall) -> dict[str, Any]:
    """The arguments that would run, in the form that a person is shown."""
    return ready.tool.canonical(ready.checked)


def as_tool_call(run: Run, ready: ReadyCall) -> ToolCall:
    """The call as middleware sees it."""
    return ToolCall(
        key=ready.call.key,
        tool=ready.tool,
        tool_call_id=ready.call.part.tool_call_id,
        arguments=canonical(ready),
        context=make_context(run, ready.call),
        run=run,
        call=ready.call,
    )


def answers_match(run: Run, call: Call, tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether every decision about this call was made for exactly this call, tool and arguments."""
    for request in call.requests.values():
        if request.question_key:
            continue  # the middleware that asked decides what an answer is for
        expected = binding(
            agent_id=run.agent_id,
            run_id=run.run_id,
            call=call,
            fingerprint=tool.fingerprint,
            arguments=request.arguments,
        )
        intact = (
            request.digest == expected
            and request.fingerprint == tool.fingerprint
            and request.agent_id == run.agent_id
            and request.run_id == run.run_id
            and request.call_key == call.key
            and request.tool_name == call.part.tool_name
            and request.tool_call_id == call.part.tool_call_id
        )
        decision = call.decisions.get(request.id)
        decided = request.arguments
        if decision is not None and decision.arguments is not None:
            try:
                decided = tool.canonical(tool.revalidate(decision.arguments))
            except InvalidArguments:
                return False
        if not intact or digest(decided) != digest(arguments):
            return False
    return True


def request_again(run: Run, call: ToolCall) -> None:
    """Replace each request about a call by a new one, which shows what would run now."""
    for request in list(call.call.requests.values()):
        if request.question_key:
            continue
        fresh = call.request(
            kind=request.kind,
            allowed=request.allowed,
            display=request.display,
            payload=request.payload,
            schema=request.schema,
            timing=request.timing,
            doubts=request.doubts,
        )
        record_request(run, fresh, replaces=(request.id,))


def doubts_about(run: Run, call: Call) -> tuple[DoubtfulCall, ...]:
    """Other calls of the same tool in the whole tree whose outcome is unknown."""
    name = call.part.tool_name
    doubts = {
        key: doubt
        for state in run.root.state.tree
        for key, doubt in state.doubts.items()
        if doubt.tool_name == name
    }
    turn = run.current.turn
    for other in turn.calls.values() if turn is not None else ():
        for request in other.pending_requests:
            if request.kind == "doubt" and other.part.tool_name == name and other is not call:
                doubts[other.key] = doubtful_call(other, request.payload["reason"])
    doubts.pop(call.key, None)
    return tuple(doubts.values())


def blocked_by_doubt(run: Run, ready: ReadyCall) -> bool:
    """Whether the call must wait because another call of its tool is in doubt.

    It waits unless an approval of it showed that doubt. If it waits, a request is recorded.

    Race: a sibling may come into doubt after this call was approved, or after `check_interrupts`
    found nothing. So this is checked again when the call is about to start
    (`test_an_approved_sibling_of_the_same_tool_is_asked_about_again`,
    `test_a_sibling_that_waits_its_turn_needs_a_person_after_a_timeout`).
    """
    turn = run.current.turn
    alone = run.parent is None and not run.state.children
    if alone and not run.state.doubts and (turn is None or not turn.pending_requests):
        return False  # the common case, at no cost
    doubts = doubts_about(run, ready.call)
    approvals = [r for r in ready.call.requests.values() if r.kind == "approval"]
    seen = {doubt.call_key for request in approvals for doubt in request.doubts}
    if all(doubt.call_key in seen for doubt in doubts):
        return False
    first = approvals[0] if approvals else None
    request = as_tool_call(run, ready).request(
        allowed=first.allowed if first is not None else DECISION_TYPES,
        display=first.display if first is not None else None,
        timing=first.timing if first is not None else None,
        doubts=doubts,
    )
    record_request(run, request, replaces=tuple(r.id for r in approvals))
    return True


def record_request(run: Run, request: Request, replaces: tuple[str, ...] = ()) -> None:
    """Record a request, instead of those with the ids in `replaces`."""
    run.record(Requested(request=request, replaces=replaces))

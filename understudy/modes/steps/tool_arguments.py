"""A call before it runs: its arguments, and what binds a person's answer to it (I12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from understudy._base.json_values import digest
from understudy.interrupts import DECISION_TYPES, DoubtfulCall, Request
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall, binding, make_context
from understudy.state.fold import doubtful_call
from understudy.state.records import Requested
from understudy.state.run_state import Call
from understudy.tools import InvalidArguments, Tool

__all__ = [
    "Ready",
    "ask_again",
    "bound",
    "canonical",
    "doubted",
    "doubts_about",
    "prepare",
    "record_request",
    "view",
]


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that may run, with the arguments that its function takes."""

    call: Call
    tool: Tool[Any]
    checked: dict[str, Any]
    edited: dict[str, Any] | None = None
    """The arguments that a person gave instead of the model's."""


def prepare(run: Run, call: Call) -> Ready | str:
    """The call as it would run now, or the error that the model is told (T2)."""
    tool = run.definition.tools.get(call.part.tool_name)
    if tool is None:
        known = ", ".join(run.definition.tools) or "none"
        return f"Unknown tool {call.part.tool_name!r}. Available tools: {known}"
    try:
        asked = next(iter(call.requests.values()), None)
        decided = _edit(call)
        if decided is not None:
            checked = tool.revalidate(decided)
            return Ready(call, tool, checked, edited=tool.canonical(checked))
        if asked is not None:
            return Ready(call, tool, _as_shown(tool, call, asked.arguments))
        return Ready(call, tool, tool.validate(call.part.args))
    except InvalidArguments as error:
        return f"Invalid arguments for {call.part.tool_name!r}:\n{error}"


def _as_shown(tool: Tool[Any], call: Call, shown: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a person was shown.

    Where those cannot be read back from what was shown (a validator that converts, a secret), they
    are the model's own; whether they still look as shown is checked before the body.
    """
    try:
        checked = tool.revalidate(shown)
        if digest(tool.canonical(checked)) == digest(shown):
            return checked
    except InvalidArguments:
        pass  # as shown it is no input of the tool: the model's own arguments are
    return tool.validate(call.part.args)


def _edit(call: Call) -> dict[str, Any] | None:
    for decision in reversed(call.decisions.values()):
        if decision.type == "edit":
            return decision.arguments
    return None


def canonical(ready: Ready) -> dict[str, Any]:
    """What would run, as a person is shown it."""
    return ready.tool.canonical(ready.checked)


def view(run: Run, ready: Ready) -> ToolCall:
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


def bound(run: Run, call: Call, tool: Tool[Any], arguments: dict[str, Any]) -> bool:
    """Whether every answer about this call was given for exactly this (I12)."""
    for request in call.requests.values():
        shown = binding(
            agent_id=run.agent_id,
            run_id=run.run_id,
            call=call,
            fingerprint=tool.fingerprint,
            arguments=request.arguments,
        )
        intact = (
            request.digest == shown
            and request.fingerprint == tool.fingerprint
            and request.agent_id == run.agent_id
            and request.run_id == run.run_id
            and request.call_key == call.key
            and request.tool_name == call.part.tool_name
            and request.tool_call_id == call.part.tool_call_id
        )
        decision = call.decisions.get(request.id)
        wanted = request.arguments
        if decision is not None and decision.arguments is not None:
            try:
                wanted = tool.canonical(tool.revalidate(decision.arguments))
            except InvalidArguments:
                return False
        if not intact or digest(wanted) != digest(arguments):
            return False
    return True


def ask_again(run: Run, call: ToolCall) -> None:
    """Put each answered question about a call anew, showing what would run now (I12)."""
    for request in list(call.call.requests.values()):
        whole = request.expires_at - request.created_at if request.expires_at is not None else None
        fresh = call.request(
            kind=request.kind,
            allowed=request.allowed,
            display=request.display,
            payload=request.payload,
            expires_after=whole.total_seconds() if whole is not None else None,
            doubts=request.doubts,
        )
        record_request(run, fresh, replaces=(request.id,))


def doubts_about(run: Run, call: Call) -> tuple[DoubtfulCall, ...]:
    """Calls of the same tool whose outcome nobody knows, settled by no one so far (J4)."""
    name = call.part.tool_name
    root = run
    while root.parent is not None:
        root = root.parent
    doubts = {
        key: doubt
        for state in root.state.tree
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


def doubted(run: Run, ready: Ready) -> bool:
    """Whether a doubt stands that nobody who decided about this call has seen; then ask (J4)."""
    turn = run.current.turn
    alone = run.parent is None and not run.state.children
    if alone and not run.state.doubts and (turn is None or not turn.pending_requests):
        return False
    doubts = doubts_about(run, ready.call)
    approvals = [r for r in ready.call.requests.values() if r.kind == "approval"]
    seen = {doubt.call_key for request in approvals for doubt in request.doubts}
    if all(doubt.call_key in seen for doubt in doubts):
        return False
    first = approvals[0] if approvals else None
    request = view(run, ready).request(
        allowed=first.allowed if first is not None else DECISION_TYPES,
        display=first.display if first is not None else None,
        doubts=doubts,
    )
    record_request(run, request, replaces=tuple(r.id for r in approvals))
    return True


def record_request(run: Run, request: Request, replaces: tuple[str, ...] = ()) -> None:
    """Ask a person."""
    run.record(Requested(request=request, replaces=replaces))

"""Which calls need a person: what the middleware says, and the gates of the agents above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from understudy._base.json_values import digest
from understudy.errors import UsageError
from understudy.interrupts import Request
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall, binding

__all__ = ["wanted_requests"]


async def wanted_requests(run: Run, calls: Sequence[ToolCall]) -> list[Request]:
    """The questions about these calls, of each middleware in stack order (I2, S5)."""
    requests: list[Request] = []
    for hook in run.definition.hooks.check_tool_calls:
        requests += await _asked(run, hook, calls)
    own = run.definition.gates
    for gate in run.gates:  # of the agents above: they hold unless this one says otherwise
        asked = {request.call_key for request in requests}
        mine = [
            call
            for call in calls
            if call.key not in asked
            and gate.covers(call.tool_name)
            and not any(other.covers(call.tool_name) is False for other in own)
        ]
        if mine:
            hook = Hook.of(gate, "check_tool_calls", gate.check_tool_calls)
            requests += await _asked(run, hook, mine)
    return requests


async def _asked(run: Run, hook: Hook, calls: Sequence[ToolCall]) -> list[Request]:
    answer = await hook(run.threads, run, calls)
    by_key = {call.key: call for call in calls}
    if not isinstance(answer, (list, tuple)):
        raise _wrong(hook, f"returned {answer!r}, not a list of requests")
    for request in answer:
        call = by_key.get(request.call_key) if isinstance(request, Request) else None
        if call is None or not _made_here(run, request, call):
            raise _wrong(hook, f"returned {request!r}, which no call.request(...) of these made")
    return [replace(request, source=hook.middleware) for request in answer]


def _made_here(run: Run, request: Request, call: ToolCall) -> bool:
    shown = binding(
        agent_id=run.agent_id,
        run_id=run.run_id,
        call=call.call,
        fingerprint=call.tool.fingerprint,
        arguments=request.arguments,
    )
    return request.digest == shown and digest(request.arguments) == digest(call.arguments)


def _wrong(hook: Hook, what: str) -> HookFailed:
    return HookFailed(hook.failure(UsageError(what)))

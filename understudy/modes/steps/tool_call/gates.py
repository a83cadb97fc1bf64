"""What the gates of an agent, and of the agents above it, ask about calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from understudy._base.json_values import digest
from understudy.errors import UsageError
from understudy.interrupts import Request
from understudy.modes.steps.tool_call.rules import requests_of_rules
from understudy.modes.steps.tool_call.votes import with_requesters
from understudy.run.definition import covers
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall, binding


async def requests_about(run: Run, calls: Sequence[ToolCall]) -> list[Request]:
    """The requests about these calls: of each middleware in stack order, then of gates above.

    A gate of an agent above applies to a tool unless an own gate says `False` for it by name, or
    asks itself. Where it asks several persons it always applies.
    """
    requests: list[Request] = []
    for hook in run.definition.hooks.check_tool_calls:
        requests += await _call_hook(run, hook, calls)
    own = run.definition.gates
    for gate in run.gates:
        requested = {request.call_key for request in requests}
        covered = [
            call
            for call in calls
            if covers(gate, call.tool)
            and (
                gate.asks_several(call.tool)
                or (
                    call.key not in requested
                    and not any(covers(other, call.tool) is False for other in own)
                )
            )
        ]
        if covered:
            hook = Hook.of(gate, "check_tool_calls", gate.check_tool_calls)
            requests += await _call_hook(run, hook, covered)
    if run.environment.trust.rules is not None:
        requests += requests_of_rules(run, calls)
    return await with_requesters(run, requests)


async def _call_hook(run: Run, hook: Hook, calls: Sequence[ToolCall]) -> list[Request]:
    answer = await hook(run.threads, run, calls)
    by_key = {call.key: call for call in calls}
    if not isinstance(answer, (list, tuple)):
        raise _invalid(hook, f"returned {answer!r}, not a list of requests")
    for request in answer:
        call = by_key.get(request.call_key) if isinstance(request, Request) else None
        if call is None or not _is_about(run, request, call):
            raise _invalid(hook, f"returned {request!r}, which no call.request(...) of these made")
    return [replace(request, source=hook.middleware) for request in answer]


def _is_about(run: Run, request: Request, call: ToolCall) -> bool:
    """Whether the request shows exactly this call: a person must not approve something else."""
    fingerprint = call.tool.fingerprint_as(call.call.part.tool_name)
    expected = binding(request, run=run, call=call.call, fingerprint=fingerprint)
    return request.digest == expected and digest(request.arguments) == digest(call.arguments)


def _invalid(hook: Hook, what: str) -> HookFailed:
    return HookFailed(hook.failure(UsageError(what)))

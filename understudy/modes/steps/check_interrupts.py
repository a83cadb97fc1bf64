"""The steps that wait for people: `check_pause`, `check_interrupts`, `check_tool_interrupts`."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace

from understudy._base.json_values import digest
from understudy.errors import MiddlewareError, UsageError
from understudy.interrupts import Decision, Request
from understudy.modes.steps.tool_arguments import (
    Ready,
    ask_again,
    bound,
    doubts_about,
    prepare,
    view,
)
from understudy.modes.steps.tool_results import EXPIRY, failed_result
from understudy.outcomes import Outcome
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall, binding
from understudy.state.records import Decided, InterruptsChecked, PauseChecked, Paused
from understudy.state.run_state import Turn
from understudy.tools import InvalidArguments


async def check_pause(run: Run) -> Outcome | None:
    """Ask `pause_when`, once after each reply, before its tools start (R7)."""
    turn = run.current.turn
    if turn is None or turn.pause_checked or turn.broken is not None:
        return None
    for ask in (run.definition.pause_when, run.pause_when, run.pause_requested):
        if ask is None:
            continue
        try:
            answer = ask()
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            failure = MiddlewareError(
                middleware=run.definition.name,
                hook="pause_when",
                cause=f"{type(error).__name__}: {error}",
            )
            raise HookFailed(failure) from error
        if answer:
            reason = answer if isinstance(answer, str) else "pause_when"
            run.record(Paused(turn=turn.index, reason=reason))
            return run.paused(reason)
    if run.definition.pause_when is not None or run.pause_when is not None:
        run.record(PauseChecked(turn=turn.index))
    return None


async def check_interrupts(run: Run) -> Outcome | None:
    """Stop before any tool of the reply starts if any of its calls needs a person (I2)."""
    turn = run.current.turn
    if turn is None or turn.propagated or turn.cut or not turn.calls:
        return None
    gates = run.definition.hooks.check_tool_calls or run.gates or run.parent or run.state.doubts
    if gates and not turn.interrupts_checked and not turn.has_all_results:
        await _ask(run, turn)
    if not turn.has_requests:
        return None
    _expire(run, turn)
    _renew(run, turn)
    return run.interrupted() if turn.pending_requests else None


async def check_tool_interrupts(run: Run) -> Outcome | None:
    """Stop where a tool of the reply asked a question, now that its siblings are done (I8)."""
    turn = run.current.turn
    if turn is None or turn.has_all_results:
        return None
    if run.state.requests:
        return run.interrupted()
    reason = run.state.pause
    return run.paused(reason) if reason is not None else None


async def _ask(run: Run, turn: Turn) -> None:
    """Ask every middleware which calls need a person, and record that it was asked."""
    calls: dict[str, ToolCall] = {}
    for call in turn.calls.values():
        if call.result is not None or call.requests:
            continue  # what was asked about before stays asked (J4)
        ready = prepare(run, call)
        try:
            if isinstance(ready, Ready):
                calls[call.key] = view(run, ready)
                continue
            why = ready
        except InvalidArguments as error:
            why = str(error)
        run.record(failed_result(run, call, why))
    requests = await wanted_requests(run, list(calls.values())) if calls else []
    asked: list[Request] = []
    decided: list[Decided] = []
    for key, shown in calls.items():
        doubts = doubts_about(run, shown.call)
        mine = [request for request in requests if request.call_key == key]
        if doubts and not mine:
            mine = [shown.request()]
        asked.extend(replace(request, doubts=doubts) if doubts else request for request in mine)
        if not doubts:
            decided.extend(_sticky(run, mine))
    run.record(InterruptsChecked(turn=turn.index, requests=tuple(asked), decided=tuple(decided)))


def _sticky(run: Run, requests: Sequence[Request]) -> list[Decided]:
    """What earlier answers with `always=True` say, unless the tool has changed (I3, I12).

    They do not count while a call of the tool is in doubt (J4).
    """
    decided = []
    for request in requests:
        sticky = run.state.sticky.get(request.tool_name)
        if (
            sticky is not None
            and request.kind == "approval"
            and sticky.agent_id == request.agent_id
            and sticky.source == request.source
            and sticky.fingerprint == request.fingerprint
            and sticky.decision.type in request.allowed
        ):
            decided.append(
                Decided(
                    request_id=request.id,
                    decision=sticky.decision,
                    at=run.clock.now(),
                    sticky=True,
                )
            )
    return decided


def _expire(run: Run, turn: Turn) -> None:
    now = run.clock.now()
    for request in turn.pending_requests:
        if request.expires_at is not None and request.expires_at <= now:
            decision = Decision(type="reject", by=EXPIRY)
            run.record(Decided(request_id=request.id, decision=decision, at=now))


def _renew(run: Run, turn: Turn) -> None:
    """Ask again about a call that is not any more what was approved (I12)."""
    if turn.pending_requests:
        return
    for call in turn.calls.values():
        if call.result is not None or call.running or not call.requests:
            continue
        ready = prepare(run, call)
        if not isinstance(ready, Ready):
            continue  # it cannot run at all: execute_tools says why
        shown = view(run, ready)
        if not bound(run, call, ready.tool, shown.arguments):
            ask_again(run, shown)


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

"""The steps that suspend a run for a person: pauses, approvals, and questions of tools.

- `check_pause`, after each reply: `pause_when`.
- `check_interrupts`, before the tools of a reply start: the requests of the agent's middleware and
  of the gates of the agents above, decided by a grant where one covers the call.
- `check_tool_interrupts`, after the tools ran: the questions that they raised themselves.
"""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from understudy._base.error_texts import error_text
from understudy._base.json_values import storable_text
from understudy.errors import MiddlewareError
from understudy.interrupts import Request
from understudy.modes.steps.conditions import acts_if
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    answers_match,
    as_tool_call,
    doubts_about,
    must_not_repeat,
    not_kept_before,
    prepare,
    record_asked_now,
    record_request,
    request_again,
    with_earlier,
)
from understudy.modes.steps.tool_call.gates import requests_about
from understudy.modes.steps.tool_call.grants import decided_by_grants, has_grants
from understudy.modes.steps.tool_call.results import denied_by_rule, failed_result
from understudy.modes.steps.tool_call.rules import denial_in, verdict_on
from understudy.modes.steps.tool_call.votes import asked_now, standing_grants
from understudy.outcomes import Outcome
from understudy.run.definition import Gate
from understudy.run.hooks import HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.plans import PauseAsked
from understudy.state.records import InterruptsChecked, PauseChecked, Paused
from understudy.state.run_state import Call, Turn
from understudy.state.waits import has_waits, is_woken
from understudy.tools import InvalidArguments, Tool

if TYPE_CHECKING:
    from understudy.modes.steps.tool_call.call_keys import KeyLook

ASKED_BY_NOW = "No gate asked about this call when it was made. One does now."
"""The reason of a request that the gates of today make."""


def _may_pause(run: Run) -> bool:
    given = run.environment
    if given.pause_requested is not None or given.pause_when is not None:
        return True
    return run.definition.pause_when is not None


@acts_if(_may_pause)
async def check_pause(run: Run) -> Outcome | None:
    """Call `pause_when`, once after each reply, before its tools start."""
    turn = run.current.turn
    if turn is None or turn.pause_checked or turn.broken is not None:
        return None
    given = run.environment
    for pause_when in (run.definition.pause_when, given.pause_when, given.pause_requested):
        if pause_when is None:
            continue
        try:
            answer = pause_when()
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            failure = MiddlewareError(
                middleware=run.definition.name,
                hook="pause_when",
                cause=error_text(error),
            )
            raise HookFailed(failure) from error
        if answer:
            reason = storable_text(answer) if isinstance(answer, str) else "pause_when"
            by = None
            if isinstance(answer, PauseAsked):
                reason, by = answer
            run.record(Paused(turn=turn.index, reason=reason, by=by))
            return run.held(reason)
    if run.definition.pause_when is not None or given.pause_when is not None:
        run.record(PauseChecked(turn=turn.index))
    return None


def _may_ask(run: Run) -> bool:
    turn = run.current.turn
    if turn is None:
        return False
    by_gates = run.has_gates or run.state.doubts or run.environment.trust.rules
    return bool(by_gates) or turn.has_requests


@acts_if(_may_ask)
async def check_interrupts(run: Run) -> Outcome | None:
    """Interrupt the run if a call of the reply needs a decision. No tool of the reply has started
    yet.
    """
    turn = run.current.turn
    if turn is None or turn.propagated or turn.cut or not turn.calls:
        return None
    gates = (
        run.definition.hooks.check_tool_calls
        or run.gates
        or run.parent
        or run.state.doubts
        or run.environment.trust.rules
        or (run.definition.has_keys and _has_keyed_call(run, turn))
    )
    if gates and not turn.has_all_results and not run.gates_let_pass:
        ask = _ask_gates_of_today if turn.interrupts_checked else _request_decisions
        await ask(run, turn)
    if not turn.has_requests:
        return None
    await _request_changed_again(run, turn)
    if not turn.pending_requests or is_woken(run.state):
        return None  # a call whose wait is over continues, though a person is asked about another
    return run.interrupted()


def _may_have_asked(run: Run) -> bool:
    turn = run.current.turn
    return turn is not None and not turn.has_all_results


@acts_if(_may_have_asked)
async def check_tool_interrupts(run: Run) -> Outcome | None:
    """Interrupt the run if a tool of the reply asked a question.

    All other calls of the reply are done by then, or they wait, and the run waits with them.
    """
    turn = run.current.turn
    if turn is None or turn.has_all_results:
        return None
    if run.state.requests:
        return run.interrupted()
    reason = run.state.pause
    if reason is not None:
        return run.paused(reason)
    # Race: an answer may come while another call of the reply runs, or right after the last one has
    # ended. The next attempt runs what is woken
    # (test_what_ends_a_wait_while_another_call_of_the_reply_runs_is_not_lost).
    return run.waiting() if has_waits(run.state) or is_woken(run.state) else None


async def _request_decisions(run: Run, turn: Turn) -> None:
    """Record all requests about the calls of the reply, in one record: none is asked twice.

    A run that is cut off here asks each question once
    (`test_a_run_cut_off_while_it_asks_asks_each_question_once`).
    """
    calls: dict[str, ToolCall] = {}
    all_ready: dict[str, ReadyCall] = {}
    made: dict[str, dict[str, Any]] = {}
    has_rules = run.environment.trust.rules is not None
    for call in turn.calls.values():
        if call.result is not None or _was_asked_about(call) or _is_doubt(run, call):
            continue  # a call with such requests already, as one in doubt, keeps them
        ready = prepare(run, call)
        try:
            # A person is not asked about a call that cannot run
            # (test_nobody_is_asked_about_a_call_that_is_refused).
            refusal = not_kept_before(run, ready) if isinstance(ready, ReadyCall) else ready
            if isinstance(ready, ReadyCall) and refusal is None:
                tool_call = as_tool_call(run, ready)
                if has_rules:
                    await reserve_within(run, tool_call)
                denied = denial_in(verdict_on(run, tool_call)) if has_rules else None
                if denied is not None:
                    run.record(denied_by_rule(run, call, denied))
                    continue
                calls[call.key], all_ready[call.key] = tool_call, ready
                if ready.made is not None:
                    made[call.key] = ready.made
                continue
            failure = refusal
        except InvalidArguments as error:
            failure = str(error)
        run.record(failed_result(run, call, failure))
    looks: dict[str, KeyLook] = {}
    if run.definition.has_keys and _has_keyed_call(run, turn):
        from understudy.modes.steps.tool_call.call_keys import look_at_keys  # few tools have one

        looks = await look_at_keys(run, all_ready)
        for key, look in looks.items():
            if look.refusal is not None:
                del calls[key]
                run.record(failed_result(run, all_ready[key].call, look.refusal))
    requests = await requests_about(run, list(calls.values())) if calls else []
    standing = await standing_grants(run, requests)
    recorded: list[Request] = []
    grantable: list[Request] = []
    for key, tool_call in calls.items():
        doubts = doubts_about(run, all_ready[key])
        if key in looks:
            known = {doubt.call_key for doubt in doubts}
            doubts += tuple(each for each in looks[key].others if each.call_key not in known)
        # A call that waits was started before there was a gate.
        why = ASKED_BY_NOW if all_ready[key].call.attempts else ""
        own = [replace(each, asked_again=why) for each in requests if each.call_key == key]
        if doubts and not own:
            own = [tool_call.request()]
        if own:
            shown = with_earlier(run, all_ready[key], own[0])
            recorded += [replace(each, doubts=doubts, earlier=shown.earlier) for each in own]
        if not doubts:  # beside a doubt the call needs a decision of its own
            grantable += own
    # Race: nothing is awaited between this and the record, or a call of another agent inside would
    # take the same use (test_no_call_runs_that_a_grant_does_not_cover).
    decided = tuple(decided_by_grants(run, grantable, standing))
    if not (recorded or decided or made):
        _note_asked(run, turn)  # the start of the first call records it
        return
    run.record(
        InterruptsChecked(
            turn=turn.index,
            requests=tuple(recorded),
            decided=decided,
            arguments=made or None,
            asked_by=run.asked_by,
        )
    )


async def reserve_within(run: Run, call: ToolCall) -> None:
    """Reserve from the budget within which a rule allows the call, if only such rules allow it."""
    rules = run.environment.trust.rules
    if rules is not None and rules.has_budgets:
        from understudy.modes.steps.tool_call import budgets  # few rules have one

        await budgets.reserve_within(run, call)


def _has_keyed_call(run: Run, turn: Turn) -> bool:
    """Whether a tool says by a key which calls are equal to one of the reply."""
    called = (run.definition.tool_of(call.part.tool_name) for call in turn.calls.values())
    return any(tool is not None and tool.key is not None for tool in called)


async def _ask_gates_of_today(run: Run, turn: Turn) -> None:
    """Ask the gates again about calls that another process, or another definition, has asked about.

    A deploy may have changed the gates since. If a gate asks something now that it did not ask
    then, a person is asked before the call starts or continues. What it asked then stays asked: the
    stricter of then and now counts. For a call about which a person was asked, the stricter gate is
    the one that requires more persons to agree. Nothing is recorded if the verdict is the same.
    """
    asked = run.root.ledger.gates_asked or {}
    if turn.asked_by == run.asked_by or asked.get(run.run_id) == (turn.index, run.asked_by):
        return
    _note_asked(run, turn)
    calls: dict[str, ToolCall] = {}
    ready_calls: dict[str, ReadyCall] = {}
    for call in turn.calls.values():
        if call.result is not None or _is_doubt(run, call):
            continue  # a person is asked about a doubt, or the model is informed
        was_asked = _was_asked_about(call)
        if was_asked and not _may_be_asked_more(call):
            continue  # the person who was asked stays asked
        with contextlib.suppress(InvalidArguments):
            ready = prepare(run, call)
            if not isinstance(ready, ReadyCall):
                continue
            # Today's gate may not offer the kind of grant that let the call through.
            if not was_asked or has_grants(call) or _asks_several(run, ready.tool):
                calls[call.key], ready_calls[call.key] = as_tool_call(run, ready), ready
    requests = await requests_about(run, list(calls.values())) if calls else []
    standing = await standing_grants(run, requests)
    for key, ready in ready_calls.items():
        of_call = [each for each in requests if each.call_key == key]
        if not of_call:
            continue
        doubts = doubts_about(run, ready)
        today = [replace(each, doubts=doubts) for each in of_call]
        if _was_asked_about(ready.call):
            by_grant = has_grants(ready.call)
            compared = [each for each in today if by_grant or each.approval is not None]
            more = await asked_now(run, calls[key], compared, why=ASKED_BY_NOW)
            record_asked_now(run, ready, more)
            continue
        for request in today:
            again = replace(request, asked_again=ASKED_BY_NOW)
            record_request(run, with_earlier(run, ready, again), made=ready.made)
            for decision in () if doubts else decided_by_grants(run, [again], standing):
                run.record(decision)
    requested = {request.call_key for request in requests}
    seen = {
        key: ready.made
        for key, ready in ready_calls.items()
        if ready.made is not None and key not in requested and not _was_asked_about(ready.call)
    }
    if seen:  # the call runs with what a gate has seen, not with what a new default makes next
        run.record(InterruptsChecked(turn=turn.index, arguments=seen, asked_by=run.asked_by))


def _note_asked(run: Run, turn: Turn) -> None:
    ledger = run.root.ledger
    if ledger.gates_asked is None:
        ledger.gates_asked = {}
    ledger.gates_asked[run.run_id] = (turn.index, run.asked_by)


def _asks_several(run: Run, tool: Tool) -> bool:
    """Whether a gate of today may ask several persons about the tool. Others are not asked again.

    What a middleware of the application asks is known only once it is asked.
    """
    if any(gate.asks_several(tool) for gate in (*run.definition.gates, *run.gates)):
        return True
    checks = (hook.function for hook in run.definition.hooks.check_tool_calls)
    return any(not isinstance(getattr(each, "__self__", None), Gate) for each in checks)


def _may_be_asked_more(call: Call) -> bool:
    """Whether more persons may have to agree today: it is not rejected, and was not entered."""
    if call.entered or any(request.kind == "doubt" for request in call.requests.values()):
        return False
    return all(each.type in ("approve", "edit") for each in call.decisions.values())


def _was_asked_about(call: Call) -> bool:
    """Whether a person is, or was, asked if the call may run. Other questions do not count.

    A tool's question has no source, and a middleware's has a key.
    """
    return any(
        request.kind in ("approval", "doubt") or (request.source and not request.question_key)
        for request in call.requests.values()
    )


def _is_doubt(run: Run, call: Call) -> bool:
    """Whether the call was cut off, and is not to run again; or waits for its check."""
    if call.check is not None:
        return True
    return call.running and must_not_repeat(run, call)


async def _request_changed_again(run: Run, turn: Turn) -> None:
    """Request a new decision about each call that differs from what was decided about."""
    if turn.pending_requests:
        return
    for call in turn.calls.values():
        if call.result is not None or call.running or not call.requests:
            continue
        if call.check is not None:
            continue  # it was started: what it did is looked for
        ready = prepare(run, call)
        if not isinstance(ready, ReadyCall):
            continue  # it cannot run at all: execute_tools records the error
        tool_call = as_tool_call(run, ready)
        if not answers_match(run, call, ready.tool, tool_call.arguments):
            await request_again(run, ready)

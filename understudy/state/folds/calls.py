"""Folds of records of tool calls: starts, results, and the points at which calls wait."""

from __future__ import annotations

from dataclasses import replace

from understudy._base.authors import shown_author
from understudy.interrupts import DoubtfulCall
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.costs import adding
from understudy.state.done_calls import doubtful
from understudy.state.doubts import Finding
from understudy.state.folds.ends import (
    doubtful_call,
    end_children,
    end_key,
    last_arguments,
    note_done,
    ran_in_part,
    unasked_doubt,
)
from understudy.state.folds.places import UNREAD, find_call, open_run, open_turn
from understudy.state.folds.queue import note_authors
from understudy.state.folds.replies import propagate
from understudy.state.held_keys import HeldKey
from understudy.state.run_state import Call, NotKept, Point, PointAnswer
from understudy.state.shared_empties import with_added, with_item
from understudy.state.waits import open_calls


def started(state: AgentState, record: r.Started) -> None:
    call = find_call(state, record.call_key)
    call.attempts, call.running, call.effect = record.attempt, True, record.effect
    if record.arguments is not None:
        call.arguments = record.arguments
    if record.gates_asked_by:
        turn = open_turn(state)
        turn.interrupts_checked, turn.asked_by = True, record.gates_asked_by
    if record.key_hash is not None:
        held = HeldKey(
            key_hash=record.key_hash,
            tool_name=record.tool_name,
            tool_call_id=record.tool_call_id,
            at=record.at,
        )
        state.held_keys = with_item(state.held_keys, call.key, held)


def result(state: AgentState, record: r.Result) -> None:
    run, call = open_run(state), find_call(state, record.call_key)
    if record.not_entered:
        call.not_entered += 1
    note_done(run, call, record)
    if state.held_keys and call.key in state.held_keys and record.doubt is None:
        at = record.at or record.part.timestamp
        end_key(state, call.key, is_done=_has_happened(state, call, record), at=at)
    call.result, call.running = record, False
    if record.halt is not None:
        run.halt = record.halt
    if state.children:
        end_children(state, call.key, record.part.timestamp)
    if record.signal is not None:
        signalled = r.Signalled(turn=run.turns, signal=record.signal)
        run.signals = with_added(run.signals, signalled)
    for request in call.pending_requests:  # a late result answers a request about the doubt
        call.drop_request(request.id)
    if state.doubts and record.doubt is None:
        state.doubts.pop(call.key, None)  # its check was waited for
    if record.doubt is not None:
        doubt = unasked_doubt(run, call, record.doubt, record.part.timestamp)
        state.add_doubt(doubt)
    elif record.ran:
        kept = NotKept(
            tool_name=call.part.tool_name,
            arguments=last_arguments(call),
            text=str(record.part.content),
        )
        run.not_kept = with_item(run.not_kept, call.key, kept)
    elif record.part.outcome == "success":
        run.usage.tool_calls += 1
    if record.closes_turn:
        turn = open_turn(state)
        propagate(state, run, turn, at=turn.last_result_at)
        run.turn = None


def _has_happened(state: AgentState, call: Call, record: r.Result) -> bool:
    """Whether a call with this result counts as done for those with an equal key."""
    if not call.entered:
        return False
    if record.part.outcome == "failed" and not record.ran:
        return False
    if record.part.outcome == "denied" and was_found_undone(call):
        return False
    if record.part.outcome == "success" or record.ran or record.signal or record.halt:
        return True  # a tool that raises `StopAgent` or `Halt` has run
    return ran_in_part(state, call)


def was_found_undone(call: Call) -> bool:
    """Whether a person has found that a call in doubt took no effect."""
    return any(
        request.kind == "doubt" and decision.type == "reject"
        for id, request in call.requests.items()
        if (decision := call.decisions.get(id)) is not None
    )


def suspended(state: AgentState, record: r.Suspended) -> None:
    call = find_call(state, record.call_key)
    call.running = False
    if record.not_entered:
        call.not_entered += 1


def point_reached(state: AgentState, record: r.PointReached) -> None:
    call = find_call(state, record.call_key)
    if record.what == "check":
        _check_waited_for(state, call, record)
        return
    point = call.points.get(record.name)
    run = open_run(state)
    if run.turn is None:  # the model call is put off, perhaps once more
        call.attempts += 1
        point = None
        if record.used is not None:
            run.usage.incr(record.used)
            run.costs = adding(run.costs, record.costs)
    if point is None:
        point = Point(name=record.name, kind=record.what, since=record.at, due=record.due)
    elif point.since is None:
        point = replace(point, since=record.at, due=record.due)
    call.points = with_item(call.points, record.name, replace(point, reached_in=call.attempts))
    if record.reason is not None:
        call.failed_in, call.unknown = call.attempts, call.unknown or record.unknown
        state.may_be_in_doubt |= call.unknown
    if record.suspends:
        call.running = False


def _check_waited_for(state: AgentState, call: Call, record: r.PointReached) -> None:
    """Let a call in doubt wait for its check, and for no other point of its body."""
    before = call.check  # in the same doubt, whose time counts
    point = Point(
        name=record.name,
        kind="check",
        since=record.at if before is None else before.since,
        due=record.due,
        reached_in=call.attempts,
    )
    others = {
        name: replace(each, reached_in=0)
        for name, each in call.points.items()
        if each.kind != "check"
    }
    call.points, call.checks, call.running = {**others, point.name: point}, call.checks + 1, False
    assert point.since is not None, "it has the time of its record"
    doubt = doubtful_call(open_run(state), call, record.reason or "", point.since)
    doubt = replace(doubt, checks_at=record.due)
    state.add_doubt(doubt)


def token_made(state: AgentState, record: r.TokenMade) -> None:
    call = find_call(state, record.call_key)
    point = call.points.get(record.name)
    if point is None:
        point = Point(name=record.name, kind="wait", since=None)
    hashes = (*point.token_hashes, record.token_hash)
    call.points = with_item(call.points, record.name, replace(point, token_hashes=hashes))


def point_answered(state: AgentState, record: r.PointAnswered) -> None:
    call = find_call(state, record.call_key)
    answer = PointAnswer(how=record.how, value=record.value, reason=record.reason, at=record.at)
    point = call.points.get(record.name) or Point(name=record.name, kind=record.what, since=None)
    reached_in = 0 if call.running else point.reached_in  # the attempt that came to it may continue
    call.points = with_item(
        call.points, record.name, replace(point, answer=answer, reached_in=reached_in)
    )
    note_answer(state, record)


def note_answer(state: AgentState, record: r.PointAnswered | r.Settled) -> None:
    """Note who answered from outside, if a tool gets the answer, which enters the conversation.

    Args:
        state: the state of the agent that made the call, or of an agent above it.
        record: the record, which is folded already.

    """
    if isinstance(record, r.PointAnswered):
        is_passed_on = record.what == "wait" and record.how in ("value", "rejected")
    else:
        is_passed_on = not record.ended and any(
            call.key == record.call_key and (call.check is not None or record.answer is not None)
            for call in open_calls(state)
        )
    if is_passed_on:
        note_authors(state, (record.by,))


def _note_found_done(state: AgentState, doubt: DoubtfulCall) -> None:
    """Add a call that was in doubt and took effect to the done calls of its run."""
    run = state.run
    if run is None or not doubt.call_key.startswith(f"{run.run_id}."):
        return  # an earlier run made the call
    for call in doubtful((doubt,), agent=run.agent).newest:
        run.add_done(call)


def settled(state: AgentState, record: r.Settled) -> None:
    for each in state.whole_tree:
        doubt = each.doubts.pop(record.call_key, None)
        if doubt is not None and record.happened and not record.ended:
            _note_found_done(each, doubt)
        by = shown_author(record.by)
        if doubt is not None and by is not None:
            found = Finding(by=by, how=record.how, happened=record.happened)
            each.add_finding(doubt.tool_call_id, found)
        if record.call_key in each.held_keys:
            end_key(each, record.call_key, is_done=record.happened, at=record.at)
    for call in open_calls(state):  # of a turn that is over, only the records know
        if call.key != record.call_key:
            continue
        at, check = record.at or UNREAD, call.check
        if check is not None:  # the run continues with what is known, and asks no check
            how = record.how if record.reason is None else f"{record.how}: {record.reason}"
            known = PointAnswer(how="value", value=record.value, reason=how, at=at)
            call.points = with_item(call.points, check.name, replace(check, answer=known))
        if record.answer is None:
            continue
        answer = PointAnswer(how=record.answer, value=record.value, reason=record.reason, at=at)
        for point in list(call.points.values()):
            if record.token_hash in point.token_hashes:
                call.points = with_item(call.points, point.name, replace(point, answer=answer))
    note_answer(state, record)

"""Folds of requests to people and of decisions."""

from __future__ import annotations

from dataclasses import replace

from understudy.interrupts import Decision, DecisionRecord, Request
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.folds.ends import MOVED_ON
from understudy.state.folds.places import call_of_request, find_call, open_run, open_turn
from understudy.state.folds.queue import without
from understudy.state.run_state import NO_NOTICES, RunState, own_key
from understudy.state.shared_empties import with_added, with_item


def requested(state: AgentState, record: r.Requested) -> None:
    call = find_call(state, record.request.call_key)
    for replaced in record.replaces:
        call.drop_request(replaced)
        call.decisions.pop(replaced, None)
    call.requests = with_item(call.requests, record.request.id, record.request)
    if call.running and record.not_entered:
        call.not_entered += 1
    elif call.running and record.request.asked_again:
        call.unknown = True  # the call was cut off, and runs again if a person lets it
    state.may_be_in_doubt |= call.unknown or record.request.kind == "doubt"
    check = call.check
    if check is not None:  # from now on a person is asked what it did
        call.points = with_item(call.points, check.name, replace(check, reached_in=0))
        state.doubts.pop(call.key, None)
    call.running = False
    if record.call_arguments is not None:
        call.arguments = record.call_arguments
    run = open_run(state)
    if record.request.question_key and run.answers is not None:  # the question is asked again
        run.answers = without(run.answers, _answer_key(record.request))


def interrupts_checked(state: AgentState, record: r.InterruptsChecked) -> None:
    turn = open_turn(state)
    turn.interrupts_checked, turn.asked_by = True, record.asked_by
    for request in record.requests:
        call = find_call(state, request.call_key)
        call.requests = with_item(call.requests, request.id, request)
        state.may_be_in_doubt |= request.kind == "doubt"
    for key, arguments in (record.arguments or {}).items():
        find_call(state, key).arguments = arguments
    for each in record.decided:
        decided(state, each)


def reminded(state: AgentState, record: r.Reminded) -> None:
    call = call_of_request(state, record.request_id)
    before = call.notices.get(record.request_id, NO_NOTICES)
    call.notices = with_item(
        call.notices, record.request_id, replace(before, reminders=record.number)
    )


def escalated(state: AgentState, record: r.Escalated) -> None:
    call = call_of_request(state, record.request_id)
    before = call.notices.get(record.request_id, NO_NOTICES)
    call.notices = with_item(
        call.notices, record.request_id, replace(before, escalations=record.number)
    )


def voted(state: AgentState, record: r.Voted) -> None:
    call = call_of_request(state, record.request_id)
    before = call.votes.get(record.request_id, ())
    call.votes = with_item(call.votes, record.request_id, (*before, record.vote))


def glass_broken(state: AgentState, record: r.GlassBroken) -> None:
    state.reviews = with_item(state.reviews, record.review.id, record.review)


def review_closed(state: AgentState, record: r.ReviewClosed) -> None:
    state.reviews.pop(record.review_id, None)


def decided(state: AgentState, record: r.Decided) -> None:
    halt = open_run(state).halt
    if halt is not None and halt.id == record.request_id:
        open_run(state).dismissed = True
        decided = DecisionRecord(
            request=halt,
            decision=record.decision,
            at=record.at,
            context=record.context,
            login=record.login,
        )
        state.decisions = with_added(state.decisions, decided)
        return
    call = call_of_request(state, record.request_id)
    request, decision = call.requests[record.request_id], record.decision
    call.decisions = with_item(call.decisions, record.request_id, decision)
    if decision.edited is not None:
        call.arguments = decision.edited
    if request.question_key:
        _answered(open_run(state), request, decision)
    decided = DecisionRecord(
        request=request,
        decision=decision,
        at=record.at,
        context=record.context,
        votes=call.votes.get(record.request_id, ()),
        login=record.login,
    )
    state.decisions = with_added(state.decisions, decided)


def _answered(run: RunState, request: Request, decision: Decision) -> None:
    key = _answer_key(request)
    run.answers = {**(run.answers or {}), key: decision}  # copies of the state share the dict


def _answer_key(request: Request) -> str:
    return own_key(request.source, request.question_key)


def withdrawn(state: AgentState, record: r.Withdrawn) -> None:
    for request_id in record.request_ids:
        call = call_of_request(state, request_id)
        request = call.drop_request(request_id)
        if request.question_key:
            moved_on = Decision(type="reject", message=MOVED_ON)
            _answered(open_run(state), request, moved_on)
        if request.kind == "doubt":
            call.running = True  # it was started, and its outcome is still unknown
        else:
            call.withdrawn = True

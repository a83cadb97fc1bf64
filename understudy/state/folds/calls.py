"""Folds calls of tools: starts, results, and the points at which they wait."""

from __future__ import annotations

from dataclasses import replace

from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.costs import adding
from understudy.state.folds.ends import end_children, last_arguments, told_doubt
from understudy.state.folds.places import UNREAD, find_call, open_run
from understudy.state.run_state import NotKept, Point, PointAnswer
from understudy.state.shared_empties import with_added, with_item
from understudy.state.waits import open_calls


def started(state: AgentState, record: r.Started) -> None:
    call = find_call(state, record.call_key)
    if call.running and call.failed_in != call.attempts:
        call.unknown = True  # the attempt before it was cut off
    call.attempts, call.running, call.effect = record.attempt, True, record.effect
    if record.arguments is not None:
        call.arguments = record.arguments


def result(state: AgentState, record: r.Result) -> None:
    call = find_call(state, record.call_key)
    call.result, call.running = record, False
    if record.halt is not None:
        open_run(state).halt = record.halt
    if state.children:
        end_children(state, call.key, record.part.timestamp)
    if record.signal is not None:
        run = open_run(state)
        signalled = r.Signalled(turn=run.turns, signal=record.signal)
        run.signals = with_added(run.signals, signalled)
    for request in call.pending_requests:  # a late result answers a request about the doubt
        call.drop_request(request.id)
    if record.doubt is not None:
        doubt = told_doubt(open_run(state), call, record.doubt, record.part.timestamp)
        state.doubts = with_item(state.doubts, call.key, doubt)
    elif record.part.outcome == "success" or record.ran:
        run = open_run(state)
        if record.ran:
            kept = NotKept(
                tool_name=call.part.tool_name,
                arguments=last_arguments(call),
                text=str(record.part.content),
            )
            run.not_kept = with_item(run.not_kept, call.key, kept)
        else:
            run.usage.tool_calls += 1
        if call.effect != "read_only" and call.attempts and record.value_is != "given":
            given = call.part.args if call.arguments is None else call.arguments
            run.done = run.done.with_call(call.part.tool_name, given)


def suspended(state: AgentState, record: r.Suspended) -> None:
    find_call(state, record.call_key).running = False


def point_reached(state: AgentState, record: r.PointReached) -> None:
    call = find_call(state, record.call_key)
    point = call.points.get(record.name)
    run = open_run(state)
    if run.turn is None:  # the model call is put off, once more if it was before
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
    if record.suspends:
        call.running = False


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
    reached_in = 0 if call.running else point.reached_in  # the attempt that came to it may go on
    call.points = with_item(
        call.points, record.name, replace(point, answer=answer, reached_in=reached_in)
    )


def settled(state: AgentState, record: r.Settled) -> None:
    for each in state.tree:
        each.doubts.pop(record.call_key, None)
    if record.token_hash is None or record.answer is None:
        return
    for call in open_calls(state):  # where its turn is over, only the records tell of it
        for point in list(call.points.values()) if call.key == record.call_key else ():
            if record.token_hash in point.token_hashes:
                answer = PointAnswer(
                    how=record.answer,
                    value=record.value,
                    reason=record.reason,
                    at=record.at or UNREAD,
                )
                call.points = with_item(call.points, point.name, replace(point, answer=answer))

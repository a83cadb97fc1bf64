"""Records what is due: the due times of requests, sleeps, waits and checks.

It is called when a run continues, and by the actor of an agent that is due. What is recorded is not
due any more, so it does not matter how often this is called, or by what.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from understudy._base.request_timing import EXPIRY
from understudy.approvals import Vote
from understudy.interrupts import Decision, Request, approved_at, decision_by_votes
from understudy.run.ledger import Ledger, ledger_tree, open_calls
from understudy.state.doubts import next_end
from understudy.state.folds.grants import room_for_grants
from understudy.state.next_due import due_of_run
from understudy.state.records import (
    CancelRequested,
    Decided,
    Escalated,
    PointAnswered,
    PointEnd,
    Record,
    Reminded,
    Settled,
)
from understudy.state.run_state import NO_NOTICES, Call, Notices
from understudy.stopping import StopSignal

ENDED = "nobody settled it in time"
"""The word for how a doubt was settled if it has ended by itself."""


def record_dues(ledger: Ledger, now: datetime) -> bool:
    """Record what is due now, in the agent of this ledger and in the agents that it runs.

    A run that is to end by now is cancelled. A request that has expired is rejected; or the whole
    run is cancelled, if the request says so. A request to which enough persons have agreed for long
    enough is approved. Any other request gets its reminders and escalations. Sleeps are over, waits
    have timed out, checks are to be asked.

    Returns:
        Whether the run has something to do: to end, or to continue without a person or with a call.

    """
    due, run = due_of_run(ledger.state), ledger.state.run
    if run is None or due is None or due > now:
        return False
    if run.ends_at is not None and run.ends_at <= now:
        ledger.record(CancelRequested(signal=end_reached(run.ends_at).to_dict()))
        return True
    calls = list(open_calls(ledger))
    waiting, agreed = [], []
    for place, request, notices, votes in _pending(calls):
        if approved_at(request, votes) is None:
            waiting.append((place, request, notices))
        else:  # nobody is asked any more: it does not expire either
            agreed.append((place, request, votes))
    expired = [
        (place, request)
        for place, request, _ in waiting
        if request.expires_at is not None and request.expires_at <= now
    ]
    for _, request in expired:
        if request.on_expiry == "stop":
            ledger.record(CancelRequested(signal=_expiry_signal(request).to_dict()))
            return True
    for place, request in expired:
        decision = Decision(type="reject", origin="expiry")
        place.record(Decided(request_id=request.id, decision=decision, at=now))
    for place, request, notices in waiting:
        if request.expires_at is None or request.expires_at > now:
            given = list(_notices_due(request, notices, now))
            if given:
                place.record(*given)
    approved = [
        (place, Decided(request_id=request.id, decision=by_votes, at=now))
        for place, request, votes in agreed
        if (by_votes := decision_by_votes(request, votes, now)) is not None
    ]
    room = room_for_grants(ledger.state.grants.values(), now) if approved else 0
    for place, decided in approved:
        # There was room when they voted, but other grants were given since
        # (test_votes_that_cool_off_bring_no_more_grants_than_an_agent_may_have).
        if decided.decision.grant is not None and room == 0:
            decided = replace(decided, decision=replace(decided.decision, grant=None))
        elif decided.decision.grant is not None:
            room -= 1
        place.record(decided)
    return record_over(calls, now) or bool(expired or approved)


def end_doubts(ledger: Ledger, now: datetime) -> None:
    """Record which doubts have ended by now, in the agent of this ledger and in the agents it runs.

    These are doubts that nobody has settled, and of which only the model was informed.
    """
    due = next_end(ledger.state)
    if due is None or due > now:
        return
    for place in list(ledger_tree(ledger)):
        ended = [
            Settled(call_key=doubt.call_key, how=ENDED, ended=True, at=now)
            for doubt in place.state.doubts.values()
            if doubt.ends_at is not None and doubt.ends_at <= now
        ]
        if ended:
            place.record(*ended)


def record_over(calls: Iterable[tuple[Ledger, Call]], now: datetime) -> bool:
    """Record which sleeps and waits of these calls are over by now. Returns whether any is."""
    over = [(place, answer) for place, call in calls for answer in _over(call, now)]
    for place, answer in over:
        place.record(answer)
    return bool(over)


def next_over(calls: Iterable[Call]) -> datetime | None:
    """The end of the next sleep or wait of these calls; None if there is none."""
    dues = (point.due for call in calls for point in call.waits_at if point.due is not None)
    return min(dues, default=None)


def _pending(
    calls: Iterable[tuple[Ledger, Call]],
) -> Iterator[tuple[Ledger, Request, Notices, tuple[Vote, ...]]]:
    """The pending requests about these calls, each with its agent's ledger and its votes."""
    for place, call in calls:
        for request in call.pending_requests:
            notices = call.notices.get(request.id, NO_NOTICES)
            yield place, request, notices, call.votes.get(request.id, ())


def _over(call: Call, now: datetime) -> Iterator[PointAnswered]:
    """The ends of the sleeps and waits of a call whose time has come."""
    for point in call.waits_at:
        if point.due is not None and point.due <= now:
            how: PointEnd = "expired" if point.kind == "wait" else "over"
            yield PointAnswered(
                call_key=call.key, name=point.name, what=point.kind, how=how, at=now
            )


def _notices_due(request: Request, notices: Notices, now: datetime) -> Iterator[Record]:
    reminders = bisect_right(request.remind_at, now)
    if reminders > notices.reminders:
        yield Reminded(request_id=request.id, number=reminders, at=now)
    for number, escalation in enumerate(request.escalations, 1):
        if number > notices.escalations and escalation.at <= now:
            yield Escalated(
                request_id=request.id, number=number, audience=escalation.audience, at=now
            )


def end_reached(ends_at: datetime) -> StopSignal:
    """The signal that stops a run at the end that its caller gave it."""
    at = ends_at.isoformat()
    return StopSignal.time_limit(f"it was to end at {at}", source="ends_at", ends_at=at)


def _expiry_signal(request: Request) -> StopSignal:
    """The signal that stops the run of a request that has expired."""
    assert request.expires_at is not None, "only called for a request that has expired"
    return StopSignal.time_limit(
        f"nobody answered in time whether {request.tool_name!r} may run",
        source=EXPIRY,
        request_id=request.id,
        agent_path=list(request.agent_path),
        expired_at=request.expires_at.isoformat(),
    )

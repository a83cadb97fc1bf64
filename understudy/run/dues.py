"""What becomes of a time that has come: reminders, escalations and expiries, as records.

Called where a run continues, and by the actor of an agent that is due. What is recorded is not due
any more, so it does not matter how often, or by whom, this is called.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime

from understudy._base.request_timing import EXPIRY
from understudy.interrupts import Decision, Request
from understudy.run.ledger import Ledger, ledger_tree
from understudy.state.dues import due_of_run
from understudy.state.records import CancelRequested, Decided, Escalated, Record, Reminded
from understudy.state.run_state import NO_NOTICES, Notices
from understudy.stopping import StopSignal


def record_dues(ledger: Ledger, now: datetime) -> bool:
    """Record what is due now, in the agent of this ledger and in those that it runs.

    A run that is to end by now is cancelled. A request that has expired is rejected; or the whole
    run is cancelled, if the request says so. Any other request gets its reminders and escalations.

    Returns:
        Whether the run is to end or a request has expired, so that the run has something to do.

    """
    due, run = due_of_run(ledger.state), ledger.state.run
    if run is None or due is None or due > now:
        return False
    if run.ends_at is not None and run.ends_at <= now:
        ledger.record(CancelRequested(signal=end_reached(run.ends_at).to_dict()))
        return True
    waiting = list(_pending(ledger))
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
        decision = Decision(type="reject", by=EXPIRY)
        place.record(Decided(request_id=request.id, decision=decision, at=now))
    for place, request, notices in waiting:
        if request.expires_at is None or request.expires_at > now:
            told = list(_told(request, notices, now))
            if told:
                place.record(*told)
    return bool(expired)


def _pending(ledger: Ledger) -> Iterator[tuple[Ledger, Request, Notices]]:
    """The pending requests of the whole tree of agents, each with the ledger of its agent."""
    for place in list(ledger_tree(ledger)):
        run = place.state.run
        turn = run.turn if run is not None and not run.over else None
        for call in turn.calls.values() if turn is not None else ():
            for request in call.pending_requests:
                yield place, request, call.notices.get(request.id, NO_NOTICES)


def _told(request: Request, notices: Notices, now: datetime) -> Iterator[Record]:
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

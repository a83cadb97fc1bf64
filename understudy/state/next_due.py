"""The due time of an agent: the earliest time at which its state has something to record.

A clock tick is never a fact. It activates the agent, and the agent records what was due; that is
not due any more then. So the due time follows from the records, and is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from understudy._base.points_in_time import time_text
from understudy.approvals import Vote, tally
from understudy.interrupts import Request, approved_at
from understudy.state.doubts import next_end
from understudy.state.run_state import NO_NOTICES, Notices
from understudy.state.state_tree import StateTree
from understudy.state.waits import may_wait, open_calls


def next_due(state: StateTree) -> datetime | None:
    """The earliest time at which something is due, in the open run or beside it.

    None if nothing is due. While the run is quarantined only the end of a doubt is due.
    """
    return _earlier(due_of_run(state), due_beside_run(state))


def due_beside_run(state: StateTree) -> datetime | None:
    """The earliest due time that does not depend on a run under way.

    It is the time of a message, a schedule, or the end of a doubt.
    """
    due = None if state.plans is None else due_of_plans(state)
    return _earlier(due, next_end(state))


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return min(one, other)


def due_of_plans(state: StateTree) -> datetime | None:
    """The earliest time of a message or a schedule; None while the run is quarantined."""
    run = state.run
    if state.plans is None or (run is not None and not run.over and run.quarantined is not None):
        return None
    return state.plans.next_due


def due_of_run(state: StateTree) -> datetime | None:
    """The earliest time at which something is due in the open run and in runs inside it.

    None if nothing is due, or if the run does not continue by itself: it is over, cancelled, halted
    or quarantined.
    """
    run = state.run
    if run is None or run.end is not None:
        return None
    if run.ends_at is None and not may_wait(state):
        return None
    if run.halt is not None or run.cancelled is not None or run.quarantined is not None:
        return None
    due = min(_dues(state), default=None)
    return due if run.ends_at is None or (due is not None and due < run.ends_at) else run.ends_at


def due_of(request: Request, notices: Notices, votes: Sequence[Vote] = ()) -> datetime | None:
    """The earliest time at which something is due about a pending request.

    If enough persons have agreed, it is the time at which the request is approved: nobody is
    reminded meanwhile.
    """
    if votes and (due := approved_at(request, votes)) is not None:
        return due
    times = [
        *request.remind_at[notices.reminders : notices.reminders + 1],
        *(each.at for each in request.escalations[notices.escalations :][:1]),
    ]
    if request.expires_at is not None:
        times.append(request.expires_at)
    return min(times, default=None)


def notices_of(state: StateTree) -> dict[str, Notices]:
    """What is recorded about the requests of the agent and of agents inside it, by request id."""
    return {
        request_id: notices
        for call in open_calls(state)
        for request_id, notices in call.notices.items()
    }


def votes_of(state: StateTree) -> dict[str, tuple[Vote, ...]]:
    """The votes on the requests of the agent and of agents inside it, by request id."""
    return {
        request_id: votes for call in open_calls(state) for request_id, votes in call.votes.items()
    }


def open_votes(state: StateTree, ids: Iterable[str]) -> dict[str, str]:
    """What each of these requests waits for, by id, if it waits for votes or for its time.

    The text is a clause: "1 more of finance is missing", or "enough have agreed, it starts at ...".
    """
    wanted, found = set(ids), {}
    for call in open_calls(state):
        for request in call.pending_requests:
            if request.approval is not None and request.id in wanted:
                votes = call.votes.get(request.id, ())
                due = approved_at(request, votes)
                found[request.id] = (
                    f"{tally(request.approval, votes).text} is missing"
                    if due is None
                    else f"enough have agreed, it starts at {time_text(due)}"
                )
    return found


def _dues(state: StateTree) -> Iterator[datetime]:
    for call in open_calls(state):
        for request in call.pending_requests:
            notices = call.notices.get(request.id, NO_NOTICES)
            due = due_of(request, notices, call.votes.get(request.id, ()))
            if due is not None:
                yield due
        for point in call.waits_at:
            if point.due is not None:
                yield point.due

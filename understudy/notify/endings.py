"""What became of a request, as the state of its agent says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from understudy._base.request_timing import EXPIRY
from understudy.interrupts import DecisionRecord, Request
from understudy.notify.notice import plain
from understudy.state.agent_state import AgentState
from understudy.stopping import StopSignal

SAYS = {
    "approve": "approved it",
    "edit": "approved it with other arguments",
    "reject": "rejected it",
    "respond": "answered it",
    "dismiss": "dismissed it",
}


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a request."""

    said: str
    """In a sentence; empty while it waits."""
    expired: Request | None = None
    """The request, if its time was over before somebody answered."""


def ending_of(state: AgentState | None, request_id: str) -> Ending:
    """What became of a request.

    Args:
        state: of its agent; None if that is deleted.
        request_id: of the request.

    """
    if state is None:
        return Ending("The agent is deleted.")
    if any(each.id == request_id for each in state.requests):
        return Ending("")
    record = _record(state, request_id)
    if record is None:
        stopped = _stopped_by(state, request_id)
        said = "It is no longer asked." if stopped is None else _EXPIRED
        return Ending(said, stopped)
    decision = record.decision
    if decision.origin == "expiry":
        return Ending(_EXPIRED, record.request)
    return Ending(f"{plain(decision.by or 'Somebody')} {SAYS[decision.type]}.")


_EXPIRED = "Its time was over before somebody answered."


def _record(state: AgentState, request_id: str) -> DecisionRecord | None:
    found = None
    for inner in state.tree:
        for record in inner.decisions:
            if record.request.id == request_id:
                found = record
    return found


def _stopped_by(state: AgentState, request_id: str) -> Request | None:
    """The request that has stopped its run when its time was over."""
    signals = [
        StopSignal.from_dict(inner.run.cancelled)
        for inner in state.tree
        if inner.run is not None and inner.run.cancelled is not None
    ]
    stops = [each for each in signals if each.source == EXPIRY]
    if not any(each.context.get("request_id") == request_id for each in stops):
        return None
    return next((each for each in _all(state) if each.id == request_id), None)


def _all(state: AgentState) -> Iterator[Request]:
    """The requests of the runs that the state has, answered or not."""
    for inner in state.tree:
        for call in inner.run.calls if inner.run is not None else ():
            yield from call.requests.values()

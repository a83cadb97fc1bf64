"""Finds out what became of a request, by the state of its agent."""

from __future__ import annotations

from dataclasses import dataclass

from understudy._base.request_timing import EXPIRY
from understudy.interrupts import DecisionRecord, Request
from understudy.journal import StoreReads
from understudy.journal.parts import read_in_parts
from understudy.notify.notice import plain
from understudy.state.agent_state import AgentState
from understudy.state.records import InterruptsChecked, Record, Requested, innermost
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
    """The end of a request."""

    said: str
    """What became of it, in a sentence; empty while it waits."""
    is_expired: bool = False
    """Whether its time was over before somebody answered."""


EXPIRED = Ending("Its time was over before somebody answered.", is_expired=True)


def ending_of(state: AgentState | None, request_id: str) -> Ending:
    """The end of a request.

    Args:
        state: the state of its agent; None if the agent is deleted.
        request_id: the id of the request.

    """
    if state is None:
        return Ending("The agent is deleted.")
    if any(each.id == request_id for each in state.requests):
        return Ending("")
    record = _decided(state, request_id)
    if record is None:
        stopped = _has_stopped_its_run(state, request_id)
        return EXPIRED if stopped else Ending("It is no longer asked.")
    decision = record.decision
    if decision.origin == "expiry":
        return EXPIRED
    return Ending(f"{plain(decision.by or 'Somebody')} {SAYS[decision.type]}.")


async def request_of(
    store: StoreReads, agent_id: str, state: AgentState | None, request_id: str
) -> Request | None:
    """A request that does not wait any more, as its decision has it, or the records.

    None if both are gone: by a deletion, or by a compaction.
    """
    decided = None if state is None else _decided(state, request_id)
    if state is None or decided is not None:
        return None if decided is None else decided.request
    read = await read_in_parts(store, agent_id, lambda _: _Asked(request_id))
    return None if read is None else read[1].request


class _Asked:
    """A search for the request of an id in the records that make requests."""

    def __init__(self, request_id: str) -> None:
        self.request: Request | None = None
        self._request_id = request_id

    def add(self, seq: int, record: Record) -> None:
        record = innermost(record)
        asked: tuple[Request, ...] = ()
        if isinstance(record, InterruptsChecked):
            asked = record.requests
        elif isinstance(record, Requested):
            asked = (record.request,)
        for request in asked:
            if request.id == self._request_id and self.request is None:
                self.request = request


def _decided(state: AgentState, request_id: str) -> DecisionRecord | None:
    found = None
    for inner in state.tree:
        for record in inner.decisions:
            if record.request.id == request_id:
                found = record
    return found


def _has_stopped_its_run(state: AgentState, request_id: str) -> bool:
    signals = [
        StopSignal.from_dict(inner.run.cancelled)
        for inner in state.tree
        if inner.run is not None and inner.run.cancelled is not None
    ]
    return any(
        each.source == EXPIRY and each.context.get("request_id") == request_id for each in signals
    )

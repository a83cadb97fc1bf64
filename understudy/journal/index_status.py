"""What the index of a store says about an agent, derived from its state."""

from __future__ import annotations

from understudy.journal.contracts import IndexEntry, IndexStatus
from understudy.state.agent_state import AgentState
from understudy.state.plans import next_occurrence
from understudy.stopping import StopReason, StopSignals

HELD = ("failed", "cancelled")
"""In these messages in the queue wait for a newer one; the occurrences of schedules do not."""
AT_REST = ("idle", *HELD)


_NOT_DUE = {status: IndexEntry(status) for status in IndexStatus}


def index_entry_of(state: AgentState) -> IndexEntry:
    """What the agent waits for, and when it is due."""
    status, due = index_status_of(state), state.next_due
    return _NOT_DUE[status] if due is None else IndexEntry(status, due)


def index_status_of(state: AgentState) -> IndexStatus:
    """What the agent waits for."""
    run = state.run
    if run is None or run.over:
        return IndexStatus.QUEUED if has_next_run(state) else IndexStatus.REST
    if run.quarantined is not None:
        return IndexStatus.QUARANTINED
    if run.cancelled is None and not is_busy(state) and (state.pause is not None or state.requests):
        return IndexStatus.WAITS
    return IndexStatus.SUSPECT if run.fruitless > 1 else IndexStatus.OPEN


def has_next_run(state: AgentState) -> bool:
    """Whether a run of the queue is to begin, where no run is open."""
    if not state.queue:
        return False
    return rest_status(state) not in HELD or next_occurrence(state.queue) is not None


def is_busy(state: AgentState) -> bool:
    """Whether a call is running, in this agent or in one that it runs.

    While it runs, requests of its sibling calls do not make the run wait. A halt does, whatever is
    running: then the agent does not count as busy.
    """
    halt = state.run.halt if state.run is not None else None
    if halt is not None and halt.source:
        return False
    runs = [inner.run for inner in state.tree if inner.run is not None and not inner.run.over]
    turns = [run.turn for run in runs if run.turn is not None]
    return any(call.running for turn in turns for call in turn.calls.values())


def rest_status(state: AgentState) -> str:
    """The status of an agent with no open run: `"idle"`, `"failed"` or `"cancelled"`.

    It is derived from the end of the last run where a crash came before the record of the status.
    """
    end = state.run.end if state.run is not None else None
    if end is None or state.status in AT_REST:
        return state.status if state.status in AT_REST else "idle"
    if end.outcome == "stopped" and end.signals is not None:
        highest = StopSignals.from_dict(end.signals).highest
        by_user = highest is not None and highest.reason is StopReason.USER_REQUESTED
        return "cancelled" if by_user else "idle"
    return "failed" if end.outcome == "failed" else "idle"

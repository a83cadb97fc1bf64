"""What the index of a store says about an agent, derived from its state."""

from __future__ import annotations

from functools import lru_cache

from understudy.journal.asks import asks_of_doubts, asks_of_reviews, open_asks
from understudy.journal.contracts import AGENT_STATUS, IndexEntry, IndexStatus
from understudy.state.agent_state import AgentState
from understudy.state.next_due import next_due
from understudy.state.plans import next_turn
from understudy.state.records import End
from understudy.state.waits import has_waits, is_woken, may_wait, open_calls
from understudy.stopping import StopReason, StopSignals

HELD = ("failed", "cancelled")
"""The statuses in which messages that were sent wait for a newer message. A `run` and the
occurrences of schedules begin in them."""
AT_REST = ("idle", *HELD)
INTERRUPTED = "interrupted"
"""The status of an agent that has come to rest at requests.

One of its calls may be running all the same: it was cut off, and goes on when they are answered.
"""
WAITING = "waiting"
"""The status of an agent whose run sleeps, or waits for the outside."""


_PLAIN = {
    (index_status, word, takeable): IndexEntry(index_status, None, word, (), None, takeable)
    for index_status in IndexStatus
    for word in (*AT_REST, "running", "interrupted", "paused", WAITING)
    for takeable in (False, True)
}
_MAY_BE_TAKEN = (IndexStatus.REST, IndexStatus.WAITS, IndexStatus.QUARANTINED)


def index_entry_of(state: AgentState) -> IndexEntry:
    """Return the index entry of an agent: its status, what it waits for and asks, and when it is
    due.

    A run asks only while it is at rest. So a step of a running run does not look at its calls,
    unless a call is in doubt or needs a review.
    """
    run = state.run
    if run is not None and is_in_step(state):  # as at nearly every commit
        return _entry_of_step(run.fruitless > 1, state.status == "paused", run.fingerprint)
    index_status, due = index_status_of(state), next_due(state)
    word = _agent_status(state, index_status)
    asks = open_asks(state) if index_status is IndexStatus.WAITS or word == "paused" else ()
    asks += asks_of_doubts(state)
    if state.reviews:
        asks += asks_of_reviews(state)
    version = run.fingerprint if run is not None and not run.over else None
    takeable = index_status in _MAY_BE_TAKEN and nothing_goes_on(state)
    if due is None and not asks and version is None:
        return _PLAIN[index_status, word, takeable]
    return IndexEntry(index_status, due, word, asks, version, takeable)


def is_in_step(state: AgentState) -> bool:
    """Whether a run goes on, and nothing is asked, or due, or held up."""
    run = state.run
    return (
        run is not None
        and run.end is None
        and run.paused is None
        and run.halt is None
        and run.quarantined is None
        and run.ends_at is None
        and state.plans is None
        and not state.doubts
        and not state.reviews
        and not may_wait(state)
    )


@lru_cache(maxsize=512)
def _entry_of_step(suspect: bool, paused: bool, version: str | None) -> IndexEntry:
    status = IndexStatus.SUSPECT if suspect else IndexStatus.OPEN
    return IndexEntry(status, None, "paused" if paused else "running", (), version, False)


def nothing_goes_on(state: AgentState) -> bool:
    """Whether the records say that no run task is under way, and no call is running.

    Of an agent that comes to rest the status is recorded last, with the end of its run or behind
    what the run waits for. A call may be running while the
    index status is `WAITS`: under a halt, or one that a crash cut off
    (test_an_agent_that_is_halted_while_a_call_goes_on_is_not_taken).
    """
    return state.status != "running" and not any(call.running for call in open_calls(state))


def _agent_status(state: AgentState, index_status: IndexStatus) -> str:
    """The status, from what is recorded. It is the same whether the agent is in memory or not."""
    if index_status is IndexStatus.WAITS and not state.requests:
        return WAITING if state.pause is None else "paused"
    if index_status is IndexStatus.REST or index_status is IndexStatus.QUEUED:
        return rest_status(state)
    if state.status == "paused" and AGENT_STATUS[index_status] == "running":
        return "paused"  # it lacks its deps
    return AGENT_STATUS[index_status]


def index_status_of(state: AgentState) -> IndexStatus:
    """Return what the agent waits for, as a status of the index."""
    run = state.run
    if run is None or run.over:
        return IndexStatus.QUEUED if has_next_run(state) else IndexStatus.REST
    if run.is_held:
        return IndexStatus.QUARANTINED
    if (
        run.cancelled is None
        and (run.paused is not None or run.halt is not None or may_wait(state))
        and (not is_busy(state) or (state.status == INTERRUPTED and not is_woken(state)))
        and (state.pause is not None or state.requests or is_waiting(state))
    ):
        return IndexStatus.WAITS
    return IndexStatus.SUSPECT if run.fruitless > 1 else IndexStatus.OPEN


def has_next_run(state: AgentState) -> bool:
    """Return whether a run of the queue must begin, because no run is open."""
    return bool(state.queue) and bool(next_turn(state.queue, is_held=is_held(state)))


def is_held(state: AgentState) -> bool:
    """Whether messages that were sent wait for the next `run`: the last run failed, or was
    cancelled.
    """
    return rest_status(state) in HELD


def is_waiting(state: AgentState) -> bool:
    """Return whether the run rests only at sleeps and waits of its tools.

    A run that was cut off before that must be continued, because other calls may not have begun.
    """
    return state.status == WAITING and has_waits(state)


def is_busy(state: AgentState) -> bool:
    """Return whether a call is running or can continue, in this agent or in a sub-agent.

    While a call runs, requests of its sibling calls do not make the run wait. A halt does, and so
    does a pause of the run itself: then the agent does not count as busy.
    """
    run = state.run
    if run is not None and (run.paused is not None or (run.halt is not None and run.halt.source)):
        return False
    return any(call.running for call in open_calls(state)) or is_woken(state)


def rest_status(state: AgentState) -> str:
    """Return the status of an agent without an open run: `"idle"`, `"failed"` or `"cancelled"`.

    If the last run has ended and the agent is not at rest by that, because a run of the queue was
    to follow, the status is derived from that end.
    """
    end = state.run.end if state.run is not None else None
    if end is None or state.status in AT_REST:
        return state.status if state.status in AT_REST else "idle"
    return status_after_end(end)


def next_status(state: AgentState, end: End) -> str | None:
    """The status of the agent by this end of its run; None where the next run follows at once."""
    status = status_after_end(end)
    return None if next_turn(state.queue, is_held=status in HELD) else status


def status_after_end(end: End) -> str:
    """The status of an agent at rest whose last run has this end."""
    if end.outcome == "stopped" and end.signals is not None:
        highest = StopSignals.from_dict(end.signals).highest
        by_user = highest is not None and highest.reason is StopReason.USER_REQUESTED
        return "cancelled" if by_user else "idle"
    return "failed" if end.outcome == "failed" else "idle"

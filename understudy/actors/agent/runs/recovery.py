"""What becomes of a run that was cut off: it is continued, waits on, or is quarantined."""

from __future__ import annotations

from understudy.actors.agent.events import Status
from understudy.actors.agent.messages import WaitOutcome
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import answer_when_durable
from understudy.actors.agent.run_outcomes import last_outcome
from understudy.actors.agent.runs import run_queue, starts
from understudy.actors.agent.slot import AgentSlot
from understudy.journal import has_next_run, is_busy, is_waiting, rest_status
from understudy.journal.index_status import is_held
from understudy.outcomes import Failed
from understudy.state.records import Quarantined
from understudy.state.run_state import RunState
from understudy.stopping import StopSignal

MAX_ATTEMPTS_WITHOUT_PROGRESS = 3
"""How often a run may be cut off without getting further; then it is quarantined."""
MAX_LOST_ATTEMPTS = 10
"""How often a run may be cut off if lost leases count, too: the run may be their cause."""


def recover(slot: AgentSlot) -> None:
    """Continue an open run that neither waits nor pauses, after activation or a crash."""
    state = slot.current.state
    run = starts.open_run(slot)
    if slot.services.closing:
        return
    if run is None:
        if has_next_run(state):
            run_queue.start_next(slot, is_held=is_held(state))
    elif run.cancelled is not None:  # also one that was quarantined before
        starts.stop_run(slot, StopSignal.from_dict(run.cancelled))
    elif run.quarantined is not None:
        return
    elif (status := _suspended_status(slot)) is Status.WAITING or (
        status is not None and not slot.waiting(run.run_id)
    ):
        return  # who waits for a run that waits goes on waiting
    elif is_fruitless(slot, run):
        quarantine(slot, "the process went away")
    else:
        waits = (each.message for each in slot.inbox if isinstance(each.message, WaitOutcome))
        starts.continue_run(slot, next((each.by for each in waits if each.by is not None), None))


def go_on(slot: AgentSlot) -> None:
    """Continue or begin the run that was kept back, if it is not frozen any more."""
    if slot.phase is Phase.IDLE and starts.kept_back(slot) is None:
        slot.current.kept_back = None
        recover(slot)


def settle_status(slot: AgentSlot) -> None:
    """Set the status of an agent that was activated, or crashed, and has no run task now.

    Called when the inbox is empty: an agent that is activated for a run is never seen idle
    before it.
    """
    run = starts.open_run(slot)
    if slot.phase is not Phase.IDLE or slot.status not in (Status.PASSIVE, Status.RUNNING):
        return
    if slot.inbox:  # a message waits for a look at the store, and may begin a run
        return
    if run is None or slot.services.closing:
        slot.set_status(Status(rest_status(slot.state)))
    elif run.quarantined is not None:
        slot.set_status(Status.FAILED)
    else:
        kept = None if slot.current.kept_back is None else Status.RUNNING
        slot.set_status(_suspended_status(slot) or kept or Status(rest_status(slot.state)))


def _suspended_status(slot: AgentSlot) -> Status | None:
    """The status of a run that waits, or is paused."""
    state = slot.current.state
    is_at_rest = not is_busy(state)
    if state.requests and is_at_rest:
        return Status.INTERRUPTED
    if state.pause is not None:
        return Status.PAUSED
    return Status.WAITING if is_at_rest and is_waiting(state) else None


def is_fruitless(slot: AgentSlot, run: RunState) -> bool:
    """Whether a run was cut off too often since it last got further.

    An attempt that another runtime cut off by taking over is no crash, if the runtime that lost
    it lived to say so. Until that has said so, it counts.
    """
    first = run.attempts - run.fruitless
    lost = sum(number > first for number in slot.current.lost_attempts)
    crashes = run.fruitless - lost
    return crashes >= MAX_ATTEMPTS_WITHOUT_PROGRESS or run.fruitless >= MAX_LOST_ATTEMPTS


def quarantine(slot: AgentSlot, cause: str) -> None:
    """Hold the open run until it is released, and answer those who wait for it.

    A `run` that waits for its turn is refused, as each is that comes while the agent is held. What
    was sent waits for the release.
    """
    activation = slot.current
    activation.ledger.record(Quarantined(cause=cause))
    slot.set_status(Status.FAILED)
    state = activation.state
    outcome = last_outcome(activation.agent, state, activation.ledger.count)
    assert isinstance(outcome, Failed), "as a quarantined run has failed"
    for queued in [each for each in state.queue.values() if each.choices is not None]:
        run_queue.record_refusal(slot, queued.message_id, outcome.error)
    waits, slot.waits = slot.waits or {}, None
    for waiters in waits.values():
        for waiter in waiters:
            answer_when_durable(slot, waiter.future, outcome)

"""Cancels, pauses, retries and releases runs, as callers ask for it."""

from __future__ import annotations

from dataclasses import replace

from understudy._base.authors import By
from understudy.actors.agent.events import Status
from understudy.actors.agent.message_ids import run_of
from understudy.actors.agent.messages import (
    AgentCall,
    Cancel,
    Pause,
    Retry,
    Unpause,
    WaitOutcome,
    handles,
)
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import answer_when_durable
from understudy.actors.agent.runs import starts, waiters
from understudy.actors.agent.slot import AgentSlot
from understudy.agent.runner import unpause as record_unpause
from understudy.errors import NotInterrupted, OtherRun
from understudy.state.plans import requested_pause, retry_id
from understudy.state.records import (
    CancelRequested,
    MessageCancelled,
    PauseRequested,
    Released,
)
from understudy.stopping import StopSignal


def check_run(slot: AgentSlot, run_id: str | None) -> None:
    """Check that the open run has this id; None for whatever run is open.

    Raises:
        OtherRun: if it is not.

    """
    if run_id is None:
        return
    # A run that begins takes the place of the one that is open before it.
    current = starts.current_run(slot)
    if current != run_id:
        raise OtherRun(agent_id=slot.id, run_id=run_id, open_run=current)


@handles(Cancel)
def cancel(slot: AgentSlot, call: AgentCall[Cancel]) -> None:
    """Stop the current run.

    Raises:
        OtherRun: if it is for another run than the open one, or than the last one.

    """
    activation, cancel = slot.current, call.message
    begun = run_of(slot, cancel.message_id)
    if begun is not None:
        if begun != starts.current_run(slot):  # it is over
            waiters.wait_outcome(slot, call, WaitOutcome(run_id=begun))
            return
        cancel = replace(cancel, run_id=begun)
    elif cancel.message_id is not None and cancel.run_id is None:
        if starts.open_run(slot) is None and not slot.phase.has_run_task:
            request_pause(slot, None)
        answer_when_durable(slot, call.future, None)
        return
    if waiters.answer_if_over(slot, call, cancel.run_id):
        return
    starts.note_run(slot, call)
    check_run(slot, cancel.run_id)
    request_pause(slot, None)
    if slot.phase is Phase.BEGINNING:
        # Closes the race of a cancel with the first record of the run that it is for: a run
        # that was open before is withdrawn by this one, and must not take the signal.
        # tests: test_a_cancel_before_a_run_begins_over_a_standing_one_is_for_the_new_run
        begins = activation.beginning
        assert begins is not None, "so says the phase"
        activation.early_cancel = cancel.signal
        if begins.asked is not None and begins.asked in activation.state.queue:
            # A crash now must not have the run begin anew that is cancelled.
            now = slot.services.clock.now()
            activation.ledger.record(MessageCancelled(message_id=begins.asked, at=now))
        slot.wait(begins.run_id, call)
        slot.expect_end()  # the hooks of the run that it withdraws may go on for ever
        return
    run = starts.open_run(slot)
    if run is None:
        answer_when_durable(slot, call.future, None)
        return
    # Also where one is recorded: this one cuts off the `on_run_end` hooks that it led to.
    signal = run.cancelled if run.cancelled is not None else cancel.signal.to_dict()
    activation.ledger.record(CancelRequested(signal=dict(signal)))
    if activation.task is not None:
        slot.cut_off()
    else:
        starts.stop_run(slot, StopSignal.from_dict(signal))
    slot.wait(run.run_id, call)


def request_pause(slot: AgentSlot, reason: str | None, by: By | None = None) -> None:
    """Record that the run pauses after its next model reply; no reason: that it does not."""
    ledger = slot.current.ledger
    if reason is not None:
        slot.current.unpause_asked = None
    if requested_pause(ledger.state.plans) != reason:
        ledger.record(PauseRequested(reason=reason, at=slot.services.clock.now(), by=by))


@handles(Pause)
def pause(slot: AgentSlot, call: AgentCall[Pause]) -> None:
    """Pause the run after its next model reply.

    Raises:
        OtherRun: if it is for another run than the open one.

    """
    check_run(slot, call.message.run_id)
    starts.note_run(slot, call)
    request_pause(slot, call.message.reason, call.message.by)
    answer_when_durable(slot, call.future, None)


@handles(Unpause)
def unpause(slot: AgentSlot, call: AgentCall[Unpause]) -> None:
    """Continue a paused run.

    Raises:
        OtherRun: if it is for another run than the open one.

    """
    check_run(slot, call.message.run_id)
    starts.note_run(slot, call)
    end_pause(slot, call.message)
    answer_when_durable(slot, call.future, None)


def end_pause(slot: AgentSlot, asked: Unpause) -> None:
    """End the pause that is asked for, and continue the run if it is paused."""
    activation = slot.current
    request_pause(slot, None, asked.by)
    run = starts.open_run(slot)
    if run is None or run.quarantined is not None:
        return
    if slot.phase.has_run_task:
        # Race: the run may have been paused already, and its task has not ended: then it is
        # continued when it has (test_an_unpause_that_comes_while_the_run_pauses_is_not_lost).
        activation.unpause_asked = asked
        return
    # A run that lacks its deps is paused too, though no record says so.
    if activation.state.pause is not None or slot.status is Status.PAUSED:
        record_unpause(activation.ledger, asked.by)
        starts.continue_run(slot)


@handles(Retry)
def retry(slot: AgentSlot, call: AgentCall[Retry]) -> None:
    """Begin a run that continues the last one, which failed; or release a quarantined run.

    A run that failed is retried once: the same retry again is answered by the run that it began.

    Raises:
        NotInterrupted: if the last run has not failed, and none is quarantined.
        NoProgress: if it was retried too often without getting any further.
        OtherWorkflow: if the agents of its workflow are others now.
        OtherRun: if it is for another run than the open one, or than the last one.

    """
    run, phase, retry = slot.current.state.run, slot.phase, call.message
    begun = None if retry.run_id is None else run_of(slot, retry_id(retry.run_id))
    if begun is not None:
        waiters.wait_outcome(slot, call, WaitOutcome(run_id=begun))
        return
    is_meant = run is not None and retry.run_id in (None, run.run_id)
    if run is None or not is_meant or not run.has_failed or phase.has_run_task:
        _release(slot, call)
        return
    slot.current.agent.runner.check_goes_on(slot.current.state)
    slot.current.self_started_runs = 0
    starts.start_retry(slot, call, run.run_id)


def _release(slot: AgentSlot, call: AgentCall[Retry]) -> None:
    """Release a quarantined run, and continue it."""
    activation, retry = slot.current, call.message
    if waiters.answer_if_over(slot, call, retry.run_id):
        return
    check_run(slot, retry.run_id)
    run = starts.open_run(slot)
    # One that is cancelled is being stopped (test_a_retry_right_behind_a_cancel_releases_nothing).
    if retry.run_id is not None and run is not None and not run.is_held:
        waiters.wait_outcome(slot, call, WaitOutcome())  # it was released before
        return
    if run is None or not run.is_held:
        raise NotInterrupted(
            f"Agent {slot.id!r} is not quarantined, and its last run has not failed: there is "
            "nothing to retry. A message begins a new run"
        )
    # Of no other run: where this copy is stale, the call would have released nothing, and would
    # be taken for one that did (test_a_retry_of_no_quarantine_at_a_stale_copy_is_refused).
    starts.note_run(slot, call)
    activation.ledger.record(Released(by=retry.by))
    starts.continue_run(slot)
    slot.wait(run.run_id, call)

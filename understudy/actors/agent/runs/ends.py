"""What follows when a run task has ended: waiters are answered, and the next run starts."""

from __future__ import annotations

from contextlib import suppress

from understudy._base.error_texts import error_text
from understudy.actors.agent.activation import Beginning, RunAbandoned, RunTaskResult
from understudy.actors.agent.events import Status
from understudy.actors.agent.message_ids import archive
from understudy.actors.agent.messages import AgentCall, Delete, WaitOutcome
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import as_exception, refuse_when_durable
from understudy.actors.agent.run_outcomes import noted, status_after
from understudy.actors.agent.runs import (
    control,
    decisions,
    recovery,
    run_queue,
    starts,
    timers,
    waiters,
)
from understudy.actors.agent.slot import AgentSlot, waits_for
from understudy.errors import Fenced, JournalFailed, RecordRefused, UnderstudyError
from understudy.journal import has_next_run, rest_status
from understudy.journal.index_status import is_held
from understudy.loop_actors.future import refuse
from understudy.outcomes import Completed, Interrupted, Outcome, Paused, Waiting
from understudy.state.records import Attempt

MAX_SELF_STARTED_RUNS = 10
"""How many runs in a row an agent may start by messages to itself."""


class RunCrashed(UnderstudyError):
    """A run task crashed, and so does its actor: the supervisor starts another, which continues."""

    agent_id: str

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"the run of agent {agent_id!r} crashed", agent_id=agent_id)


def after_run_task(slot: AgentSlot, *, activating: bool = False) -> None:
    """Answer the waiters of a run task that has ended, then start what is queued.

    Args:
        activating: this actor has just started, perhaps because of this crash.

    Raises:
        RunCrashed: if the task crashed; it ends the actor, and the next one recovers.

    """
    activation = slot.current
    result, activation.result = activation.result, None
    begins, activation.beginning = activation.beginning, None
    activation.early_cancel = None
    assert result is not None, "a run task that has ended leaves its result"
    slot.enter(Phase.IDLE)
    timers.tell_due(slot)  # before its waiters learn that it waits: they may advance the clock
    with suppress(Fenced):  # another host has taken the agent as its run ended: that one does it
        archive(slot)
    if result.crash is not None:
        _after_crash(slot, result, result.crash, begins, activating=activating)
    elif result.outcome is not None:  # else it was halted between two steps
        _after_outcome(slot, result.outcome)
    elif result.stop is not None and not activation.is_to_end_attempt():
        starts.keep_back(slot, result.stop)
        # Race: the stop may be over by now, and who has ended it has found a run task under way
        # (test_what_is_thawed_while_its_attempt_ends_goes_on).
        recovery.go_on(slot)


def _after_outcome(slot: AgentSlot, outcome: Outcome) -> None:
    activation = slot.current
    if isinstance(outcome, Waiting):
        slot.set_status(Status.WAITING)  # the callers of its outcome go on waiting
        # A recovery is over: nothing that was cut off is to be done before the time has come
        # (test_what_is_due_in_days_happens_once_whoever_is_killed_meanwhile).
        slot.tell_of_progress()
        decisions.go_on_if_woken(slot)
        return
    status = status_after(outcome)
    has_next = _has_next(slot)
    try:
        if not has_next:
            slot.set_status(status)
    finally:
        outcome = noted(outcome, activation.ledger.count)
        slot.answer(outcome)  # it is recorded, whatever becomes of the status
        waiters.answer_steering(slot, outcome)
        _tell_hooks(slot, outcome)
    if has_next and not activation.is_to_end_attempt():
        run_queue.start_next(slot, is_held=is_held(activation.state))
        return
    asked = activation.unpause_asked
    if isinstance(outcome, (Interrupted, Paused)) and asked is not None:
        control.end_pause(slot, asked)
    if isinstance(outcome, Interrupted):
        decisions.go_on_if_woken(slot)


def _tell_hooks(slot: AgentSlot, outcome: Outcome) -> None:
    hooks = slot.current.agent.definition.hooks
    told = hooks.on_completed if isinstance(outcome, Completed) else ()
    told = hooks.on_interrupted if isinstance(outcome, Interrupted) else told
    if told and outcome.state.run is not None:
        slot.tell_hooks(told, outcome, outcome.state.run.context)


def _has_next(slot: AgentSlot) -> bool:
    """Whether another run follows at once, without an idle status in between."""
    activation = slot.current
    if starts.open_run(slot) is not None or activation.asked_to(Delete):
        return False  # a suspended run: everything else waits
    if not has_next_run(activation.state):
        return False
    if all(item.self_sent for item in activation.state.queue.values()):
        activation.self_started_runs += 1
        if activation.self_started_runs > MAX_SELF_STARTED_RUNS:
            slot.set_status(Status.IDLE, runs=MAX_SELF_STARTED_RUNS)
            return False
    return True


def _after_crash(
    slot: AgentSlot,
    result: RunTaskResult,
    crash: BaseException,
    begins: Beginning | None,
    *,
    activating: bool,
) -> None:
    if slot.services.closing:
        return
    if isinstance(crash, JournalFailed) and not isinstance(crash, RecordRefused):
        if begins is not None and isinstance(crash, RunAbandoned):
            for waiter in _take_waits(slot, begins):  # no run has begun that could be continued
                refuse(waiter.future, crash)
        raise crash
    run = starts.open_run(slot)
    if run is not None and begins is None and result.is_uncounted:
        # Else a run that crashes before its attempt is recorded would be made again for ever
        # (test_a_run_that_crashes_before_its_first_record_is_quarantined).
        ledger = slot.current.ledger
        status = None if slot.state.status == "running" else "running"
        ledger.record(Attempt(number=run.attempts + 1, host=ledger.host, status=status))
    if run is None or begins is not None or isinstance(crash, RecordRefused):
        _refuse_run(slot, crash, begins)
    elif run.cancelled is not None:
        recovery.recover(slot)  # cancelled before its first step
    elif recovery.is_fruitless(slot, run):
        recovery.quarantine(slot, error_text(crash))
    elif activating:
        recovery.recover(slot)
    else:
        raise RunCrashed(slot.id) from crash


def _refuse_run(slot: AgentSlot, crash: BaseException, begins: Beginning | None) -> None:
    """Refuse a run that could not begin: its waiters get the error; without any, the status has it.

    That of a `run` which has waited for its turn is recorded. The next `run` begins, without an
    idle status in between. Messages that were sent stay in the queue.
    """
    activation, error = slot.current, as_exception(slot.id, crash)
    asked = None if begins is None else run_queue.run_of_turn(slot, begins)
    if begins is None:
        waiting = slot.take_waits(starts.current_run(slot) or "")
    else:
        if asked is not None:
            run_queue.record_refusal(slot, asked, error)
        waiting = _take_waits(slot, begins)
        waiting += () if asked is None else slot.take_waits(waits_for(asked))
    try:
        if begins is not None:
            run_queue.start_behind(slot, begins, asked)
        if slot.phase is Phase.IDLE:
            suspended = activation.agent.runner.suspended_outcome(activation.state)
            if suspended is not None:
                slot.set_status(status_after(suspended))
            elif waiting:
                slot.set_status(Status(rest_status(activation.state)))
            else:
                slot.set_status(Status.FAILED)
    finally:
        for waiter in waiting:
            if asked is None:
                refuse(waiter.future, error)
            else:
                refuse_when_durable(slot, waiter.future, error)
    run = starts.open_run(slot)
    if run is not None and slot.phase is Phase.IDLE:
        for waiter in slot.take_waits(run.run_id):  # it was to be withdrawn, and is open still
            waiters.wait_outcome(slot, waiter, WaitOutcome(run_id=run.run_id))


def _take_waits(slot: AgentSlot, begins: Beginning) -> tuple[AgentCall, ...]:
    """Remove and return the calls that wait for a run that does not begin.

    Who waits for a message that is in the queue waits on: another run takes it.
    """
    waiting = slot.take_waits(begins.run_id)
    for message_id in begins.message_ids:
        if message_id not in slot.state.queue:
            waiting += slot.take_waits(waits_for(message_id))
    return waiting

"""What is to be run next: requests of callers, queued messages, occurrences of schedules."""

from __future__ import annotations

import logging
from dataclasses import replace

from understudy._base.log_fields import log_extra
from understudy.actors.agent.message_ids import is_known, run_of
from understudy.actors.agent.messages import RunRequest, Send, WaitOutcome
from understudy.actors.agent.planner import RECORD_BYTES, Plans
from understudy.actors.agent.replies import (
    answer_when_durable,
    as_exception,
    mirror,
    note_later,
)
from understudy.actors.agent.run_outcomes import run_of_message
from understudy.actors.agent.runs import control, starts, waiters
from understudy.actors.agent.slot import AgentSlot
from understudy.agent.run_environment import RunOptions
from understudy.agent.runner import withdraw_requests
from understudy.errors import NotInterrupted, UsageError
from understudy.loop_actors.future import refuse
from understudy.state.plans import QueuedMessage, next_occurrence
from understudy.state.records import MessageCancelled, MessageQueued
from understudy.state.waits import has_waits, is_woken

logger: logging.Logger = logging.getLogger(__name__)


def plans_of(slot: AgentSlot) -> Plans:
    """What is to come in the agent by itself, to be read and changed."""
    services = slot.services
    return Plans(slot.current.ledger, services.clock, services.new_id)


def request(slot: AgentSlot, request: RunRequest) -> None:
    """Start a run, queue it behind others, or wait for the one that its message id names."""
    activation = slot.current
    options = request.options or request.choices.options_for(activation.agent)
    message_id = request.message_id
    if message_id is not None and is_known(slot, message_id):
        # What the first future brought may be old by now: the run has gone on
        # (test_a_message_id_sent_again_brings_the_outcome_of_its_run_as_it_stands_now).
        _wait_for_run_of(slot, message_id, request, options)
        return
    first = waiters.request_of(slot, message_id)
    if first is not None:
        mirror(slot, first.future, request.future)  # it is not recorded before its run begins
        return
    if waiters.answer_if_quarantined(slot, request.future):
        return
    is_suspended = starts.open_run(slot) is not None and not slot.phase.has_run_task
    is_kept = is_suspended and _keeps_run(slot)
    asks = is_suspended and (not is_kept or bool(activation.state.requests))
    waits_its_turn = _waits_its_turn(slot, request)
    if asks and not waits_its_turn and request.refuse_if_interrupted:
        raise NotInterrupted(
            f"Agent {slot.id!r} waits for a person: answer its requests first, or leave "
            "if_interrupted='withdraw'"
        )
    activation.self_started_runs = 0
    activation.queue_run(request, options)
    if waits_its_turn:
        pass
    elif is_kept:
        _withdraw_requests(slot)
    else:
        if is_suspended:
            control.request_pause(slot, None)  # it was for the run that this one withdraws
        start_next(slot)
    _note_queued_run(slot)


def send(slot: AgentSlot, sent: Send) -> None:
    """Record a message in the queue, and start a run if the agent is free for one."""
    activation = slot.current
    if is_known(slot, sent.message_id):
        answer_when_durable(slot, sent.future, sent.message_id)
        return
    is_due = sent.due is None or sent.due <= slot.services.clock.now()
    if not is_due:
        plans_of(slot).check_room()
    queued = MessageQueued(
        message_id=sent.message_id,
        message=sent.message,
        steer=sent.steer,
        self_sent=sent.self_sent,
        due=None if is_due else sent.due,
        context={**sent.context},
    )
    activation.ledger.check(queued, spare=RECORD_BYTES)
    activation.ledger.record(queued)
    answer_when_durable(slot, sent.future, sent.message_id)
    if not is_due:
        return
    if not sent.self_sent:
        activation.self_started_runs = 0
    run = starts.open_run(slot)
    if run is None or not (sent.self_sent or run.quarantined is not None):
        is_suspended = run is not None and not slot.phase.has_run_task
        if _waits_its_turn(slot, sent):
            return
        if is_suspended and _keeps_run(slot):
            _withdraw_requests(slot)
        else:
            start_next(slot)


def _wait_for_run_of(
    slot: AgentSlot, message_id: str, request: RunRequest, options: RunOptions
) -> None:
    """The message was accepted before: its run answers this request, too."""
    activation = slot.current
    run_id = run_of(slot, message_id) or run_of_message(slot.id, activation.state, message_id)
    if run_id is not None:
        waiters.wait_outcome(slot, WaitOutcome(request.future, run_id=run_id))
    elif not waiters.answer_if_quarantined(slot, request.future):  # still in the queue
        activation.queue_run(replace(request, message=None), options)
        if not _waits_its_turn(slot, request):
            start_next(slot)
        _note_queued_run(slot)


def _note_queued_run(slot: AgentSlot) -> None:
    """Tell other hosts of a run that waits behind one at rest: it keeps the agent here.

    Else two hosts with such runs take it from each other again and again
    (test_an_agent_for_whose_queued_message_a_caller_waits_stays_where_it_is).
    """
    if not slot.phase.has_run_task:
        note_later(slot)


def _waits_its_turn(slot: AgentSlot, given: RunRequest | Send) -> bool:
    """Whether a message that was at another host was sent before the open run was suspended.

    Who sent it has seen no request, and no pause. It was queued behind the run, in the memory of a
    host that has lost the agent since, or had not read the call yet: it waits its turn here, too
    (test_a_run_behind_one_that_asks_withdraws_nothing_where_it_is_asked_for_anew,
    test_a_run_behind_one_that_is_paused_withdraws_nothing_where_it_is_asked_for_anew).

    Of one that comes here at once no times are compared: a clock may be set back, and those of two
    hosts differ (test_a_message_withdraws_what_was_asked_before_the_clock_was_set_back).
    """
    run, message = starts.open_run(slot), given.message
    if run is None or slot.phase.has_run_task or not given.was_elsewhere:
        return False
    since = run.suspended_since
    if since is None:  # its host went away before it said so
        since = min((request.created_at for request in slot.state.requests), default=None)
    sent = None if message is None else message.timestamp
    return since is not None and sent is not None and sent < since


def _keeps_run(slot: AgentSlot) -> bool:
    """Whether a tool of the open run sleeps or waits, or did: no message ends such a run."""
    state = slot.current.state
    if state.run is None or state.run.halt is not None:
        return False
    return has_waits(state) or is_woken(state)


def _withdraw_requests(slot: AgentSlot) -> None:
    """A message of the user came to a run that also waits: only its requests are withdrawn."""
    ledger = slot.current.ledger
    if ledger.state.requests:
        withdraw_requests(ledger)
        starts.continue_run(slot)


def cancel_message(slot: AgentSlot, message_id: str) -> bool:
    """Cancel a queued run, or record that a message is; False if none of this id waits."""
    activation, state = slot.current, slot.current.state
    for queued in activation.queued_runs:
        request = queued.request
        if request.message is not None and request.message_id == message_id:
            left = (each for each in activation.queued_runs if each is not queued)
            activation.queued_runs = tuple(left)
            note_later(slot)
            _refuse_cancelled(slot, request)
            return True
    if message_id not in state.message_ids or state.message_ids[message_id] is not None:
        return False
    now = slot.services.clock.now()
    activation.ledger.record(MessageCancelled(message_id=message_id, at=now))
    return True


def _refuse_cancelled(slot: AgentSlot, request: RunRequest) -> None:
    refuse(request.future, UsageError(f"Message {request.message_id!r} is cancelled"))


def start_next(slot: AgentSlot, *, only_occurrence: bool = False) -> None:
    """Start the next queued run, or one of the queue; not while a run goes on or waits.

    An occurrence of a schedule has a run of its own, when what was queued before it is over. It
    withdraws no open run: what a person sends does, and goes before it then.

    Args:
        only_occurrence: start the run of the next occurrence, whatever else is queued.

    """
    if slot.phase.has_run_task or (starts.open_run(slot) is not None and _keeps_run(slot)):
        return
    activation = slot.current
    queue = activation.state.queue
    try:
        at = slot.services.clock.now()
    except BaseException as error:  # the application's clock: the waiters get its error
        logger.exception(
            "the clock raised: agent %r starts no run", slot.id, extra=log_extra(slot.id)
        )
        slot.refuse_waiters(as_exception(slot.id, error))
        return
    occurrence = next_occurrence(queue) if queue else None
    if occurrence is not None and (only_occurrence or _is_next(slot, occurrence)):
        starts.start_occurrence(slot, occurrence, at)
    elif activation.queued_runs:
        next_run, *later = activation.queued_runs
        activation.queued_runs = tuple(later)
        request = next_run.request
        is_taken = run_of(slot, request.message_id) is not None
        if is_taken or (request.message is None and request.message_id not in queue):
            # A host that had the agent meanwhile may have done it, and this one has it again
            # (test_a_posted_run_that_was_taken_back_is_not_done_again_by_its_owner).
            _answer_without_run(slot, request, next_run.options)
            start_next(slot)
        else:
            starts.start_run(slot, next_run, next_run.messages_ahead, at)
    elif queue:
        starts.start_run(slot, None, tuple(queue), at)


def _answer_without_run(slot: AgentSlot, request: RunRequest, options: RunOptions) -> None:
    """The message that a request waited for is in the queue no longer."""
    if request.message_id is not None and is_known(slot, request.message_id):
        _wait_for_run_of(slot, request.message_id, request, options)
    else:
        _refuse_cancelled(slot, request)


def _is_next(slot: AgentSlot, occurrence: QueuedMessage) -> bool:
    """Whether nothing that was queued before an occurrence is still to be run."""
    if starts.open_run(slot) is not None:
        return False
    if slot.current.queued_runs:
        return occurrence.message_id in slot.current.queued_runs[0].messages_ahead
    return next(iter(slot.current.state.queue)) == occurrence.message_id

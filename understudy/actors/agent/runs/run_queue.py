"""What is to be run next: requests of callers, queued messages, occurrences of schedules."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import Any

from understudy._base.authors import By
from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import Beginning
from understudy.actors.agent.message_ids import is_known, run_of
from understudy.actors.agent.messages import (
    AgentCall,
    CancelMessage,
    RunRequest,
    Send,
    WaitOutcome,
    handles,
    options_of,
)
from understudy.actors.agent.planner import RECORD_BYTES, Plans
from understudy.actors.agent.replies import (
    answer_when_durable,
    as_exception,
    as_stored,
    refuse_when_durable,
)
from understudy.actors.agent.run_outcomes import refusal
from understudy.actors.agent.runs import control, starts, waiters
from understudy.actors.agent.slot import AgentSlot, waits_for
from understudy.agent.runner import withdraw_requests
from understudy.errors import NotInterrupted, UnknownMessage, UsageError
from understudy.journal.index_status import is_held
from understudy.loop_actors.future import refuse
from understudy.state.folds.queue import queued_message
from understudy.state.plans import (
    QueuedMessage,
    RunChoices,
    is_result,
    next_turn,
    run_named_by,
)
from understudy.state.records import MessageCancelled, MessageQueued, MessageRefused
from understudy.state.waits import has_waits, is_woken

logger: logging.Logger = logging.getLogger(__name__)


def plans_of(slot: AgentSlot) -> Plans:
    """The plans of an agent, such as its schedules, to be read and changed."""
    services = slot.services
    return Plans(slot.current.ledger, services.clock, services.new_id)


@handles(RunRequest)
def request(slot: AgentSlot, call: AgentCall[RunRequest]) -> None:
    """Start a run, queue it behind others, or wait for the one that its message id names.

    Raises:
        UsageError: if its options do not fit the definition. Nothing is recorded then.
        NotInterrupted: if a person is asked, and the caller wants no run then.
        RecordRefused: if the message is too large to be queued.

    """
    activation, queued = slot.current, call.message.queued
    message_id = queued.message_id
    options_of(queued.choices or RunChoices(), activation.agent)
    if is_known(slot, message_id) or run_of(slot, message_id) is not None:
        # What the first future brought may be old by now: the run has gone on
        # (test_a_message_id_sent_again_brings_the_outcome_of_its_run_as_it_stands_now).
        _wait_for_run_of(slot, call)
        return
    if message_id in activation.state.refused and run_named_by(message_id) is not None:
        # The call is made anew where its host has lost the agent, by an id that no other call has
        # (test_a_queued_run_that_is_cancelled_is_not_begun_by_a_call_that_is_made_anew).
        raise refusal(slot.id, activation.state, message_id)
    if waiters.answer_if_quarantined(slot, call):
        return
    _check_may_withdraw(slot, call)
    is_kept = _is_suspended(slot) and _keeps_run(slot)
    waits_its_turn = _waits_its_turn(slot, call)
    activation.self_started_runs = 0
    if slot.phase.has_run_task or waits_its_turn or is_kept:
        _queue(slot, call)
        if is_kept and not waits_its_turn:
            _withdraw_requests(slot)
        return
    start_next(slot, call)


def _is_suspended(slot: AgentSlot) -> bool:
    return starts.open_run(slot) is not None and not slot.phase.has_run_task


def _check_may_withdraw(slot: AgentSlot, call: AgentCall[RunRequest]) -> None:
    """Check that a `run` withdraws nothing that its caller does not want to withdraw.

    Raises:
        NotInterrupted: if it would.

    """
    asks = _is_suspended(slot) and (not _keeps_run(slot) or bool(slot.state.requests))
    if asks and call.message.refuse_if_interrupted and not _waits_its_turn(slot, call):
        raise NotInterrupted(
            f"Agent {slot.id!r} waits for a person: answer its requests first, or leave "
            "if_interrupted='withdraw'"
        )


def _queue(slot: AgentSlot, call: AgentCall[RunRequest]) -> None:
    """Record a `run` that waits for its turn, or that steers the run under way."""
    _record_queued(slot, call.message.queued)
    call.notes.on_queued()
    slot.wait(waits_for(call.message.message_id), call)


def _record_queued(slot: AgentSlot, queued: MessageQueued) -> None:
    slot.current.ledger.check(queued, spare=RECORD_BYTES)
    slot.current.ledger.record(queued)


@handles(Send)
def send(slot: AgentSlot, call: AgentCall[Send]) -> None:
    """Record a message in the queue, and start a run if the agent is free for one."""
    sent = call.message.queued
    if is_known(slot, sent.message_id):
        answer_when_durable(slot, call.future, sent.message_id)
        return
    is_due = sent.due is None or sent.due <= slot.services.clock.now()
    if not is_due:
        plans_of(slot).check_room()
    _record_queued(slot, replace(sent, due=None) if is_due else sent)
    answer_when_durable(slot, call.future, sent.message_id)
    if not is_due:
        return
    if not sent.self_sent:
        slot.current.self_started_runs = 0
    run = starts.open_run(slot)
    withdraws_none = sent.self_sent or is_result(sent.message_id)
    if run is None or not (withdraws_none or run.quarantined is not None):
        if _waits_its_turn(slot, call):
            return
        if _is_suspended(slot) and _keeps_run(slot):
            _withdraw_requests(slot)
        else:
            start_next(slot)


def _wait_for_run_of(slot: AgentSlot, call: AgentCall[RunRequest]) -> None:
    """Answer a request whose message was accepted before by the run of that message."""
    message_id = call.message.message_id
    queued = slot.state.queue.get(message_id)
    if queued is not None and waiters.answer_if_quarantined(slot, call):
        return
    if queued is None or queued.choices is not None:
        if queued is not None:
            call.notes.on_queued()
        waiters.wait_outcome(slot, call, WaitOutcome(message_id))
        return
    is_open = slot.phase.has_run_task or starts.open_run(slot) is not None
    if queued.steer and is_open and call.message.queued.choices != RunChoices():
        raise UsageError(
            f"The message {message_id!r} steers the run of agent {slot.id!r} that is open, which "
            "has its own options: leave them out to wait for that run, or give another message_id"
        )
    _check_may_withdraw(slot, call)
    # It was sent: as a `run` it begins also behind a run that failed, at its place in the queue.
    as_sent = replace(
        call.message.queued,
        message=queued.message,
        context=queued.context,
        by=queued.by,
        steer=queued.steer,
    )
    _queue(slot, replace(call, message=replace(call.message, queued=as_sent)))
    if not _waits_its_turn(slot, call):
        start_next(slot)


def _waits_its_turn(slot: AgentSlot, call: AgentCall[Any]) -> bool:
    """Whether a message that was at another host was sent before the open run was suspended.

    Who sent it has seen no request, and no pause. It was queued behind the run, in the memory of a
    host that has lost the agent since, or had not read the call yet: it waits its turn here, too
    (test_a_run_behind_one_that_asks_withdraws_nothing_where_it_is_asked_for_anew,
    test_a_run_behind_one_that_is_paused_withdraws_nothing_where_it_is_asked_for_anew).

    Of one that comes here at once no times are compared: a clock may be set back, and those of two
    hosts differ (test_a_message_withdraws_what_was_asked_before_the_clock_was_set_back).
    """
    run = starts.open_run(slot)
    if run is None or slot.phase.has_run_task or not call.was_elsewhere:
        return False
    since = run.suspended_since
    if since is None:  # its host went away before it said so
        since = min((request.created_at for request in slot.state.requests), default=None)
    sent = call.message.queued.message.timestamp
    return since is not None and sent is not None and sent < since


def _keeps_run(slot: AgentSlot) -> bool:
    """Whether no message ends the open run: a tool of it sleeps or waits, or did, or it is frozen.

    A run that is frozen has not come to rest by itself: a message steers it after the thaw.
    """
    state = slot.current.state
    if starts.kept_back(slot) is not None:
        return True
    if state.run is None or state.run.halt is not None:
        return False
    return has_waits(state) or is_woken(state)


def _withdraw_requests(slot: AgentSlot) -> None:
    """A message of the user came to a run that also waits: only its requests are withdrawn."""
    ledger = slot.current.ledger
    if ledger.state.requests:
        withdraw_requests(ledger)
        starts.continue_run(slot)


@handles(CancelMessage)
def cancel_message(slot: AgentSlot, call: AgentCall[CancelMessage]) -> None:
    """Record that a message is cancelled; the answer is False if none of this id waits."""
    was_there = _cancel_message(slot, call.message.message_id, call.message.by)
    answer_when_durable(slot, call.future, was_there)


def _cancel_message(slot: AgentSlot, message_id: str, by: By | None) -> bool:
    state, begins = slot.current.state, slot.current.beginning
    if message_id not in state.message_ids or state.message_ids[message_id] is not None:
        return False
    if begins is not None and message_id in begins.message_ids:
        return False
    now = slot.services.clock.now()
    slot.current.ledger.record(MessageCancelled(message_id=message_id, at=now, by=by))
    cancelled = UnknownMessage(agent_id=slot.id, message_id=message_id, is_cancelled=True)
    for waiter in slot.take_waits(waits_for(message_id)):
        refuse_when_durable(slot, waiter.future, cancelled)
    return True


def start_next(
    slot: AgentSlot,
    asked: AgentCall[RunRequest] | None = None,
    *,
    is_held: bool = False,
    with_occurrences: bool = True,
) -> None:
    """Start the next run of the queue; not while a run goes on or waits.

    An occurrence of a schedule has a run of its own, when what was queued before it is over. It
    withdraws no open run: what a person sends does, and goes before it then.

    Args:
        slot: of the agent.
        asked: a `run` that is asked for now. It is queued, unless it begins at once: then its
            message is in the first record of the run alone.
        is_held: whether messages that were sent stay in the queue until the next `run`.
        with_occurrences: whether it may be the run of an occurrence.

    """
    if slot.phase.has_run_task or (starts.open_run(slot) is not None and _keeps_run(slot)):
        return
    state = slot.state
    if asked is None and not state.queue:
        return
    stop = starts.kept_back(slot)
    if stop is not None:
        starts.keep_back(slot, stop)
        if asked is not None:
            _queue(slot, asked)
        return
    with_occurrences = with_occurrences and starts.open_run(slot) is None
    try:
        at = slot.services.clock.now()
    except BaseException as error:  # the application's clock: the waiters get its error
        logger.exception(
            "the clock raised: agent %r starts no run", slot.id, extra=log_extra(slot.id)
        )
        error = as_exception(slot.id, error)
        slot.refuse_waiters(error)
        if asked is not None:
            refuse(asked.future, error)
        return
    own = None if asked is None else queued_message(asked.message.queued)
    queue = state.queue if own is None else {**state.queue, own.message_id: own}
    turn = _turn(slot, queue, is_held, with_occurrences, at)
    if turn and starts.open_run(slot) is not None:
        control.request_pause(slot, None)  # it was for the run that this turn withdraws
    if asked is not None:
        if turn and turn[-1] is own:
            slot.wait(waits_for(asked.message.message_id), asked)
            starts.start_turn(slot, turn, at, keeps_id=asked.was_elsewhere)
            return
        _queue(slot, asked)
    while turn:
        try:
            starts.start_turn(slot, turn, at)
        except UsageError as error:
            refused = turn[-1].message_id
            record_refusal(slot, refused, error)
            for waiter in slot.take_waits(waits_for(refused)):
                refuse_when_durable(slot, waiter.future, error)
            turn = _turn(slot, state.queue, is_held, with_occurrences, at)
        else:
            return


def _turn(
    slot: AgentSlot,
    queue: dict[str, QueuedMessage],
    is_held: bool,
    with_occurrences: bool,
    at: datetime,
) -> list[QueuedMessage]:
    """The messages of the next run, as many as fit into its first record.

    A `run` whose `ends_at` has passed begins alone: no model answers what was sent before it.
    """
    turn = next_turn(queue, is_held=is_held, with_occurrences=with_occurrences)
    choices = turn[-1].choices if turn else None
    if choices is not None and choices.ends_at is not None and choices.ends_at <= at:
        turn = turn[-1:]
    return starts.fitting(slot, turn)


def run_of_turn(slot: AgentSlot, begins: Beginning) -> str | None:
    """The id of the `run` that waits, and for which a turn is to begin; None where there is none.

    Of a `run` before which too much was sent for one turn with it, only the first part begins.
    """
    queue = slot.state.queue
    if begins.asked is not None:
        return begins.asked if begins.asked in queue else None
    turn = next_turn(queue, is_held=True, with_occurrences=False)
    fitting = starts.fitting(slot, turn)
    is_first_part = tuple(each.message_id for each in fitting) == begins.message_ids
    return turn[-1].message_id if turn and is_first_part else None


def start_behind(slot: AgentSlot, begins: Beginning, asked: str | None) -> None:
    """Start the next run behind a turn that could not begin.

    Messages of that turn that were sent are still in the queue, and go into the next one. Alone
    they begin none if they have failed alone, and an occurrence of a schedule is passed over: each
    would fail again and again.

    Args:
        slot: of the agent.
        begins: the turn.
        asked: the id of the `run` that was refused, as of `run_of_turn`.

    """
    queue = slot.state.queue
    failed = [queue[each] for each in begins.message_ids if each in queue]
    start_next(
        slot,
        is_held=asked is None or starts.open_run(slot) is not None or is_held(slot.state),
        with_occurrences=all(each.occurrence is None for each in failed),
    )


def record_refusal(slot: AgentSlot, message_id: str, error: Exception) -> None:
    """Record that a `run` which waits for its turn may not begin."""
    ledger, now = slot.current.ledger, slot.services.clock.now()
    kept = as_stored(error).to_dict()
    ledger.record(MessageRefused(message_id=message_id, error=kept, at=now))

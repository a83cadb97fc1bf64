"""Who waits for the outcome of a run: of the current one, an earlier one, or one to come."""

from __future__ import annotations

from typing import Any

from understudy.actors.agent.message_ids import is_known, run_of
from understudy.actors.agent.messages import AgentMessage, RunRequest, WaitOutcome
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import (
    answer_when_durable,
    answer_with,
    confirm,
    mirror,
)
from understudy.actors.agent.run_outcomes import (
    earlier_outcome,
    ended_outcome,
    quarantine_outcome,
    run_of_message,
    suspended_outcome,
)
from understudy.actors.agent.runs import starts
from understudy.actors.agent.slot import AgentSlot
from understudy.errors import UnknownAgent, UnknownMessage
from understudy.journal import is_waiting
from understudy.loop_actors.future import Future, refuse
from understudy.outcomes import Outcome


def wait_outcome(slot: AgentSlot, waiting: WaitOutcome) -> None:
    """Answer with the outcome of the current run, or of the last one; None without any.

    Or with that of the run, or of the run of the message, that is named.

    Raises:
        UnknownAgent: if another agent had the run, which is deleted.
        UnknownMessage: if there is no such message.
        UsageError: if it waits for its time.

    """
    if not _is_for_current_run(slot, waiting):
        return
    future = waiting.future
    activation, phase = slot.current, slot.phase
    agent, state = activation.agent, activation.state
    has_run_task, has_queued = phase.has_run_task, bool(activation.queued_runs)
    if waiting.run_id is not None or waiting.message_id is not None:
        # The run that is meant is recorded: it is not one that begins, or is to begin
        # (test_a_message_id_sent_again_while_the_next_run_begins_brings_its_own_outcome).
        has_run_task, has_queued = phase is Phase.RUNNING, False
    if starts.open_run(slot) is None and not has_run_task and not has_queued:
        ended = ended_outcome(agent, state) if state.run is not None else None
        answer_when_durable(slot, future, ended)
        return
    if answer_if_quarantined(slot, future):
        return
    suspended = None if has_run_task else suspended_outcome(agent, state)
    if suspended is not None:
        answer_when_durable(slot, future, suspended)
        return
    activation.outcome_futures += (future,)
    if not phase.has_run_task and not is_waiting(state):
        starts.continue_run(slot)


def request_of(slot: AgentSlot, message_id: str | None) -> RunRequest | None:
    """The request of this message id whose run has not begun: it is in no record yet."""
    if message_id is None:
        return None
    activation = slot.current
    waiting = (queued.request for queued in activation.queued_runs)
    for request in (activation.beginning, *waiting):
        if request is not None and request.message_id == message_id:
            return request
    return None


def _is_for_current_run(slot: AgentSlot, waiting: WaitOutcome) -> bool:
    """Whether the current or last run is meant; if not, the waiter is seen to."""
    activation = slot.current
    state, run_id, message_id = activation.state, waiting.run_id, waiting.message_id
    if waiting.incarnation not in (None, activation.journal.owned.incarnation):
        raise UnknownAgent(agent_id=slot.id)  # another one has its id by now
    if message_id is not None:
        asked = None if is_known(slot, message_id) else request_of(slot, message_id)
        if asked is not None:
            mirror(slot, asked.future, waiting.future)  # it is not recorded before its run begins
            return False
        run_id = run_of(slot, message_id) or run_of_message(slot.id, state, message_id)
        if run_id is None:
            activation.message_waits += (waiting,)
            return False
    if run_id is not None and (state.run is None or state.run.run_id != run_id):
        answer_earlier(slot, waiting.future, run_id)
        return False
    return True


def answer_earlier(slot: AgentSlot, future: Future[Any], run_id: str) -> None:
    """Answer with the outcome of a run that others came after."""
    activation = slot.current

    async def outcome() -> Outcome:
        await confirm(slot, activation)
        store, owned = slot.services.store, activation.journal.owned
        return await earlier_outcome(store, slot.id, activation.agent, run_id, owned.incarnation)

    answer_with(slot, future, outcome)


def answer_message_waits(slot: AgentSlot, outcome: Outcome | None = None) -> None:
    """Answer who waits for the run of a message that is in the queue no longer.

    Args:
        outcome: of the run that has just ended, or come to rest.

    """
    activation = slot.current
    if not activation.message_waits:
        return
    waits, activation.message_waits = activation.message_waits, ()
    for waiting in waits:
        assert waiting.message_id is not None, "else it waits for the current run"
        run_id = run_of(slot, waiting.message_id)
        if outcome is not None and run_id == outcome.run_id:
            waiting.future.set(outcome)
        elif not is_known(slot, waiting.message_id):
            error = UnknownMessage(agent_id=slot.id, message_id=waiting.message_id)
            refuse(waiting.future, error)
        elif run_id is None or outcome is None:
            activation.message_waits += (waiting,)
        else:
            answer_earlier(slot, waiting.future, run_id)


def accept(slot: AgentSlot, posted: AgentMessage, accepted: Future[Any]) -> None:
    """Tell the host that has posted a message that it is handled, when that is durable.

    It is told the run for whose outcome its caller waits. A run that waits for its turn is not
    recorded yet: it says itself when it has begun.
    """
    state = slot.current.state
    if posted.future is accepted:
        return
    if posted.future.done():
        done: Future[Any] = posted.future
        mirror(slot, done, accepted)
    elif isinstance(posted, RunRequest):
        run_id = run_of(slot, posted.message_id)
        if run_id is not None:
            answer_when_durable(slot, accepted, run_id)
    elif (
        state.run is not None
        and slot.phase is not Phase.BEGINNING
        and any(each is posted.future for each in slot.current.outcome_futures)
    ):
        answer_when_durable(slot, accepted, state.run.run_id)


def answer_if_over(slot: AgentSlot, future: Future[Any], run_id: str | None) -> bool:
    """Answer a call that names the last run, if that is over: it has done its work."""
    run = slot.current.state.run
    if run_id is None or run is None or run.run_id != run_id or not run.over:
        return False
    answer_when_durable(slot, future, ended_outcome(slot.current.agent, slot.current.state))
    return True


def answer_if_quarantined(slot: AgentSlot, future: Future[Any]) -> bool:
    """Answer a call for the outcome of a quarantined run: nothing follows by itself."""
    run = starts.open_run(slot)
    if run is None or not run.is_held:
        return False
    answer_when_durable(slot, future, quarantine_outcome(slot.current.state))
    return True

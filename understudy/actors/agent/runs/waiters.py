"""Who waits for the outcome of a run: of the current one, an earlier one, or one to come."""

from __future__ import annotations

from understudy.actors.agent.message_ids import run_of
from understudy.actors.agent.messages import (
    AgentCall,
    WaitOutcome,
    handles,
)
from understudy.actors.agent.replies import (
    answer_earlier,
    answer_when_durable,
)
from understudy.actors.agent.run_outcomes import (
    last_outcome,
    run_of_message,
)
from understudy.actors.agent.runs import starts
from understudy.actors.agent.slot import AgentSlot, message_waited_for, waits_for
from understudy.errors import UnknownAgent
from understudy.journal import is_waiting
from understudy.outcomes import Outcome


@handles(WaitOutcome)
def wait_outcome(slot: AgentSlot, call: AgentCall, look: WaitOutcome | None = None) -> None:
    """Answer with the outcome of the current run, or of the last one; None without any.

    Or with that of the run, or of the run of the message, that is named.

    Args:
        slot: of the agent.
        call: to be answered.
        look: which outcome it is; None: its message says so.

    Raises:
        UnknownAgent: if another agent had the run, which is deleted.
        UnknownMessage: if there is no such message.
        UnderstudyError: the error of a `run` that was refused when its turn came.
        UsageError: if the message waits for its time.

    """
    activation, waiting = slot.current, look or call.message
    state, run_id = activation.state, waiting.run_id
    if waiting.incarnation not in (None, activation.journal.owned.incarnation):
        raise UnknownAgent(agent_id=slot.id)  # another one has its id by now
    if waiting.message_id is not None:
        run_id = run_of(slot, waiting.message_id)
        run_id = run_id or run_of_message(slot.id, state, waiting.message_id)
        begins = activation.beginning
        if run_id is None or (begins is not None and waiting.message_id in begins.message_ids):
            slot.wait(waits_for(waiting.message_id), call)
            return
    current, run = starts.current_run(slot), state.run
    if run_id is None and current is None:
        run_id = next((waits_for(id) for id, each in state.queue.items() if each.choices), None)
        if run_id is not None:  # it is about to begin
            slot.wait(run_id, call)
            return
    run_id = run_id or current
    if run_id is not None and run_id != current and (run is None or run.run_id != run_id):
        answer_earlier(slot, call.future, run_id)
        return
    if current is not None and run_id == current and slot.phase.has_run_task:
        slot.wait(current, call)
        return
    outcome = last_outcome(activation.agent, state, activation.ledger.count)
    if run is None or outcome is not None:
        answer_when_durable(slot, call.future, outcome)
        return
    slot.wait(run.run_id, call)
    if not slot.phase.has_run_task and not is_waiting(state):
        starts.continue_run(slot)


def answer_steering(slot: AgentSlot, outcome: Outcome) -> None:
    """Answer those who wait for messages that have steered the run of this outcome."""
    queue = slot.state.queue
    for key in list(slot.waits or ()):
        message_id = message_waited_for(key)
        if message_id is None or message_id in queue:
            continue
        if run_of(slot, message_id) == outcome.run_id:
            for waiter in slot.take_waits(key):
                waiter.future._answer(outcome)


def answer_if_over(slot: AgentSlot, call: AgentCall, run_id: str | None) -> bool:
    """Answer a call that names the last run, if that is over: it has done its work."""
    run = slot.state.run
    if run is None or not run.over or run.run_id != run_id:
        return False
    wait_outcome(slot, call, WaitOutcome(run_id=run_id))
    return True


def answer_if_quarantined(slot: AgentSlot, call: AgentCall) -> bool:
    """Answer a call for the outcome of a quarantined run: nothing follows by itself."""
    run = starts.open_run(slot)
    if run is None or not run.is_held:
        return False
    wait_outcome(slot, call, WaitOutcome(run_id=run.run_id))
    return True

"""What an agent records by itself when it is time, and the runs that follow from it."""

from __future__ import annotations

from datetime import datetime

from understudy.actors.agent.messages import (
    AgentCall,
    ChangePlans,
    CheckDue,
    handles,
)
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import answer_when_durable
from understudy.actors.agent.runs import recovery, run_queue, starts
from understudy.actors.agent.slot import AgentSlot
from understudy.run.waits.dues import end_doubts, record_dues
from understudy.state.next_due import due_beside_run
from understudy.state.plans import next_occurrence
from understudy.stopping import StopSignal


@handles(ChangePlans)
def change_plans(slot: AgentSlot, call: AgentCall[ChangePlans]) -> None:
    """Change a schedule, and start the run of what is triggered."""
    changed = call.message.change(run_queue.plans_of(slot))
    _start_what_came(slot, message=False)
    answer_when_durable(slot, call.future, changed)


@handles(CheckDue)
def check_due(slot: AgentSlot, call: AgentCall[CheckDue]) -> None:
    """Record what is due by now, and start or continue what follows."""
    _record_what_is_due(slot, call.message.reached)
    if slot.current.kept_back is not None:
        recovery.go_on(slot)
    answer_when_durable(slot, call.future, None)


def _record_what_is_due(slot: AgentSlot, reached: datetime | None) -> None:
    """Record what is due by now, and at `reached`, and start or continue what follows.

    A run that is under way looks for what is due in it when it continues, and says so again
    when it ends.
    """
    activation = slot.current
    if slot.services.closing:
        return
    now = slot.services.clock.now()
    if reached is not None:
        now = max(now, reached)
    has_message = run_queue.plans_of(slot).record_due(now)
    end_doubts(activation.ledger, now)
    if slot.phase.has_run_task:
        return
    if not record_dues(activation.ledger, now):
        _start_what_came(slot, message=has_message)
        return
    run = starts.open_run(slot)
    assert run is not None, "only of an open run something is due"
    if run.cancelled is not None:
        starts.stop_run(slot, StopSignal.from_dict(run.cancelled))
    else:
        starts.continue_run(slot)


def _start_what_came(slot: AgentSlot, *, message: bool) -> None:
    """Start a run of what is queued by now, unless a run is open.

    Args:
        message: whether it is a message. All that are queued go with it.

    """
    if slot.phase.has_run_task or starts.open_run(slot) is not None:
        return
    if message:
        run_queue.start_next(slot)
    elif next_occurrence(slot.current.state.queue) is not None:
        run_queue.start_next(slot, is_held=True)


def tell_due(slot: AgentSlot) -> None:
    """Tell the due clock when the agent is due next, if it is known now."""
    if slot.phase is Phase.IDLE or _has_dues_beside_run(slot):
        slot.services.tell_due(slot.id, due_by_now(slot))


def due_by_now(slot: AgentSlot) -> datetime | None:
    """The time at which the agent is due next; during a run task, by what is due beside the run.

    None also where the time is not known now: the agent says it once it is.
    """
    if slot.phase is Phase.IDLE:
        return slot.current.state.next_due
    return due_beside_run(slot.current.state) if _has_dues_beside_run(slot) else None


def _has_dues_beside_run(slot: AgentSlot) -> bool:
    if not slot.phase.has_run_task:
        return False
    return slot.state.plans is not None or slot.state.may_be_in_doubt

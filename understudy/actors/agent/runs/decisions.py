"""What a run that waits is told: decisions of people, answers from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from understudy.actors.agent.messages import (
    AgentCall,
    AnswerWait,
    Decide,
    RecordFact,
    Resume,
    Retry,
    WaitOutcome,
    handles,
)
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import (
    answer_earlier,
    answer_when_durable,
    answer_with,
    check_known,
)
from understudy.actors.agent.runs import starts, waiters
from understudy.actors.agent.slot import AgentSlot
from understudy.agent.decisions import check_decisions, decide, run_of_decisions
from understudy.approvals import Voter, caller_by
from understudy.errors import NotInterrupted
from understudy.loop_actors.future import Future
from understudy.run.waits.answers import is_for_voted_doubt, record_answer
from understudy.state.waits import is_woken


def must_wait(slot: AgentSlot, call: AgentCall) -> bool:
    """Whether a call is an answer that comes while the run that asks is under way.

    Race: who has read of a request answers it, while its run task has not ended yet, or goes on
    because of another answer, or with a call beside it. The answer waits in the inbox until the
    run has come to rest (test_a_request_that_is_listed_can_be_answered_at_any_moment,
    test_a_request_is_answered_at_another_host_while_its_run_goes_on).
    """
    message = call.message
    if isinstance(message, Retry) and slot.phase is Phase.IDLE:
        stop = starts.kept_back(slot)
        if stop is not None:  # a failed run is gone on with after the thaw
            starts.keep_back(slot, stop)
        return stop is not None
    if isinstance(message, Retry) and slot.run_is_over:
        return True  # the end of the run is told, and its task has not ended
    if not isinstance(message, Decide) or slot.phase is not Phase.RUNNING:
        return False
    decisions = message.decisions
    pending = slot.current.state.requests
    return isinstance(decisions, Mapping) and any(each.id in decisions for each in pending)


@handles(Resume)
def resume(slot: AgentSlot, call: AgentCall[Resume]) -> None:
    """Record decisions and continue the run.

    Raises:
        DecisionError: if a decision does not fit, or its request is not pending.
        NotInterrupted: if the request has another decision already, or the run goes on now.

    """
    earlier = _earlier_run(slot, call.message)
    if earlier is not None:
        answer_earlier(slot, call.future, earlier)
        return
    _decide(slot, call.message)
    run = slot.state.run
    assert run is not None, "it was decided about"
    if run.over or run.is_held:
        waiters.wait_outcome(slot, call, WaitOutcome(run_id=run.run_id))
    else:
        slot.wait(run.run_id, call)


@handles(Decide)
def record_decisions(slot: AgentSlot, call: AgentCall[Decide]) -> None:
    """Record decisions and continue the run, and answer once the decisions are recorded.

    Raises:
        DecisionError: as `resume`.
        NotInterrupted: as `resume`, and for a quarantined run, whose requests stay.

    """
    if _earlier_run(slot, call.message) is not None:
        answer_when_durable(slot, call.future, None)
        return
    _decide(slot, call.message)
    run = starts.open_run(slot)
    if run is not None and run.quarantined is not None:
        raise NotInterrupted(f"Agent {slot.id!r} is quarantined: release its run by retry() first")
    answer_when_durable(slot, call.future, None)


def _earlier_run(slot: AgentSlot, message: Decide) -> str | None:
    """The id of an earlier run of the agent that went on by these decisions; None for none.

    Race: a call that another host has posted is posted again where its answer is late, and then
    handled twice. The run may be over by then, and the next one begun
    (test_decisions_that_were_made_in_an_earlier_run_are_answered_by_that_run).
    """
    state, given = slot.current.state, message.decisions
    if not isinstance(given, Mapping) or any(each.id in given for each in state.requests):
        return None
    run_id = run_of_decisions(state, given)
    return None if state.run is None or run_id == state.run.run_id else run_id


def _decide(slot: AgentSlot, message: Decide) -> None:
    """Record decisions and continue the run, unless it is over or quarantined."""
    activation = slot.current
    definition, run = activation.agent.definition, activation.state.run
    new = check_decisions(
        definition,
        activation.state,
        message.decisions,
        slot.services.clock,
        expect=message.expect,
        voters=message.voters,
    )
    assert run is not None, "what was decided about is a request of a run"
    if run.over or run.quarantined is not None:
        return
    if slot.phase.has_run_task:
        if new:
            raise NotInterrupted(
                f"Agent {slot.id!r} begins a new run, which withdraws what it had asked"
            )
    else:
        decide(activation.ledger, new, slot.services.clock, message.context, message.login)
        starts.continue_run(slot)


@handles(AnswerWait)
def answer_wait(slot: AgentSlot, call: AgentCall[AnswerWait]) -> None:
    """Record an answer for a wait, and let the run go on if it waits there.

    Raises:
        Expired: if the wait is over.
        RecordRefused: if the answer is too large.
        VoteRefused: if a requester would settle a doubt of which requesters say nothing.

    """
    ledger, answer, now = slot.current.ledger, call.message, slot.services.clock.now()
    is_to_be_known = answer.answer.by is not None and answer.voter is None
    if is_to_be_known and is_for_voted_doubt(ledger.state, answer.token_hash):
        answer_with(slot, call.future, partial(_answer_as_person, slot, answer))
        return
    known = record_answer(
        ledger, answer.token_hash, answer.answer, now, agent_id=slot.id, voter=answer.voter
    )
    answer_when_durable(slot, call.future, known)
    go_on_if_woken(slot)


async def _answer_as_person(slot: AgentSlot, answer: AnswerWait) -> bool | None:
    """Ask the agent to record an answer again, now with the person who gives it."""
    services, by = slot.services, answer.answer.by
    caller = caller_by(by) if by is not None else None
    assert caller is not None, "the caller has looked"
    voter = Voter(login=caller.name)
    if services.runs.trust.people is not None:
        voter = await services.runs.trust.voter(caller, services.clock.now())
    again = AgentCall(replace(answer, voter=voter), Future[Any](services.loop))
    slot.ask(again)
    known: bool | None = await again.future
    return known


@handles(RecordFact)
def record_fact(slot: AgentSlot, call: AgentCall[RecordFact]) -> None:
    """Record that a decision is revoked, or a doubt settled: a call that waits for a check goes on.

    Raises:
        UsageError: if there is no such decision, or doubt.
        VoteRefused: if this person may not settle it.

    """
    ledger, fact = slot.current.ledger, call.message.fact
    check_known(slot.id, ledger.state, fact, call.message.voter, slot.services.clock.now())
    ledger.record(fact)
    answer_when_durable(slot, call.future, None)
    for notify in ledger.on_answer:
        notify()
    go_on_if_woken(slot)


def go_on_if_woken(slot: AgentSlot) -> None:
    """Continue the run of an agent, if it waits no longer."""
    # Race: an answer may come when the run has found that it waits, and its task has not ended
    # (test_an_answer_that_comes_while_the_run_comes_to_rest_is_not_lost).
    run, activation = starts.open_run(slot), slot.current
    if run is None or slot.phase.has_run_task or slot.services.closing:
        return
    if activation.is_to_end_attempt():
        return  # the next activation goes on
    may_go_on = run.quarantined is None and run.halt is None and run.cancelled is None
    if may_go_on and run.paused is None and is_woken(activation.state):
        starts.continue_run(slot)

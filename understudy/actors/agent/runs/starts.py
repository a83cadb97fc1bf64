"""Begins an agent's runs, continues and stops them: each time a run task is started."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from pydantic_ai.messages import ModelRequest, UserPromptPart

from understudy._base.authors import By, authors_of
from understudy.actors.agent.activation import Beginning
from understudy.actors.agent.events import Status
from understudy.actors.agent.message_ids import message_of
from understudy.actors.agent.messages import AgentCall, AgentKey, Retry, options_of
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.planner import RECORD_BYTES
from understudy.actors.agent.replies import answer_earlier
from understudy.actors.agent.slot import AgentSlot, message_waited_for, waits_for
from understudy.actors.agent.task import start_run_task
from understudy.errors import JournalFailed, RecordRefused
from understudy.outcomes import Outcome
from understudy.state.plans import (
    BACKGROUND_ID,
    QueuedMessage,
    RunChoices,
    retry_id,
    run_named_by,
)
from understudy.state.records import MessageQueued
from understudy.state.run_state import RunState
from understudy.stopping import StopSignal
from understudy.trust.freezes import Stop


def open_run(slot: AgentSlot) -> RunState | None:
    """The open run of an agent, if there is one."""
    run = slot.current.state.run
    return run if run is not None and not run.over else None


def current_run(slot: AgentSlot) -> str | None:
    """The id of an agent's run that begins or is open; None if there is no such run."""
    begins, run = slot.current.beginning, open_run(slot)
    return begins.run_id if begins is not None else run.run_id if run is not None else None


def note_run(slot: AgentSlot, call: AgentCall) -> None:
    """Note in a call which run of the agent is open, if any."""
    run = open_run(slot)
    if run is not None:
        message_id = message_of(slot.current.state, run.run_id)
        call.notes.on_run(run.run_id, message_id=message_id)


def kept_back(slot: AgentSlot) -> Stop | None:
    """The stop that keeps back the runs of an agent now, if the agent or a call of it is frozen."""
    stops = slot.services.runs.trust.stops
    if stops is None:
        return None
    activation = slot.current
    return stops.of_agent(activation.agent.definition.path) or stops.still(activation.kept_back)


def keep_back(slot: AgentSlot, stop: Stop) -> None:
    """Note that something of the agent is to begin, or to go on, once the stop is over."""
    slot.current.kept_back = stop
    slot.tell_of_progress()  # a recovery waits for no more


def start_turn(
    slot: AgentSlot, turn: list[QueuedMessage], at: datetime, *, keeps_id: bool = True
) -> None:
    """Start the run of these messages of an agent.

    Args:
        slot: of the agent.
        turn: the messages, in their order: an occurrence of a schedule, or messages that were sent
            and, last, that of a `run`. Those that are not in the queue are in the first record of
            the run alone.
        at: the time.
        keeps_id: whether the id of the last message is kept, where `run` has made it. It is not
            needed where no other host has it, as the run has it too.

    Raises:
        UsageError: if the options of a `run` do not fit the definition any more.

    """
    activation = slot.current
    last = turn[-1]
    choices = last.choices or RunChoices()
    options = options_of(choices, activation.agent)
    if last.occurrence is None:
        parts = [part for queued in turn for part in queued.message.parts]
    else:
        parts = [
            replace(part, timestamp=at) if isinstance(part, UserPromptPart) else part
            for part in last.message.parts
        ]
    run_id = run_named_by(last.message_id) or slot.services.new_id()
    waiting = [each for queued in turn for each in slot.waiting(waits_for(queued.message_id))]
    callers = tuple(key for each in waiting for key in each.callers)
    queue, is_asked = activation.state.queue, last.choices is not None
    activation.beginning = Beginning(
        run_id,
        tuple(queued.message_id for queued in turn),
        last.message_id if is_asked and last.message_id in queue else None,
    )
    taken = turn if keeps_id or run_named_by(last.message_id) is None else turn[:-1]
    authors = [author for queued in turn for author in _authors_of(queued)]
    made = None
    for queued in turn:
        made = queued.makes or made
    begin = partial(
        activation.agent.runner.begin,
        activation.ledger,
        ModelRequest(parts=parts, timestamp=at),
        options=options,
        message_ids=tuple(queued.message_id for queued in taken),
        context=last.context,
        occurrence=last.occurrence,
        go_on=choices.go_on,
        by=authors_of(authors),
        also_unnamed=None in authors,
        makes=made,
    )
    _run(slot, Phase.BEGINNING, _begin(slot, run_id, begin), callers)


def _authors_of(queued: QueuedMessage) -> tuple[By | None, ...]:
    """Who has asked for what a message says; None for somebody unnamed.

    Of an occurrence these are all who have set its schedule, and who has triggered it
    (test_who_has_set_a_schedule_does_not_vote_on_what_it_asks_for).
    """
    if queued.makes is not None:
        return queued.makes.authors
    if queued.message_id.startswith(BACKGROUND_ID):
        return ()  # nobody has sent it: those who asked for the call are known
    occurrence = queued.occurrence
    if occurrence is None:
        return (queued.by,)
    return (*occurrence.authors, occurrence.by) if occurrence.triggered else occurrence.authors


def start_retry(slot: AgentSlot, call: AgentCall[Retry], run_id: str) -> None:
    """Start a run that continues an agent's last run, which failed."""
    new, activation = slot.services.new_id(), slot.current
    activation.beginning = Beginning(new, (retry_id(run_id),), retries=run_id)
    slot.wait(new, call)
    by = authors_of((call.message.by,))
    begin = partial(activation.agent.runner.begin, activation.ledger, None, go_on=True, by=by)
    _run(slot, Phase.BEGINNING, _begin(slot, new, begin))


def fitting(slot: AgentSlot, turn: list[QueuedMessage]) -> list[QueuedMessage]:
    """As many of the first messages of a turn as fit into the first record of one run."""
    while len(turn) > 1:
        merged = ModelRequest(parts=[part for queued in turn for part in queued.message.parts])
        ids = "".join(queued.message_id for queued in turn)
        record = MessageQueued(message_id=ids, message=merged, steer=False, self_sent=False)
        try:
            slot.current.ledger.check(record, spare=RECORD_BYTES + 8 * len(turn))
        except RecordRefused:
            turn = turn[:-1]
        else:
            break
    return turn


async def _begin(
    slot: AgentSlot, run_id: str, begin: Callable[..., Coroutine[Any, Any, Outcome]]
) -> Outcome:
    await slot.current.agent.runner.check_start(slot.state)
    environment, signal = slot.environment(), partial(_run_recorded, slot)
    return await begin(run_id=run_id, environment=environment, signal=signal)


def _run_recorded(slot: AgentSlot) -> StopSignal | None:
    """Note that the run's first record is made; returns the cancel that came before, if any."""
    if slot.phase is Phase.BEGINNING:
        slot.enter(Phase.RUNNING)
    activation = slot.current
    activation.cancellation_arrived()
    begun, activation.beginning = activation.beginning, None
    if begun is not None:
        # Not before: of a run that may not begin, those messages stay in the queue that were sent,
        # and who waits for one of them waits on
        # (test_who_waits_for_a_sent_message_is_not_told_that_the_run_of_its_turn_is_refused).
        for message_id in begun.message_ids:
            slot.wait(begun.run_id, *slot.take_waits(waits_for(message_id)))
        for waiter in slot.waiting(begun.run_id):
            waiter.notes.on_run(begun.run_id, begun.retries)
        # Of a run that this one has withdrawn
        # (test_who_asks_for_a_run_that_lacks_its_deps_while_another_one_withdraws_it_is_told).
        for key in list(slot.waits or ()):
            if key != begun.run_id and message_waited_for(key) is None:
                for waiter in slot.take_waits(key):
                    answer_earlier(slot, waiter.future, key)
    signal, activation.early_cancel = activation.early_cancel, None
    return signal


def continue_run(slot: AgentSlot, by: str | None = None) -> None:
    """Continue the open run where it stopped; `by` is the person who has it recovered.

    Where it is frozen, it continues after the thaw.
    """
    stop = kept_back(slot)
    if stop is not None:
        slot.set_status(Status.RUNNING)
        keep_back(slot, stop)
        return
    runner, ledger = slot.current.agent.runner, slot.current.ledger
    environment = slot.environment(continues=True, by=by)
    _run(slot, Phase.RUNNING, runner.go_on(ledger, environment=environment))


def stop_run(slot: AgentSlot, signal: StopSignal) -> None:
    """End the open run, which no run task has now, by a stop signal."""
    slot.set_status(Status.RUNNING)
    runner, ledger = slot.current.agent.runner, slot.current.ledger
    environment = slot.environment(continues=True)
    _run(slot, Phase.RUNNING, runner.stop(ledger, signal, environment=environment))


def _run(
    slot: AgentSlot,
    phase: Phase,
    coroutine: Coroutine[Any, Any, Outcome],
    callers: tuple[AgentKey, ...] = (),
) -> None:
    try:
        if phase is Phase.BEGINNING and open_run(slot) is not None:
            # It withdraws one that waits, whose hooks are called first: no other host takes the
            # agent meanwhile.
            slot.set_status(Status.RUNNING)
        else:
            slot.set_running()
    except JournalFailed:
        coroutine.close()
        raise
    slot.enter(phase)
    slot.current.unpause_asked = slot.current.kept_back = None
    start_run_task(slot, coroutine, callers)

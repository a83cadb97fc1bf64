"""Begins an agent's runs, continues and stops them: each time a run task is started."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from pydantic_ai.messages import ModelRequest, UserPromptPart

from understudy._base.context_codecs import Context
from understudy.actors.agent.activation import QueuedRun
from understudy.actors.agent.events import Status
from understudy.actors.agent.messages import AgentKey, OnRun, Retry, RunChoices, RunRequest
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.planner import RECORD_BYTES
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.agent.task import start_run_task
from understudy.agent.run_environment import RunOptions
from understudy.errors import JournalFailed, RecordRefused
from understudy.outcomes import Outcome
from understudy.state.plans import Occurrence, QueuedMessage, retry_id
from understudy.state.records import MessageQueued
from understudy.state.run_state import RunState
from understudy.stopping import StopSignal


def open_run(slot: AgentSlot) -> RunState | None:
    """The run that is not over, if there is one."""
    run = slot.current.state.run
    return run if run is not None and not run.over else None


def note_run(slot: AgentSlot, on_run: OnRun) -> None:
    """Say which run is open."""
    run = open_run(slot)
    if on_run is not None and run is not None:
        on_run(run.run_id)


def start_occurrence(slot: AgentSlot, queued: QueuedMessage, at: datetime) -> None:
    """Start the run of an occurrence of a schedule."""
    parts = [
        replace(part, timestamp=at) if isinstance(part, UserPromptPart) else part
        for part in queued.message.parts
    ]
    message = replace(queued.message, parts=parts, timestamp=at)
    options = slot.current.agent.run_options()
    begun = _begin(slot, message, options, (queued.message_id,), queued.context, queued.occurrence)
    _run(slot, Phase.BEGINNING, begun)


def start_run(
    slot: AgentSlot, queued_run: QueuedRun | None, messages_ahead: tuple[str, ...], at: datetime
) -> None:
    """Start a run with the messages that were queued before it and, last, its own message."""
    activation = slot.current
    messages = [
        queued
        for key, queued in activation.state.queue.items()
        if key in messages_ahead and queued.occurrence is None
    ]
    if queued_run is not None and messages:
        own = queued_run.request.message
        if not _fit_one_record(slot, messages, own):
            # after a run of the messages ahead
            activation.queued_runs = (queued_run, *activation.queued_runs)
            queued_run = None
    while len(messages) > 1 and not _fit_one_record(slot, messages, None):
        messages.pop()
    parts = [part for queued in messages for part in queued.message.parts]
    ids = [queued.message_id for queued in messages]
    context: Context = messages[-1].context if messages else {}
    options = activation.agent.run_options()
    callers: tuple[AgentKey, ...] = ()
    go_on = queued_run is not None and queued_run.request.go_on
    activation.beginning = queued_run.request if queued_run is not None else None
    if queued_run is not None:
        request, options = queued_run.request, queued_run.options
        callers = request.callers
        if request.message is not None:
            parts = parts + list(request.message.parts)  # `+=` leaves room for more
            context = request.context
            ids += [request.message_id] if request.message_id is not None else []
        activation.outcome_futures += (request.future,)
    message = ModelRequest(parts=parts, timestamp=at)
    begun = _begin(slot, message, options, tuple(ids), context, go_on=go_on)
    _run(slot, Phase.BEGINNING, begun, callers)


def start_retry(slot: AgentSlot, retry: Retry, run_id: str) -> None:
    """Start a run that continues this one, which failed and is the last."""
    activation = slot.current
    on_retried = retry.on_retried
    activation.beginning = RunRequest(
        message=None,
        choices=RunChoices(),
        options=None,
        future=retry.future,
        message_id=retry_id(run_id),
        on_run=None if on_retried is None else partial(on_retried, run_id),
    )
    activation.outcome_futures += (retry.future,)
    _run(slot, Phase.BEGINNING, _begin(slot, None, None, (), {}, go_on=True))


def _fit_one_record(
    slot: AgentSlot, queued: list[QueuedMessage], last: ModelRequest | None
) -> bool:
    """Whether these messages together are small enough for the first record of one run."""
    messages = [item.message for item in queued] + ([last] if last is not None else [])
    if len(messages) == 1:
        return True  # checked when it was accepted
    merged = ModelRequest(parts=[part for message in messages for part in message.parts])
    ids = "".join(item.message_id for item in queued)
    record = MessageQueued(message_id=ids, message=merged, steer=False, self_sent=False)
    try:
        slot.current.ledger.check(record, spare=RECORD_BYTES + 8 * len(queued))
    except RecordRefused:
        return False
    return True


async def _begin(
    slot: AgentSlot,
    message: ModelRequest | None,
    options: RunOptions | None,
    message_ids: tuple[str, ...],
    context: Context,
    occurrence: Occurrence | None = None,
    *,
    go_on: bool = False,
) -> Outcome:
    activation = slot.current
    runner = activation.agent.runner
    await runner.check_start(activation.state)
    return await runner.begin(
        activation.ledger,
        message,
        options=options,
        environment=slot.environment(),
        message_ids=message_ids,
        occurrence=occurrence,
        context=context,
        go_on=go_on,
        signal=partial(_run_recorded, slot),
    )


def _run_recorded(slot: AgentSlot) -> StopSignal | None:
    """Called when the run's first record is made; the cancel that came before it, if any."""
    if slot.phase is Phase.BEGINNING:
        slot.enter(Phase.RUNNING)
    activation = slot.current
    activation.cancellation_arrived()
    begun, activation.beginning = activation.beginning, None
    if begun is not None:
        note_run(slot, begun.on_run)
    signal, activation.early_cancel = activation.early_cancel, None
    return signal


def continue_run(slot: AgentSlot) -> None:
    """Continue the open run where it is."""
    runner, ledger = slot.current.agent.runner, slot.current.ledger
    environment = slot.environment_to_continue()
    _run(slot, Phase.RUNNING, runner.go_on(ledger, environment=environment))


def stop_run(slot: AgentSlot, signal: StopSignal) -> None:
    """End the open run, which no run task has now, by a stop signal."""
    runner, ledger = slot.current.agent.runner, slot.current.ledger
    environment = slot.environment_to_continue()
    _run(slot, Phase.RUNNING, runner.stop(ledger, signal, environment=environment))


def _run(
    slot: AgentSlot,
    phase: Phase,
    coroutine: Coroutine[Any, Any, Outcome],
    callers: tuple[AgentKey, ...] = (),
) -> None:
    try:
        slot.set_status(Status.RUNNING)
    except JournalFailed:
        coroutine.close()
        raise
    slot.enter(phase)
    slot.current.is_to_unpause = False
    start_run_task(slot, coroutine, callers)

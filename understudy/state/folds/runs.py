"""Folds of records of a run as a whole: its beginning, attempts, signals."""

from __future__ import annotations

from datetime import datetime

from pydantic_ai.messages import ModelResponse, ToolCallPart

from understudy.models.attribution import sent_by
from understudy.models.messages import StoredRequest
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.costs import adding, complete
from understudy.state.folds.going_on import take_over
from understudy.state.folds.places import note_status, open_run
from understudy.state.folds.queue import all_are_results, dequeue, note_authors
from understudy.state.plans import SENDER_OF_RESULTS, BackgroundCall, retry_id
from understudy.state.run_state import BACKGROUND, Call, RunState, Turn
from understudy.state.shared_empties import no_items, with_added, with_item
from understudy.state.workflow_progress import Progress, Shared


def run_started(state: AgentState, record: r.RunStarted) -> None:
    before = state.run
    if before is not None and (before.costs or state.earlier_costs):
        lines = complete(before.costs, before.agent, before.usage.requests)
        state.earlier_costs = adding(state.earlier_costs, lines)
    if state.held_keys:  # the store knows what an earlier run has done
        held = {key: each for key, each in state.held_keys.items() if not each.is_done}
        state.held_keys = held or no_items()
    run = RunState(
        run_id=record.run_id,
        agent=record.agent,
        until_tool=record.until_tool,
        require_tool_success=record.require_tool_success,
        forced=record.forced,
        max_runs=record.max_runs,
        early_stopping=record.early_stopping,
        fingerprint=record.fingerprint,
        deps_given=record.deps_given,
        pause_when_given=record.pause_when_given,
        agent_id=record.agent_id,
        deadline=record.deadline,
        max_overrides=record.max_overrides,
        first_message=len(state.messages),
        shared=Shared(inherited=len(state.messages)) if record.shares else None,
        contents=record.contents,
        workflow=record.workflow,
        progress=Progress() if record.workflow is not None else None,
        ends_at=record.ends_at,
        occurrence=record.occurrence,
        context=record.context or no_items(),
        told=record.told,
        began=record.at,
        doubt_ends=record.doubt_ends,
    )
    are_results = record.message_ids != () and all_are_results(record.message_ids)
    if record.message is not None and not are_results:
        note_authors(state, record.by or (None,))
        if record.also_unnamed:
            note_authors(state, (None,))
    message_ids = record.message_ids
    said: tuple[StoredRequest, ...] = ()
    if record.continues is None:
        state.left = no_items()
    else:
        said = take_over(state, run, record)
        if not (record.shares or record.continues == record.run_id):
            message_ids += (retry_id(record.continues),)
    state.run = run
    for message in record.initial:
        state.messages = state.messages.appending(message)
    if record.values:
        state.merge(record.values)
    senders: tuple[object, ...] = record.by
    if are_results:
        senders = (SENDER_OF_RESULTS,)
    given = () if record.message is None else (sent_by(record.message, senders),)
    for message in (*said, *given):
        _add_input(state, run, message)
    dequeue(state, message_ids, record.at)
    if record.makes is not None:
        _make(state, run, record.makes, record.at)
    if record.status is not None:
        note_status(state, record.status, record.at)


def _make(state: AgentState, run: RunState, made: BackgroundCall, at: datetime) -> None:
    """Open the first turn with the background call that the run makes."""
    part = ToolCallPart(made.tool_name, made.arguments, tool_call_id=made.tool_call_id)
    response = ModelResponse(parts=[part], timestamp=at)
    key = f"{run.run_id}.0.0"
    run.turn = Turn(0, response)
    run.turn.calls[key] = Call(key, part)
    run.turns = 1
    kept = {
        "code": made.code,
        "owner": made.owner,
        "asked": made.was_asked,
        "approval": None if made.approval is None else made.approval.to_dict(),
        "requesters": None if made.requesters is None else list(made.requesters),
    }
    run.once = with_item(run.once, BACKGROUND, kept)
    state.messages = state.messages.appending(response)


def _add_input(state: AgentState, run: RunState, message: StoredRequest) -> None:
    """Add the message to the conversation; if a turn is open, after its results."""
    turn, continued = run.turn, run.continues
    if turn is not None and not turn.calls:
        turn = run.turn = None  # the reply is not the last one any more
    if continued is not None and turn is not None and not turn.propagated:
        continued.unread += (message,)
    else:
        state.messages = state.messages.appending(message)


def attempt(state: AgentState, record: r.Attempt) -> None:
    run = open_run(state)
    run.attempts = record.number
    run.fruitless += 1
    run.host = record.host
    if record.trace is not None:
        run.trace = record.trace
    for call in run.turn.calls.values() if run.turn is not None else ():
        if call.running and call.failed_in != call.attempts:
            call.unknown = state.may_be_in_doubt = True  # the call was cut off in its body
    if record.status is not None:
        note_status(state, record.status, record.at)


def attempt_closed(state: AgentState, _: r.AttemptClosed) -> None:
    run = open_run(state)
    run.fruitless = max(0, run.fruitless - 1)


def hooks_ran(state: AgentState, record: r.HooksRan) -> None:
    open_run(state).hooks_ran = True


def once(state: AgentState, record: r.Once) -> None:
    run = open_run(state)
    run.once = with_item(run.once, record.key, record.value)


def time_spent(state: AgentState, record: r.TimeSpent) -> None:
    open_run(state).seconds = record.seconds


def cancel_requested(state: AgentState, record: r.CancelRequested) -> None:
    open_run(state).cancelled = record.signal


def signalled(state: AgentState, record: r.Signalled) -> None:
    run = open_run(state)
    run.signals = with_added(run.signals, record)


def override(state: AgentState, record: r.Override) -> None:
    run = open_run(state)
    run.overrides = with_added(run.overrides, record)


def early_stop_begun(state: AgentState, record: r.EarlyStopBegun) -> None:
    open_run(state).early_stop = record.turn
    state.messages = state.messages.appending(record.message)


def quarantined(state: AgentState, record: r.Quarantined) -> None:
    open_run(state).quarantined = record.cause


def released(state: AgentState, record: r.Released) -> None:
    run = open_run(state)
    run.quarantined, run.fruitless = None, 0

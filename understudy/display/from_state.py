"""The rows of a state, where the records that led to it are compacted away."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart

from understudy._base.points_in_time import time_text
from understudy.display.places import Place, request_id
from understudy.display.table import Table
from understudy.interrupts import DecisionRecord
from understudy.models.display_halves import halves_of
from understudy.state.agent_state import AgentState
from understudy.state.run_state import Call, RunState


def add_state(table: Table, place: Place, state: AgentState) -> None:
    """Add the rows of an agent: its conversation, and what is open in its run."""
    run = state.run
    if run is not None:
        place.run_id, place.turn = run.run_id, run.turns
    _add_messages(table, place, state)
    if run is not None:
        if not run.over:
            _add_open_run(table, place, state, run)
        elif run.end is not None:
            table.add_end(place, run.end)
    for queued in state.queue.values():
        table.add_queued(queued.message_id, queued.message, due=None, steer=queued.steer)
    for timed in (state.plans.timed if state.plans is not None else {}).values():
        due = time_text(timed.due)
        table.add_queued(timed.message_id, timed.message, due=due)


def _add_messages(table: Table, place: Place, state: AgentState) -> None:
    shared = state.run.shared if state.run is not None else None
    # Of an agent of a workflow: the conversation before its run is that of the workflow.
    first = shared.inherited if shared is not None else 0
    messages: Sequence[ModelMessage] = state.messages[first:]
    turn = state.run.turn if state.run is not None and not state.run.over else None
    decided: dict[str, list[DecisionRecord]] = {}
    for record in state.decisions:
        decided.setdefault(record.request.tool_call_id, []).append(record)
    last = len(messages) - 1
    while turn is not None and last >= 0 and not isinstance(messages[last], ModelResponse):
        last -= 1
    for index, message in enumerate(messages):
        prefix = f"{place.key}snapshot:{table.seq}.{index}."
        if isinstance(message, ModelResponse):
            is_open = turn is not None and index == last
            table.add_reply(
                place,
                message,
                turn=turn.index if turn is not None and is_open else None,
                cut=turn is not None and is_open and turn.cut,
                prefix=prefix,
            )
            for part in message.tool_calls:
                for record in decided.pop(part.tool_call_id, ()):
                    table.add_decided(place, record)
        else:
            _add_request_message(table, place, message, prefix)


def _add_request_message(table: Table, place: Place, message: ModelRequest, prefix: str) -> None:
    text, model_text = halves_of(message)
    results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
    for part in results:
        table.add_result(part)
    if (text or model_text) and not results:
        table.add(place, f"{prefix}user", "user", text, model_text=model_text, at=message.timestamp)


def _add_open_run(table: Table, place: Place, state: AgentState, run: RunState) -> None:
    for call in run.calls:
        _add_call(table, place, call)
    if run.halt is not None and not run.dismissed and run.halt.run_id == run.run_id:
        table.add_request(place, run.halt)
    if run.paused is not None:
        table.add_notice(place, "paused", f"Paused: {run.paused}")
    if run.quarantined is not None:
        text = f"Not continued any more: {run.quarantined}"
        table.add_notice(place, "quarantined", text, kind="error")
    for key, child in state.children.items():
        name = child.run.agent if child.run is not None else ""
        add_state(table, table.child(place, key, name), child)


def _add_call(table: Table, place: Place, call: Call) -> None:
    id = place.calls.get(call.key)
    if call.result is not None:
        table.add_result(call.result.part, in_doubt=call.result.doubt)
        return
    waits = call.waits_at
    if call.running:
        table.change(id, "running", attempt=call.attempts)
    elif waits:
        until = time_text(waits[0].due)
        if id is None:
            table.add_put_off(place, until)
        waits_for = {"name": waits[0].name, "what": waits[0].kind, "until": until}
        table.change(id, "waiting", waits_for=waits_for)
    elif call.attempts:
        table.change(id, "waiting")
    for request in call.pending_requests:
        told = call.notices.get(request.id)
        table.add_request(place, request)
        if told is not None and told.reminders:
            table.change(request_id(request.id), reminders=told.reminders)

"""Folds of records of the agent as a whole: its beginning, values, files, history."""

from __future__ import annotations

from dataclasses import replace

from understudy.models.messages import Messages
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.files import changed
from understudy.state.folds.places import note_status
from understudy.state.folds.queue import change_plans
from understudy.state.run_state import Call, RunState, is_child_of
from understudy.state.shared_empties import no_items, with_item

WithFiles = r.Result | r.FilesChanged


def snapshot(state: AgentState, record: r.Snapshot) -> None:
    stored = AgentState.from_dict(record.state)
    for name in AgentState.__slots__:
        setattr(state, name, getattr(stored, name))


def snapshot_messages(state: AgentState, record: r.SnapshotMessages) -> None:
    state.messages = state.messages.appending(*record.messages)
    state.let_follow()


def agent_created(state: AgentState, record: r.AgentCreated) -> None:
    state.merge(record.values)


def imported(state: AgentState, record: r.Imported) -> None:
    if state.plans is not None:  # the original agent continues with its plans
        schedules = state.plans.schedules
        paused = {
            id: replace(schedule, paused=True, authors=(None,))
            for id, schedule in schedules.items()
        }
        change_plans(state, schedules=paused, background={})
    # The author of the file names the authors, also if only its queue has messages.
    if None not in state.authors and (state.authors or not state.messages):
        state.authors = (*state.authors, None)
    state.grants = no_items()  # the author of the file names who gave them
    for each in state.whole_tree:
        for key, doubt in each.doubts.items():
            # The ids of persons, too, hold only where the agent was exported.
            each.doubts[key] = replace(doubt, token_hashes=(), requesters=None)
        for key, held in each.held_keys.items():
            each.held_keys[key] = replace(held, is_copied=True)
        run = each.run
        if run is None:
            continue
        run.answers = None
        if run.turn is not None:
            run.turn.interrupts_checked = False
        left = None if run.left is None else run.left.turn
        for call in left.calls.values() if left is not None else run.calls:
            if call.result is None:
                _reset_imported(each, run, call)


def _reset_imported(state: AgentState, run: RunState, call: Call) -> None:
    """Drop requests, decisions and tokens, which hold only where the agent was exported.

    A started call is in doubt. One that runs agents is not: they continue here.
    """
    asked = any(request.kind == "doubt" for request in call.requests.values())
    if asked or call.check is not None:
        call.running = True
    call.requests = call.decisions = call.votes = call.notices = no_items()
    if run.model_call is None or run.model_call.call is not call:  # a model call is put off instead
        for name, point in call.points.items():  # the tool runs again; its tokens hold here
            point = replace(point, token_hashes=(), reached_in=0)
            call.points = with_item(call.points, name, point)
    runs_agents = any(is_child_of(key, call.key) for key in (*state.children, *state.left))
    call.copied_from = call.running and not runs_agents


def status_noted(state: AgentState, record: r.StatusNoted) -> None:
    note_status(state, record.status, record.at)


def values_merged(state: AgentState, record: r.ValuesMerged) -> None:
    state.merge(record.delta)


def history_replaced(state: AgentState, record: r.HistoryReplaced) -> None:
    run = state.run
    if run is not None:
        run.first_message = 0
        if run.shared is not None:  # the workflow's conversation gets the original messages
            run.shared.said += state.messages.since(run.shared.inherited)
            run.shared.inherited = len(record.messages)
            run.shared.told = None
        for inside in (*state.agents.values(), *state.left.values()):
            if inside.run is not None and inside.run.shared is not None:
                inside.run.shared.told = None
    state.messages = Messages(record.messages)


def files_changed(state: AgentState, record: r.FilesChanged) -> None:
    if record.own:  # also if it has no files
        state.files = {}


def change_files(state: AgentState, record: r.Record, inner: WithFiles) -> None:
    """Change the files of the agent, or of the agent above whose files it shares."""
    owner = state
    while isinstance(record, r.ChildRecord):
        state, record = state.children[record.child], record.record
        if state.files is not None:
            owner = state
    if isinstance(inner, r.FilesChanged) and inner.own:
        state.files = changed(None, inner.files)
    else:
        owner.files = changed(owner.files, inner.files)

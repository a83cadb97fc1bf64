"""Sharing between a workflow and its agents: an agent starts with a view of the workflow's state,
and its own changes become a part of that state again.

None of this is recorded, as the workflow's own records hold it. A copy of the conversation in the
records of each agent would make the journal grow with the square of the turns.
"""

from __future__ import annotations

from datetime import datetime

from understudy.models.attribution import is_for_itself, with_author
from understudy.models.retold import view_for
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.costs import adding, below
from understudy.state.run_state import RunState
from understudy.state.shared_empties import with_added, with_item
from understudy.state.workflow_progress import AgentResult, View


def new_child(state: AgentState, record: r.ChildRecord) -> AgentState:
    """The state of a new child: an empty one, or a view of `state` for an agent of a workflow."""
    start = record.record
    if not isinstance(start, r.RunStarted) or not start.shares:
        return AgentState()
    view = _view_of(state, start.at)
    messages = view_for(
        start.agent,
        state.messages,
        start=view.start,
        at=view.at,
        latest=start.contents == "none",
        raw=start.workflow is not None,
    )
    return AgentState.sharing(state, messages)


def note_view(state: AgentState, child: AgentState) -> None:
    """Note in the run of a workflow's agent that has just begun which view of the workflow it
    has.
    """
    run = child.run
    assert run is not None, "it has begun"
    assert run.began is not None, "as above"
    if run.shared is not None:
        run.shared.told = _view_of(state, run.began)


def _view_of(state: AgentState, at: datetime) -> View:
    run = state.run
    assert run is not None, "a workflow is a run"
    hidden = run.first_message if run.contents == "none" and run.shared is None else 0
    return View(start=hidden, end=len(state.messages), at=at)


def add_result(run: RunState, child: AgentState, record: r.SubRunEnded) -> None:
    """Add the agent's result to the workflow's progress."""
    assert child.run is not None, "a run that ended was started"
    assert run.progress is not None, "only workflows have agents that share their state"
    progress = run.progress
    if record.round != progress.round:
        progress.round, progress.results = record.round, {}
    end = child.run.end
    result = AgentResult(
        agent=record.agent,
        outcome=record.outcome,
        text=end.text if end is not None else "",
        output=end.output if end is not None else None,
        error=end.error if end is not None else None,
        signals=end.signals if end is not None and end.outcome == "stopped" else None,
        escalated=record.escalated,
    )
    progress.results[record.index] = result
    progress.text = result.text or progress.text
    run.escalated = run.escalated or record.passes_on


def merge_child(state: AgentState, child: AgentState) -> None:
    """Add an agent's messages, changes of values, usage and decisions to the workflow."""
    run = child.run
    assert run is not None, "a run that ended was started"
    assert state.run is not None, "a workflow is a run"
    assert run.shared is not None, "only called for an agent of a workflow"
    added = [*run.shared.said, *child.messages.since(run.shared.inherited)]
    state.messages = state.messages.appending(
        *(with_author(message, run.agent) for message in added if not is_for_itself(message))
    )
    for how, values in run.shared.changes:
        if how == "set":
            state.put(values)
        else:
            state.merge(values)
    state.run.usage.incr(run.usage)
    state.run.costs = adding(state.run.costs, below(state.run.agent, run.costs))
    state.run.add_done_of(run)
    add_decisions_and_doubts(state, child)


def add_decisions_and_doubts(state: AgentState, child: AgentState) -> None:
    """Keep what an ended agent leaves: its decisions, its doubts, and its keys."""
    state.decisions = with_added(state.decisions, *child.decisions)
    for doubt in child.doubts.values():
        state.add_doubt(doubt)
    for tool_call_id, finding in child.findings.items():
        state.add_finding(tool_call_id, finding)
    for key, held in child.held_keys.items():
        state.held_keys = with_item(state.held_keys, key, held)

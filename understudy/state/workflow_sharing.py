"""What an agent of a workflow is given of it, and what it gives back, once (W5).

Nothing of this is recorded: the conversation and the values are there already, and a copy of them
in each agent's facts would make these grow with the square of its turns.
"""

from __future__ import annotations

from understudy.models.attribution import is_for_itself, view_for, with_author
from understudy.state import records as r
from understudy.state.agent_state import AgentState, RunState
from understudy.state.workflow_progress import AgentResult

__all__ = ["new_child", "note_end", "take_back"]


def new_child(state: AgentState, record: r.ChildRecord) -> AgentState:
    """The state that an agent begins with: its own, or this one's where it shares it (W5)."""
    start = record.record
    if not isinstance(start, r.RunStarted) or not start.shares:
        return AgentState()
    run = state.run
    assert run is not None, "a workflow is a run"
    hidden = run.first_message if run.contents == "none" and run.shared is None else 0
    messages = view_for(
        start.agent,
        state.messages[hidden:],
        at=start.at,
        latest=start.contents == "none",
        raw=start.workflow is not None,
    )
    return AgentState.sharing(state, messages, start.agent)


def note_end(run: RunState, child: AgentState, record: r.SubRunEnded) -> None:
    """Note in the workflow how far it is now (W7)."""
    assert child.run is not None, "what ended has begun"
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


def take_back(state: AgentState, child: AgentState) -> None:
    """What an agent of the workflow said, did and decided is the workflow's now, once."""
    run = child.run
    assert run is not None, "what ended has begun"
    assert state.run is not None, "a workflow is a run"
    assert run.shared is not None, "only called for an agent of a workflow"
    said = [*run.shared.said, *child.messages[run.shared.inherited :]]
    told = [with_author(message, run.agent) for message in said if not is_for_itself(message)]
    state.messages = state.messages.appending(*told)
    for how, values in run.shared.changes:
        if how == "set":
            state.put(values)
        else:
            state.merge(values)
    state.run.usage.incr(run.usage)
    state.decisions.extend(child.decisions)
    state.doubts.update(child.doubts)
    for name, sticky in child.sticky.items():
        state.sticky[f"{run.agent}/{name}"] = sticky

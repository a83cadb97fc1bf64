"""`AgentTree`: an agent in `Runtime.tree()`, with the runs that are nested in its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from understudy.actors.agent.events import Status
from understudy.actors.agent.slot import AgentSlot
from understudy.loop_actors.supervisor import SupervisorTree
from understudy.state.agent_state import AgentState
from understudy.state.waits import has_waits


@dataclass(frozen=True, slots=True)
class NestedRun:
    """An open run of a sub-agent. It has no actor: the actor of the outermost agent runs it."""

    key: str
    """The key of the call that runs the sub-agent."""
    agent: str
    """The name of the sub-agent's definition."""
    status: Status
    nested_runs: tuple[NestedRun, ...] = ()
    """The runs that are nested in this run."""

    def _lines(self) -> Iterator[str]:
        yield f"{self.key} (nested run of {self.agent}) {self.status.value}"
        yield from SupervisorTree._drawn([list(run._lines()) for run in self.nested_runs])


@dataclass(frozen=True, slots=True)
class AgentTree(SupervisorTree):
    """The actor of an agent, and the runs that are nested in the agent's run."""

    nested_runs: tuple[NestedRun, ...] = ()
    """The runs that are nested in the agent's run."""

    def _branches(self) -> list[list[str]]:
        return [list(run._lines()) for run in self.nested_runs]


def agent_tree(actor: SupervisorTree, slot: AgentSlot | None) -> SupervisorTree:
    """The actor of an agent with its nested runs, if the agent is in memory."""
    if slot is None or slot.activation is None:
        return actor
    known = {field.name: getattr(actor, field.name) for field in fields(actor)}
    return AgentTree(**known, nested_runs=_nested_runs(slot.state, slot.status))


def _nested_runs(state: AgentState, status: Status) -> tuple[NestedRun, ...]:
    """The open runs nested in a state. `status` is the status of the run above them."""
    runs = []
    for key, child in list(state.children.items()):
        if child.run is None or child.run.over:
            continue
        own = status
        if child.requests:
            own = Status.INTERRUPTED
        elif child.pause is not None:
            own = Status.PAUSED
        elif has_waits(child):
            own = Status.WAITING
        runs.append(NestedRun(key, child.run.agent, own, _nested_runs(child, own)))
    return tuple(runs)

"""What workflow modes have in common: a list of agents, each run once in its place.

A workflow is a mode with one step, `run_agents`. Each time it runs, it reads which agents of the
round are done, and runs only those that are missing. An agent that was begun continues under the
same key. So a run continues at the same place after a crash, an interrupt and a pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from understudy._base.type_variables import DepsT_contra
from understudy.errors import AgentFailed, DefinitionChanged, UsageError
from understudy.modes.pipeline import Mode
from understudy.modes.steps.check_stop import end_by
from understudy.outcomes import Failed, Interrupted, Outcome, Paused, Stopped, Waiting
from understudy.run.definition import ChildAgent, definition_of
from understudy.run.run import ESCALATED, Run
from understudy.state.records import SubRunEnded
from understudy.state.what_it_did import what_it_did
from understudy.state.workflow_progress import Progress
from understudy.tools.base_agent import instead_of_agent


class Workflow(Mode[DepsT_contra]):
    """A mode that runs agents. `repr(mode)` prints them in order."""

    def __init__(self, step: RunAgents) -> None:
        super().__init__((step,))

    def __repr__(self) -> str:
        return f"{self.name}({self._arrow.join(child.definition.name for child in self.agents)})"

    _arrow = " → "


class RunAgents:
    """The step of a workflow; each kind of workflow has a subclass.

    Raises:
        UsageError: for no agents, an item that is not an agent, or two agents with one name.

    """

    __name__ = "run_agents"
    kind: str
    loops = False
    """Whether an agent that escalates ends this workflow."""

    def __init__(self, agents: Sequence[Any]) -> None:
        if isinstance(agents, (str, bytes)) or not isinstance(agents, Sequence):
            raise UsageError(f"{self.kind}: `agents` must be a list of agents, got {agents!r}")
        if not agents:
            raise UsageError(f"{self.kind}([]) has no agents to run: give at least one")
        self.agents: tuple[ChildAgent, ...] = tuple(self._child(agent) for agent in agents)
        names = [child.definition.name for child in self.agents]
        for index, name in enumerate(names):
            if name in names[:index]:
                twice = "twice" if agents[index] in agents[:index] else "two agents of this name"
                raise UsageError(
                    f"{self.kind}([...]): {name!r} is there {twice}: make a second agent with "
                    "another name, so that each turn has one author"
                )

    def _child(self, agent: Any) -> ChildAgent:
        definition = definition_of(agent)
        if definition is not None:
            return ChildAgent(definition=definition)
        remedy = " (wrap it: Agent('a-name', mode=...))" if isinstance(agent, Mode) else ""
        raise UsageError(f"{self.kind}([...]) takes agents, got {instead_of_agent(agent)}{remedy}")

    async def __call__(self, run: Run) -> Outcome | None:
        current = run.current
        if current.workflow != run.definition.workflow or current.progress is None:
            return run.failed(
                DefinitionChanged(
                    agent=run.definition.name,
                    was=current.workflow or "no workflow",
                    now=run.definition.workflow or "no workflow",
                )
            )
        if current.signals and not run.definition.asks_model:
            stopped = self._stopped(run, current.progress)
            if stopped is not None:
                return stopped
        return await self.go_on(run, current.progress)

    def _stopped(self, run: Run, progress: Progress) -> Outcome | None:
        """The outcome if signals of the workflow's own hooks end it, between two agents."""
        decision = run.continuation
        if not decision.should_stop:
            return None
        end = end_by(run, decision.signals, progress.text)
        if end.outcome == "stopped":
            return run.stopped(decision.signals)
        return run.completed(end.text)

    async def go_on(self, run: Run, progress: Progress) -> Outcome | None:
        """Run what is missing; an outcome if the workflow is over or suspended."""
        raise NotImplementedError

    async def run_one(self, run: Run, round: int, index: int) -> Outcome | None:
        """Start or continue this agent, and record its end; an outcome if it fails, or waits."""
        outcome = await self.run_pipeline(run, round, index)
        if isinstance(outcome, Failed):
            return self.failure(run, index, outcome)
        if isinstance(outcome, Interrupted):
            return run.interrupted()
        if isinstance(outcome, Paused):
            return run.paused(outcome.reason)
        if isinstance(outcome, Waiting):
            return run.waiting()
        self.record_end(run, round, index, outcome)
        return None

    async def run_pipeline(self, run: Run, round: int, index: int) -> Outcome:
        return await run.children.run(run, key_of(run, round, index), self.agents[index], None)

    def failure(self, run: Run, index: int, outcome: Failed) -> Failed:
        """The outcome of the workflow, which fails because this agent of it failed.

        The end of the agent is not recorded here: it has not done its part, and continues when
        another run continues this run.
        """
        name = self.agents[index].definition.name
        did = what_it_did(run.state)  # with the agents that have not ended, as this one
        error = AgentFailed(agent=name, error=outcome.error.to_dict(), did=did)
        error.__cause__ = outcome.error
        return run.failed(error)

    def record_end(self, run: Run, round: int, index: int, outcome: Outcome) -> None:
        """Record that this agent is done: its messages and changes become the workflow's."""
        key = key_of(run, round, index)
        child = run.state.children[key].run
        own = self.agents[index].definition.mode.steps
        loops = any(getattr(step, "loops", False) for step in own)  # its own escalation ended it
        escalated = child is not None and (
            child.escalated or (ESCALATED in child.once and not loops)
        )
        run.record(
            SubRunEnded(
                child=key,
                agent=self.agents[index].definition.name,
                round=round,
                index=index,
                outcome=_ending_of(outcome),
                escalated=escalated,
                passes_on=escalated and not self.loops,
                at=run.clock.now(),
            )
        )


def key_of(run: Run, round: int, index: int) -> str:
    """The run id of an agent of the workflow: the same in each attempt."""
    return f"{run.run_id}.r{round}.{index}"


def _ending_of(outcome: Outcome) -> Literal["completed", "failed", "stopped"]:
    if isinstance(outcome, Failed):
        return "failed"
    return "stopped" if isinstance(outcome, Stopped) else "completed"


def escalated_itself(run: Run) -> bool:
    """Whether a hook of the workflow has escalated, and no agent of it is under way."""
    begun = any(child.run is not None for child in run.state.agents.values())
    return ESCALATED in run.current.once and not begun


def inside_loop(run: Run) -> bool:
    """Whether this workflow runs inside a `Loop`, which an agent that escalates ends."""
    while run.parent is not None and run.current.shared is not None:
        run = run.parent
        if any(getattr(step, "loops", False) for step in run.definition.mode.steps):
            return True
    return False

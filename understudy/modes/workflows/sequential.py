"""`Sequential`: agents in order, each with the conversation so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from understudy._base.type_variables import DepsT_contra
from understudy.modes.workflows.workflow import (
    RunAgents,
    Workflow,
    escalated_itself,
    inside_loop,
)
from understudy.outcomes import Outcome
from understudy.run.run import Run
from understudy.state.workflow_progress import Progress
from understudy.tools.base_agent import BaseAgent


class Sequential(Workflow[DepsT_contra]):
    """A workflow that runs each of its agents once: `Agent("doc", mode=Sequential([writer,
    reviewer]))`.

    Its text is the last text of an agent in it. If an agent fails, the workflow fails. An agent
    that is stopped, for instance by a limit of its own, counts as done. If an agent escalates
    inside a `Loop`, the workflow ends. Outside a loop, escalation has no effect.

    Args:
        agents: the agents, each an `Agent`, in order. All agents, at any depth, have different
            names.

    Raises:
        UsageError: if there is no agent, an item is not an agent, or two agents have one name.

    """

    def __init__(self, agents: Sequence[BaseAgent[DepsT_contra, Any]]) -> None:
        super().__init__(_RunInOrder(agents))


class _RunInOrder(RunAgents):
    kind = "Sequential"

    async def go_on(self, run: Run, progress: Progress) -> Outcome | None:
        done = len(progress.results)
        escalated = any(result.escalated for result in progress.results.values())
        escalated = escalated or escalated_itself(run)
        if done == len(self.agents) or (escalated and inside_loop(run)):
            return run.completed(progress.text)
        return await self.run_one(run, 0, done)

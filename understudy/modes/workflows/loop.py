"""`Loop`: agents in order, round after round, until one of them ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from understudy._base.type_variables import DepsT_contra
from understudy.errors import EffectUnknown, UsageError
from understudy.modes.workflows.workflow import RunAgents, Workflow, escalated_itself
from understudy.outcomes import Outcome
from understudy.run.run import Run
from understudy.state.workflow_progress import Progress
from understudy.tools.base_agent import BaseAgent


class Loop(Workflow[DepsT_contra]):
    """A workflow that runs its agents in order, round after round.

    The loop ends if an agent escalates (`tools.exit_loop`, or a `ToolResult(escalate=True)`), as
    soon as this agent is done. Later agents of the round do not run. Otherwise it ends after
    `max_iterations` rounds. It is `Completed` in both cases. Its text is the last text of an agent
    in it.

    Args:
        agents: the agents, each an `Agent`. All agents, at any depth, have different names.
        max_iterations: the maximum number of rounds, at least 1; None = no limit.

    Raises:
        UsageError: if there is no agent, an item is not an agent, two agents have one name, or
            the limit is invalid.

    """

    def __init__(
        self, agents: Sequence[BaseAgent[DepsT_contra, Any]], max_iterations: int | None = None
    ) -> None:
        number = isinstance(max_iterations, int) and not isinstance(max_iterations, bool)
        if max_iterations is not None and (not number or max_iterations < 1):
            raise UsageError(
                "Loop: `max_iterations` must be an integer of at least 1, or None for no limit, "
                f"got {max_iterations!r}"
            )
        super().__init__(_RunInRounds(agents, max_iterations))
        self.max_iterations = max_iterations


def _is_of(run: Run, call_key: str) -> bool:
    """Whether a call is one of this run, or of an agent inside it."""
    return call_key.startswith(f"{run.run_id}.")


class _RunInRounds(RunAgents):
    kind = "Loop"
    loops = True

    def __init__(self, agents: Sequence[Any], max_iterations: int | None) -> None:
        super().__init__(agents)
        self._max_iterations = max_iterations

    async def go_on(self, run: Run, progress: Progress) -> Outcome | None:
        escalated = any(result.escalated for result in progress.results.values())
        if escalated or escalated_itself(run):
            return run.completed(progress.text)
        if len(progress.results) < len(self.agents):
            return await self.run_one(run, progress.round, len(progress.results))
        if self._max_iterations is not None and progress.round + 1 >= self._max_iterations:
            return run.completed(progress.text)
        doubt = next((each for key, each in run.state.doubts.items() if _is_of(run, key)), None)
        if doubt is not None:  # the next round may do it again
            error = EffectUnknown(
                tool=doubt.tool_name, call_key=doubt.call_key, reason=doubt.reason
            )
            return run.failed(error)
        # Agents that await nothing, again and again, would keep the event loop from all other tasks
        # (test_a_loop_whose_agents_do_nothing_holds_nobody_up).
        await asyncio.sleep(0)
        return await self.run_one(run, progress.round + 1, 0)

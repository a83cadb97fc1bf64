"""`Loop`: agents one after the other, again and again, until one of them ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from understudy.errors import UsageError
from understudy.modes.workflows.workflow import RunAgents, Workflow, failure, first_failure
from understudy.outcomes import Outcome
from understudy.run.run import Run
from understudy.state.workflow_progress import Progress

__all__ = ["Loop"]


class Loop(Workflow):
    """Runs the agents in order, round after round (W1).

    It is over when an agent escalates (`tools.exit_loop`, or a `ToolResult(escalate=True)`), once
    that agent is done; later agents of the round do not run. Or when `max_iterations` rounds are.
    It is `Completed` either way, with the last text that an agent of it said.

    Args:
        agents: each an `Agent`; all of them, at any depth, have different names.
        max_iterations: how many rounds at most, from 1 on; None for no limit.

    Raises:
        UsageError: for no agents, what is no agent, one that is there twice, or a limit that is
            none.

    """

    def __init__(self, agents: Sequence[Any], max_iterations: int | None = None) -> None:
        number = isinstance(max_iterations, int) and not isinstance(max_iterations, bool)
        if max_iterations is not None and (not number or max_iterations < 1):
            raise UsageError(
                f"Loop(max_iterations=) is a number of rounds from 1 on, or None for no limit; not "
                f"{max_iterations!r}"
            )
        super().__init__(_RunInRounds(agents, max_iterations))
        self.max_iterations = max_iterations


class _RunInRounds(RunAgents):
    kind = "Loop"
    loops = True

    def __init__(self, agents: Sequence[Any], max_iterations: int | None) -> None:
        super().__init__(agents)
        self._max_iterations = max_iterations

    async def go_on(self, run: Run, progress: Progress) -> Outcome | None:
        failed = first_failure(progress)
        if failed is not None:
            return failure(run, failed)
        if any(result.escalated for result in progress.results.values()):
            return run.completed(progress.text)
        if len(progress.results) < len(self.agents):
            return await self.run_one(run, progress.round, len(progress.results))
        if self._max_iterations is not None and progress.round + 1 >= self._max_iterations:
            return run.completed(progress.text)
        await asyncio.sleep(0)  # whose agents do nothing must not hold everybody else up
        return await self.run_one(run, progress.round + 1, 0)

"""`Parallel`: agents at the same time, each on its own branch of the conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from understudy._base.json_values import checked_flag
from understudy._base.type_variables import DepsT_contra
from understudy.modes.steps.concurrent import Concurrent, may_start
from understudy.modes.workflows.workflow import (
    RunAgents,
    Workflow,
    escalated_itself,
    inside_loop,
    key_of,
)
from understudy.outcomes import Failed, Interrupted, Outcome, Paused, Waiting
from understudy.run.ledger import ChildLedger, Ledger, open_calls
from understudy.run.run import AttemptEnded, Run
from understudy.state.agent_state import AgentState
from understudy.state.run_state import Call
from understudy.state.waits import woken_calls
from understudy.state.workflow_progress import Progress
from understudy.stopping import StopReason, StopSignal, StopSignals
from understudy.tools.base_agent import BaseAgent

SUSPENDED = (Interrupted, Paused, Waiting)
"""The outcomes of an agent that continues later."""


class Parallel(Workflow[DepsT_contra]):
    """A workflow that runs all its agents at the same time.

    Each agent sees the conversation before, and not the work of the others. When all agents are
    done, their messages and changed values are merged into the workflow's, in declared order.
    `outcome.results` has the same order. The text of the workflow is all their texts, each after
    the name of its agent.

    - If some agents wait for a person, the others finish first.
    - An agent that fails cancels the others, and the workflow fails.
    - An agent that escalates ends the nearest loop around the workflow, after the others are done.

    Args:
        agents: the agents, each an `Agent`. All agents, at any depth, have different names.
        return_failures: if an agent fails, let the others finish, and report failures in
            `outcome.results`.

    Raises:
        UsageError: if there is no agent, an item is not an agent, or two agents have one name.

    """

    _arrow = " | "

    def __init__(
        self, agents: Sequence[BaseAgent[DepsT_contra, Any]], return_failures: bool = False
    ) -> None:
        checked_flag(return_failures, what="Parallel: `return_failures`")
        super().__init__(_RunTogether(agents, return_failures))
        self.return_failures = return_failures


class _RunTogether(RunAgents):
    kind = "Parallel"

    def __init__(self, agents: Sequence[Any], return_failures: bool) -> None:
        super().__init__(agents)
        self._return_failures = return_failures

    async def go_on(self, run: Run, progress: Progress) -> Outcome | None:
        missing = [index for index in range(len(self.agents)) if index not in progress.results]
        if not missing or (escalated_itself(run) and inside_loop(run)):
            return run.completed(_text(progress))
        outcomes = await self._outcomes(run, missing)
        for index, outcome in sorted(outcomes.items()):
            if isinstance(outcome, Failed) and self._ends_all(outcome):
                await self._stop_others(run, missing, index)
                return self.failure(run, index, outcome)
        suspended = {type(o) for o in outcomes.values() if isinstance(o, SUSPENDED)}
        if Interrupted in suspended:
            return run.interrupted()
        if Paused in suspended:
            return run.paused(run.state.pause or "")
        if suspended:
            return run.waiting()
        # Recorded only when all are done, and in declared order: a record made as each one finishes
        # would merge them in the order of chance
        # (test_results_stand_in_declared_order_whoever_is_done_first).
        for index in missing:
            if index in outcomes:
                self.record_end(run, 0, index, outcomes[index])
        return None

    def _ends_all(self, outcome: Outcome) -> bool:
        return isinstance(outcome, Failed) and not self._return_failures

    async def _outcomes(self, run: Run, missing: Sequence[int]) -> dict[int, Outcome]:
        """The outcomes of these agents, as far as they have one. Agents that are not over run.

        Race: a crash between the end of one agent and the record of it here. In the next attempt
        its outcome is read first: if it failed, no other agent is started again
        (`test_a_crash_while_one_has_failed_does_not_start_the_others_again`).
        """
        outcomes = await self._of_ended(run, missing)
        rest = [index for index in missing if index not in outcomes]
        if rest and not any(map(self._ends_all, outcomes.values())):
            outcomes |= await self._run_concurrently(run, rest)
            # Race: the failure of one cancels a sibling right after it recorded its own end, and
            # before its task returned the outcome. That end counts
            # (test_an_agent_that_ended_before_a_failure_cancelled_it_keeps_its_end).
            outcomes |= await self._of_ended(run, [i for i in missing if i not in outcomes])
        return outcomes

    async def _of_ended(self, run: Run, missing: Sequence[int]) -> dict[int, Outcome]:
        outcomes = {}
        for index in missing:
            child = run.state.children.get(key_of(run, 0, index))
            ended = None if child is None else child.run
            if ended is not None and ended.over and not ended.is_taken_over:
                outcomes[index] = await self.run_pipeline(run, 0, index)
        return outcomes

    async def _run_concurrently(self, run: Run, indices: Sequence[int]) -> dict[int, Outcome]:
        """Run all at the same time, until all have an outcome or one ends them all."""
        outcomes: dict[int, Outcome] = {}
        waiting: dict[int, None] = {}  # the agents that are suspended
        unseen: dict[int, None] = {}  # the suspended agents that were not looked at yet
        crash: BaseException | None = None
        # No task may continue after the outcome, also if this task is cancelled
        # (test_cancelling_the_task_cancels_every_branch).
        async with Concurrent[int, Outcome](run) as running:
            for index in indices:
                running.start(index, self.run_pipeline(run, 0, index))
            while running.any_runs:
                if unseen and may_start(run):
                    beside = len(unseen) < len(waiting)
                    running.look((each for i in unseen for each in _calls_of(run, i)), beside)
                    for index in unseen:
                        if running.is_woken(index, woken_calls(_state_of(run, index))):
                            del outcomes[index], waiting[index]
                            running.start(index, self.run_pipeline(run, 0, index))
                    unseen = {}
                ended = await running.next()
                if ended is None:
                    unseen = dict(waiting)
                    continue
                index, result = ended
                # The runtime ends this attempt: that is not a crash. Each branch comes to the end
                # of its own step by itself. Cancelled in the middle, its calls would be in doubt
                # (test_stopping_while_branches_work_cuts_off_no_call).
                if isinstance(result, BaseException):
                    crash = result
                    if not isinstance(crash, AttemptEnded):
                        break
                    continue
                outcomes[index] = result
                if self._ends_all(result):
                    break
                if isinstance(result, SUSPENDED):
                    waiting[index] = unseen[index] = None
        if crash is not None:
            raise crash
        return outcomes

    async def _stop_others(self, run: Run, missing: Sequence[int], failed: int) -> None:
        """Stop the other agents that have begun where they are: an agent has failed.

        A sibling that waits for a person is stopped too: nothing is left to answer
        (`test_a_failure_ends_a_sibling_that_waits_for_a_person`).
        """
        name = self.agents[failed].definition.name
        message = f"agent {name!r}, which ran beside it, failed"
        signals = StopSignals((StopSignal(StopReason.ERROR, message, source=run.definition.name),))
        for index in missing:
            key = key_of(run, 0, index)
            child = run.state.children.get(key)
            if child is not None and child.run is not None and not child.run.over:
                await run.children.stop(run, key, signals)


def _state_of(run: Run, index: int) -> AgentState:
    """The state of this agent, which has begun."""
    return run.state.children[key_of(run, 0, index)]


def _calls_of(run: Run, index: int) -> Iterator[tuple[Ledger, Call]]:
    """The open calls of this agent and of agents inside it, each with the ledger of its agent."""
    name = run.definition.mode.agents[index].definition.name
    return open_calls(ChildLedger(run.ledger, key_of(run, 0, index), name))


def _text(progress: Progress) -> str:
    texts = []
    for _, result in sorted(progress.results.items()):
        if result.text:
            texts.append(f"[{result.agent}] {result.text}")
        elif result.error is not None:
            texts.append(f"[{result.agent}] failed: {result.error['message']}")
    return "\n\n".join(texts)

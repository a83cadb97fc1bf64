"""`Parallel`: agents side by side, each on its own branch of the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import NoneType
from typing import Any

from understudy.errors import UsageError
from understudy.modes.workflows.workflow import RunAgents, Workflow, failure, first_failure, key_of
from understudy.outcomes import Failed, Interrupted, Outcome, Paused
from understudy.run.run import Halted, Run
from understudy.state.workflow_progress import Progress
from understudy.stopping import StopReason, StopSignal, StopSignals

__all__ = ["Parallel"]


class Parallel(Workflow):
    """Runs all agents at once. Each sees what was said before, and nothing of its siblings (W6).

    When all are done, what they said and changed enters the workflow's conversation and values in
    declared order, and so do `outcome.results`. Its text is theirs, each behind its agent's name.
    If some wait for a person, the others finish first. One that fails cancels the rest and fails
    the whole. One that escalates ends the nearest loop around, after its siblings are done.

    Args:
        agents: each an `Agent`; all of them, at any depth, have different names.
        return_failures: let the rest finish, and tell failures in `outcome.results` instead.

    Raises:
        UsageError: for no agents, what is no agent, or one that is there twice.

    """

    _arrow = " | "

    def __init__(self, agents: Sequence[Any], return_failures: bool = False) -> None:
        if not isinstance(return_failures, bool):
            raise UsageError(
                f"Parallel(return_failures=) is True or False, not {return_failures!r}"
            )
        super().__init__(_RunTogether(agents, return_failures))
        self.return_failures = return_failures


class _RunTogether(RunAgents):
    kind = "Parallel"

    def __init__(self, agents: Sequence[Any], return_failures: bool) -> None:
        super().__init__(agents)
        self._return_failures = return_failures

    async def go_on(self, run: Run, progress: Progress) -> Outcome | None:
        failed = first_failure(progress) if not self._return_failures else None
        if failed is not None:
            return failure(run, failed)
        missing = [index for index in range(len(self.agents)) if index not in progress.results]
        if not missing:
            return run.completed(_text(progress))
        outcomes = await self._outcomes(run, missing)
        if self._ends_all(outcomes):
            self._stop_rest(run, missing, outcomes)
        waiting = [o for o in outcomes.values() if isinstance(o, (Interrupted, Paused))]
        if any(isinstance(outcome, Interrupted) for outcome in waiting):
            return run.interrupted()
        if waiting:
            return run.paused(run.state.pause or "")
        for index in missing:
            if index in outcomes:
                self.record_end(run, 0, index, outcomes[index])
        return None

    def _ends_all(self, outcomes: Mapping[int, Outcome]) -> bool:
        failed = any(isinstance(outcome, Failed) for outcome in outcomes.values())
        return failed and not self._return_failures

    async def _outcomes(self, run: Run, missing: Sequence[int]) -> dict[int, Outcome]:
        """What each comes to. Those that are over already tell it again, and may end the rest."""
        outcomes = await self._of_those_over(run, missing)
        rest = [index for index in missing if index not in outcomes]
        if rest and not self._ends_all(outcomes):
            outcomes |= await self._together(run, rest)
            outcomes |= await self._of_those_over(run, missing)
        return outcomes

    async def _of_those_over(self, run: Run, missing: Sequence[int]) -> dict[int, Outcome]:
        outcomes = {}
        for index in missing:
            child = run.state.children.get(key_of(run, 0, index))
            if child is not None and child.run is not None and child.run.over:
                outcomes[index] = await self.run_pipeline(run, 0, index)
        return outcomes

    async def _together(self, run: Run, indices: Sequence[int]) -> dict[int, Outcome]:
        """Drive all at once. The first that fails ends the others, if it fails the whole."""
        tasks = {i: asyncio.ensure_future(_guarded(self.run_pipeline(run, 0, i))) for i in indices}
        died: BaseException | None = None
        try:
            pending = set(tasks.values())
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    brought = task.result()
                    if isinstance(brought, BaseException):
                        died = brought
                if died is not None and not isinstance(died, Halted):  # halted, each ends its step
                    break
                if self._ends_all(_brought(tasks)):
                    break
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        if died is not None:
            raise died
        return _brought(tasks)

    def _stop_rest(self, run: Run, missing: Sequence[int], outcomes: dict[int, Outcome]) -> None:
        """The others are over, too, in the middle of what they did."""
        failed = next(i for i, outcome in outcomes.items() if isinstance(outcome, Failed))
        name = self.agents[failed].definition.name
        message = f"agent {name!r}, which ran beside it, failed"
        signals = StopSignals((StopSignal(StopReason.ERROR, message, source=run.definition.name),))
        assert run.children is not None, "whoever makes a Run says how it runs others"
        for index in missing:
            key = key_of(run, 0, index)
            waits = isinstance(outcomes.get(index), (Interrupted, Paused, NoneType))
            if waits and key in run.state.children:
                run.children.stop(run, key, signals)
                outcomes[index] = run.stopped(signals)


async def _guarded(run_pipeline: Coroutine[Any, Any, Outcome]) -> Outcome | BaseException:
    """What ended it is told and not raised: a task that dies of SystemExit ends its loop."""
    try:
        return await run_pipeline
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error


def _brought(tasks: Mapping[int, asyncio.Task[Outcome | BaseException]]) -> dict[int, Outcome]:
    """The outcomes of those that came to one."""
    outcomes: dict[int, Outcome] = {}
    for index, task in tasks.items():
        if task.done() and not task.cancelled():
            brought = task.result()
            if not isinstance(brought, BaseException):
                outcomes[index] = brought
    return outcomes


def _text(progress: Progress) -> str:
    told = []
    for _, result in sorted(progress.results.items()):
        if result.text:
            told.append(f"[{result.agent}] {result.text}")
        elif result.error is not None:
            told.append(f"[{result.agent}] failed: {result.error['message']}")
    return "\n\n".join(told)

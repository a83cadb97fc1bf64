"""The run task: an asyncio task that runs an agent's pipeline, next to the agent's actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from understudy._base.json_values import shown
from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import Activation, RunTaskResult
from understudy.actors.agent.messages import AgentKey
from understudy.actors.agent.slot import AgentSlot, running_agents
from understudy.errors import Fenced, JournalFailed
from understudy.outcomes import Outcome
from understudy.run.run import AttemptEnded
from understudy.state.records import AttemptClosed
from understudy.stopping import StopSignal
from understudy.trust.freezes import Stop

logger: logging.Logger = logging.getLogger(__name__)


def start_run_task(
    slot: AgentSlot, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[AgentKey, ...]
) -> None:
    """Run the coroutine in a task. Its result is left in the activation for the actor to look at.

    The task belongs to the activation: an actor that is restarted meanwhile finds it running, and
    the tool calls in it live on.
    """
    activation = slot.current

    def ended(task: asyncio.Task[None]) -> None:
        # Closes the race of a cancel with the task's first step: a task that is cancelled before
        # it has run nothing of `_run`, and no code would learn that the run is over.
        # tests: test_cancel_right_behind_going_on_ends_the_run,
        # test_an_agent_that_is_taken_as_its_run_goes_on_has_not_crashed
        if activation.task is task:
            coroutine.close()
            error = _why_cancelled(activation, asyncio.CancelledError())
            slot.run_task_ended(activation, RunTaskResult(crash=error))

    activation.task = slot.services.loop.create_task(
        _run(slot, activation, coroutine, callers), name=f"agent {slot.id}"
    )
    activation.task.add_done_callback(ended)


async def _run(
    slot: AgentSlot,
    activation: Activation,
    coroutine: Coroutine[Any, Any, Outcome],
    callers: tuple[AgentKey, ...],
) -> None:
    """Run the coroutine to an outcome. Nothing is raised: a `SystemExit` would end the loop."""
    running_agents.set((*callers, slot.key))
    before = _attempts(activation)
    try:
        result = RunTaskResult(outcome=await coroutine)
    except AttemptEnded as ended:
        result = _ended_between_steps(activation, ended.stop)
    except asyncio.CancelledError as error:
        result = await _cancelled(slot, activation, error)
    except BaseException as error:
        if activation.task is asyncio.current_task():  # else that it was abandoned is logged
            run = activation.state.run
            is_lost = isinstance(error, Fenced)  # it goes on at another host
            logger.log(
                logging.INFO if is_lost else logging.WARNING,
                "the run of agent %r %s: %s",
                slot.id,
                "is cut off here" if is_lost else "crashed",
                shown(error),
                extra=log_extra(slot.id, None if run is None else run.run_id),
            )
        is_uncounted = _attempts(activation) in (before, 0)
        result = RunTaskResult(crash=error, is_uncounted=is_uncounted)
    if activation.task is asyncio.current_task():  # else it was abandoned
        slot.run_task_ended(activation, result)


def _attempts(activation: Activation) -> int | None:
    """The number of attempts at the open run; None where no run is open."""
    run = activation.state.run
    return None if run is None or run.over else run.attempts


def _ended_between_steps(activation: Activation, stop: Stop | None) -> RunTaskResult:
    """The result of a run task that ended for a passivation, or as its run may not go on now.

    An attempt that has not got further is no crash either.
    """
    run = activation.state.run
    try:
        if run is not None and run.fruitless:
            activation.ledger.record(AttemptClosed())
    except JournalFailed as error:
        return RunTaskResult(crash=error)
    return RunTaskResult(stop=stop)


def _why_cancelled(activation: Activation, error: BaseException) -> BaseException:
    """The error of a run task that is cancelled: the loss of its agent, if it is lost."""
    try:
        activation.ledger.check_fence()
        activation.journal.check_owner()
    except Exception as lost:
        return lost
    return error


async def _cancelled(
    slot: AgentSlot, activation: Activation, error: BaseException
) -> RunTaskResult:
    """The result of a cancelled run task: a cancelled run if that is recorded, else a crash."""
    activation.cancellation_arrived()
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()  # what cancels it from now on cuts off the hooks at the end of the run
    try:
        activation.ledger.check_fence()
        run = activation.state.run
        if run is None or run.cancelled is None:
            return RunTaskResult(crash=_why_cancelled(activation, error))
        # The lease may have run out and be renewed: the cancellation waits for that, as everything
        # that waits for the store does (test_a_cancel_while_the_lease_has_run_out_waits_as_well).
        await activation.journal.wait_for_owner()
        runner = activation.agent.runner
        if run.over:  # its end was recorded before the cancellation came
            return RunTaskResult(outcome=runner.ended(activation.state))
        signal = StopSignal.from_dict(run.cancelled)
        stopped = runner.stop(activation.ledger, signal, environment=slot.environment())
        return RunTaskResult(outcome=await stopped)
    except asyncio.CancelledError:
        raise
    except BaseException as failed:  # fenced, the end could not be recorded, or a hook killed it
        return RunTaskResult(crash=failed)

"""How a run is driven for an actor: in a task that outlives it, from which nothing escapes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from understudy.actors.awake import Awake, Finished
from understudy.actors.cell import AgentCell, running_agents
from understudy.errors import StoreError
from understudy.outcomes import Outcome
from understudy.run.run import Halted
from understudy.stopping import StopSignal

__all__ = ["begin_drive"]

logger = logging.getLogger(__name__)


def begin_drive(
    cell: AgentCell, coroutine: Coroutine[Any, Any, Outcome], callers: tuple[str, ...]
) -> None:
    """Drive in a task; what comes of it is left with the agent, and its actor is woken.

    An actor that is restarted meanwhile finds the task still there: the calls in it live on (J9).
    """
    awake = cell.awake
    assert awake is not None, "only an agent that is awake is driven"
    task = cell.home.loop.create_task(
        _driven(cell, awake, coroutine, callers), name=f"agent {cell.id}"
    )
    awake.task = task
    task.add_done_callback(lambda _: _never_driven(cell, awake, task, coroutine))


async def _driven(
    cell: AgentCell,
    awake: Awake,
    coroutine: Coroutine[Any, Any, Outcome],
    callers: tuple[str, ...],
) -> None:
    """Drive to an outcome. Nothing escapes: it would end the loop."""
    running_agents.set((*callers, cell.id))
    try:
        finished = Finished(outcome=await coroutine)
    except Halted:
        finished = Finished()
    except asyncio.CancelledError as error:
        finished = await _cancelled(cell, awake, error)
    except BaseException as error:
        logger.warning("the run of agent %r crashed: %r", cell.id, error)
        finished = Finished(crash=error)
    awake.task, awake.finished = None, finished
    cell.home.wake(cell)


async def _cancelled(cell: AgentCell, awake: Awake, error: BaseException) -> Finished:
    """Only a recorded wish makes a run cancelled; any other cancellation is a crash (J13)."""
    try:
        awake.journal.check_owner()
        run = awake.state.run
        if run is None or run.cancelled is None:
            return Finished(crash=error)
        if run.over:
            return Finished(outcome=awake.agent.runner.ended(awake.state))
        signal = StopSignal.from_dict(run.cancelled)
        runner = awake.agent.runner
        return Finished(outcome=await runner.stop(awake.ledger, signal, host=cell.host()))
    except StoreError as failed:  # fenced, or the end could not be recorded
        return Finished(crash=failed)


def _never_driven(
    cell: AgentCell,
    awake: Awake,
    task: asyncio.Task[None],
    coroutine: Coroutine[Any, Any, Outcome],
) -> None:
    """Cancelled before its first step, so nothing of `_driven` ran."""
    if awake.task is task:
        coroutine.close()
        awake.task, awake.finished = None, Finished(crash=asyncio.CancelledError())
        cell.home.wake(cell)

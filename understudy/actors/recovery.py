"""Recovery after a crash: which agents have something to continue, and in which order."""

from __future__ import annotations

import asyncio
import logging

from understudy.actors.agent_host import AgentHost
from understudy.actors.agent_ref import AgentRef
from understudy.actors.messages import WaitOutcome
from understudy.errors import OwnedElsewhere, StoreUnavailable
from understudy.journal import IndexStatus
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome

logger = logging.getLogger(__name__)


async def recover(agent_host: AgentHost, at_once: int) -> list[AgentRef]:
    """Continue every run that was cut off, and start what is queued; the refs of those agents.

    Only `at_once` agents run until each makes progress, so that one that crashes the process takes
    few others with it. Suspects, which were cut off before without progress, come last and one by
    one.
    """
    wanted: dict[IndexStatus, list[AgentRef]] = {}
    here = getattr(agent_host.services.store, "host", None)
    async for stored in agent_host.services.store.agents(
        {IndexStatus.OPEN, IndexStatus.QUEUED, IndexStatus.SUSPECT}
    ):
        if stored.host not in (None, here):
            continue  # another runtime owns it, and runs it
        if stored.host is None or not agent_host.directory.is_active(stored.agent_id):
            wanted.setdefault(stored.index_status, []).append(
                agent_host.directory.get(stored.agent_id)
            )
    suspects = wanted.pop(IndexStatus.SUSPECT, [])
    others = [ref for refs in wanted.values() for ref in refs]
    agent_host.activator.start_task(_recover_all(others, suspects, at_once))
    return [*others, *suspects]


async def continue_one(agent_host: AgentHost, ref: AgentRef) -> None:
    """Activate one agent, and wait until its run makes progress or ends."""
    await _until_progress(ref)


async def _recover_all(others: list[AgentRef], suspects: list[AgentRef], at_once: int) -> None:
    places = asyncio.Semaphore(at_once)

    async def recover_one(ref: AgentRef) -> None:
        async with places:
            await _until_progress(ref)

    await asyncio.gather(*(recover_one(ref) for ref in others))
    for ref in suspects:
        await _until_progress(ref)


async def _until_progress(ref: AgentRef) -> None:
    """Activate it, and wait until its run makes progress or ends, also while the store is away."""
    slot = ref._slot
    while True:
        progress = slot.on_progress = asyncio.Event()
        outcome: Future[Outcome | None] = Future()
        slot.post(WaitOutcome(outcome))
        waiting = asyncio.ensure_future(_error_of(ref.id, outcome))
        going = asyncio.ensure_future(progress.wait())
        try:
            await asyncio.wait({waiting, going}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() or not isinstance(waiting.result(), StoreUnavailable):
                return
            logger.warning("agent %r is not recovered yet: the store is away", ref.id)
        finally:
            slot.on_progress = None
            going.cancel()
            waiting.cancel()


async def _error_of(agent_id: str, outcome: Future[Outcome | None]) -> BaseException | None:
    try:
        await outcome
    except OwnedElsewhere as error:
        logger.info("%s", error)
        return error
    except Exception as error:  # logged: the others are recovered all the same
        logger.error("agent %r was not recovered: %s", agent_id, error)
        return error
    return None

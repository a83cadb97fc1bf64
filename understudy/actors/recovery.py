"""Going on after a crash: which agents need to be driven, and in which order (J10)."""

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

__all__ = ["recover"]

logger = logging.getLogger(__name__)


async def recover(agent_host: AgentHost, at_once: int) -> list[AgentRef]:
    """Have all agents that need it driven, from now on; their refs.

    Only a bounded number is driven until each gets further, so that one which brings the process
    down takes few with it. Suspects, which were cut off before without having got further, come
    last and one by one.
    """
    wanted: dict[IndexStatus, list[AgentRef]] = {}
    here = getattr(agent_host.services.store, "host", None)
    async for stored in agent_host.services.store.agents(
        {IndexStatus.OPEN, IndexStatus.QUEUED, IndexStatus.SUSPECT}
    ):
        if stored.host not in (None, here):
            continue  # a runtime that is alive has it, and drives it
        if stored.host is None or not agent_host.directory.is_awake(stored.agent_id):
            wanted.setdefault(stored.index_status, []).append(
                agent_host.directory.get(stored.agent_id)
            )
    suspects = wanted.pop(IndexStatus.SUSPECT, [])
    others = [ref for refs in wanted.values() for ref in refs]
    agent_host.activator.keep(_drive_all(others, suspects, at_once))
    return [*others, *suspects]


async def _drive_all(others: list[AgentRef], suspects: list[AgentRef], at_once: int) -> None:
    places = asyncio.Semaphore(at_once)

    async def driven(ref: AgentRef) -> None:
        async with places:
            await _until_progress(ref)

    await asyncio.gather(*(driven(ref) for ref in others))
    for ref in suspects:
        await _until_progress(ref)


async def _until_progress(ref: AgentRef) -> None:
    """Wake it and wait until it gets further or comes to rest; a store that is away is awaited."""
    slot = ref._slot
    while True:
        progress = slot.on_progress = asyncio.Event()
        outcome: Future[Outcome | None] = Future()
        slot.post(WaitOutcome(outcome))
        waiting = asyncio.ensure_future(_brought(ref.id, outcome))
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


async def _brought(agent_id: str, outcome: Future[Outcome | None]) -> BaseException | None:
    try:
        await outcome
    except OwnedElsewhere as error:
        logger.info("%s", error)
        return error
    except Exception as error:  # told, not ours: the others are recovered all the same
        logger.error("agent %r was not recovered: %s", agent_id, error)
        return error
    return None
